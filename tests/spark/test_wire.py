"""The format `reput` over the network, in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reput import Broker
from reput.spark.schema import spark_schema
from reput.spark.source import register
from tests.support.wire import MESSAGES, orders_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module", autouse=True)
def known(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with orders_broker(tmp_path_factory.mktemp("wire")) as broker:
        yield broker


def read(spark: SparkSession, broker: Broker, columns: list[str] | None = None, **options: object) -> DataFrame:
    given = {"namesrv": broker.namesrv, "subscribe": "orders"} | options
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return spark.read.format("reput").schema(spark_schema(columns)).options(**texts).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


def test_a_topic_is_a_table_with_all_columns(spark: SparkSession, broker: Broker) -> None:
    rows = sorted(read(spark, broker).collect(), key=lambda row: int(row.body))
    assert [int(row.body) for row in rows] == list(range(MESSAGES))
    assert [(row.queue_id, row.queue_offset) for row in rows] == [(n % 2, n // 2) for n in range(MESSAGES)]
    assert {(row.store, row.topic, row.status) for row in rows} == {("broker-a", "orders", "OK")}
    assert [row.tags for row in rows[:3]] == ["even", "odd", "even"]
    assert rows[7]["keys"] == ["k-7"]
    assert rows[0].commit_log_offset < rows[1].commit_log_offset
    assert rows[0].store_host == broker.address


def test_small_tasks_read_the_same_rows(spark: SparkSession, broker: Broker) -> None:
    frame = read(spark, broker, ["body"], minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert numbers(frame) == list(range(MESSAGES))
    few = read(spark, broker, ["body"], maxRecordsPerPartition=100)
    assert few.rdd.getNumPartitions() == 6
    assert numbers(few) == list(range(MESSAGES))
