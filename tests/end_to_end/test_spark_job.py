"""A small job on Spark: the messages of a log that RocketMQ wrote, counted by topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.spark.session import session

STORE = Path(__file__).parents[1] / "golden/5.3.3/clean/store"


@pytest.mark.spark
def test_spark_counts_the_messages_that_threads_count() -> None:
    spark = session("local[2]", "a small job")
    try:
        counted = spark.read.format("reput").load(str(STORE)).groupBy("topic").count().toArrow()
    finally:
        spark.stop()
    expected = statistics(STORE, runner=LocalRunner(), by=("topic",), bucket=None).table
    assert expected.num_rows > 1
    assert counted.sort_by("topic").to_pydict() == {
        "topic": expected["topic"].to_pylist(), "count": expected["messages"].to_pylist()
    }  # fmt: skip
