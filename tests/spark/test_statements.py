"""A list of statements, of which DuckDB and Spark give equal rows, or which both refuse."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import reput
from reput.errors import ConfigError
from reput.formats.message import Message
from reput.jobs.query.sql_job import Source, query_sql
from reput.spark.sql import arrow_rows, query_sql_on_spark
from tests.support.commands import run_reput
from tests.support.statements import ANSWERED, DIFFERING, MY_ORDERS, ORDERS, RAW, REFUSED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("statements") / "store"
    with reput.MessageStore.open(path, small=True) as opened:
        for topic, bodies in (
            ("orders", [json.dumps(body).encode() for body in ORDERS]), ("my-orders", MY_ORDERS), ("raw", RAW),
        ):  # fmt: skip
            opened.put_messages([Message(topic, body, tags="a", keys=["k", "l"]) for body in bodies])
    return path


def plain(value: Any) -> Any:
    """A value by which rows are compared: sums and counts have other types in the two engines."""
    if isinstance(value, float | Decimal) and not isinstance(value, bool):
        return round(float(value), 9)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)  # both are of UTC
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def rows_of(reader: pa.RecordBatchReader, *, in_order: bool) -> list[str]:
    table = reader.read_all()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    texts = [repr([plain(float(one) if type(one) is int else one) for one in row]) for row in rows]
    return texts if in_order else sorted(texts)


def answers(spark: SparkSession, store: Path, sql: str) -> list[list[str] | None]:
    """Rows of both engines; None where one refuses."""
    source, in_order = Source(path=store), "order by" in sql and "over (" not in sql
    found: list[list[str] | None] = []
    for ask in (
        lambda: query_sql(source, sql).reader,
        lambda: arrow_rows(query_sql_on_spark(spark, source, sql.replace('"', "`")), mkdtemp(dir=store.parent)),
    ):
        try:
            found.append(rows_of(ask(), in_order=in_order))
        except (ConfigError, PySparkException, duckdb.Error):
            found.append(None)
    return found


def test_both_engines_give_equal_rows(spark: SparkSession, store: Path) -> None:
    assert len(ANSWERED) + len(REFUSED) >= 60
    differing = {}
    for sql in ANSWERED:
        of_duckdb, of_spark = answers(spark, store, sql)
        if of_duckdb is None or of_duckdb != of_spark:
            differing[sql] = (of_duckdb and of_duckdb[:3], of_spark and of_spark[:3])
    assert not differing


def test_both_engines_refuse(spark: SparkSession, store: Path) -> None:
    assert [sql for sql in REFUSED if answers(spark, store, sql) != [None, None]] == []


def test_expressions_with_two_values_are_those_of_the_page(spark: SparkSession, store: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/sql.md").read_text().replace("\\|", "|")
    for expression, expected in DIFFERING.items():
        texts = [None if one is None else [repr([plain(float(one) if type(one) is int else one)])] for one in expected]
        assert answers(spark, store, f"select {expression} x from orders limit 1") == texts, expression
    shown = (
        "1 / 0",
        "cast('2.5' as int)",
        "concat('a', null)",
        "log(10)",
        "7 ^ 2",
        "substr('abc', 0, 2)",
        "upper('ß')",
    )
    assert all(f"`{expression}`" in page for expression in shown)


def test_rows_for_a_file_come_in_order_and_piece_by_piece(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    frame = query_sql_on_spark(spark, Source(path=store), "select id, id, who from orders order by id")
    ranges = frame.repartitionByRange(5, frame[2]).sortWithinPartitions("who")
    assert len(list(arrow_rows(ranges, mkdtemp(dir=tmp_path)))) > 1
    reader = arrow_rows(frame, mkdtemp(dir=tmp_path))
    assert reader.schema.names == ["id", "id_1", "who"]
    assert [row["id_1"] for row in reader.read_all().to_pylist()] == list(range(len(ORDERS)))


def test_the_command_writes_a_file_and_leaves_nothing_beside_it(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    sql = "select id, who.city from orders where id > 50 order by id"
    for name, statement, status in (("a.jsonl", sql, 0), ("b.jsonl", "select cast('x' as int) from orders", 2)):
        answer = run_reput("query", store, "--sql", statement, "--runner", "spark", "--output", tmp_path / name)
        assert (answer.status == 0) == (status == 0)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    expected = query_sql(Source(path=store), sql).reader.read_all().to_pylist()
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == expected
