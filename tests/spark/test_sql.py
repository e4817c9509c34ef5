"""Stores by SQL alone, and how Spark finds the format."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLEAN = Path(__file__).parents[1] / "golden" / "5.3.3" / "clean" / "store"


@pytest.mark.parametrize(
    ("view", "rows", "columns"),
    [
        ("TEMPORARY VIEW messages USING reput OPTIONS (path '{}')", 1000, 22),
        ("TEMPORARY VIEW messages (topic STRING, body BINARY) USING reput OPTIONS (path '{}')", 1000, 2),
        ("TEMPORARY VIEW messages USING reput OPTIONS (path '{}', topics 'topic-1', splitBytes '9000')", 219, 22),
    ],
)
def test_a_temporary_view_is_a_store(spark: SparkSession, view: str, rows: int, columns: int) -> None:
    spark.sql(f"CREATE OR REPLACE {view.format(CLEAN)}")
    found = spark.sql("SELECT * FROM messages")
    assert (found.count(), len(found.columns)) == (rows, columns)


def test_a_global_temporary_view_is_a_store(spark: SparkSession) -> None:
    spark.sql(f"CREATE GLOBAL TEMPORARY VIEW every_session USING reput OPTIONS (path '{CLEAN}', topics 'topic-1')")
    assert spark.newSession().sql("SELECT * FROM global_temp.every_session").count() == 219


def test_a_table_which_spark_gives_no_options_leads_to_a_view(spark: SparkSession) -> None:
    spark.sql(f"CREATE TABLE messages_table (topic STRING) USING reput OPTIONS (path '{CLEAN}')")
    try:
        with pytest.raises(Exception, match=r"needs the directory of a store: .*CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM messages_table").collect()
    finally:
        spark.sql("DROP TABLE messages_table")


@pytest.mark.spark
def test_a_module_of_somebody_else_that_fails_hides_the_format_until_it_is_registered(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise ImportError('somebody else')")
    program = f"""
import reput.spark
spark = reput.spark.session("local[1]")
try:
    spark.read.format("reput").load({str(CLEAN)!r})
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
reput.spark.register(spark)
print(len(spark.read.format("reput").load({str(CLEAN)!r}).columns))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["True", "22"], done.stderr
    assert "Skipping the lookup of Python Data Sources due to the failure" in done.stderr
