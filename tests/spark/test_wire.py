"""The format `reput` over the network, in Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from reput import Broker
from reput.client.sync import PullConsumer
from reput.spark.compat import LIMITS
from reput.spark.schema import spark_schema
from reput.spark.source import register
from tests.support.spark_minors import RUNS_AVAILABLE_NOW, needs
from tests.support.wire import MESSAGES, orders_broker, send_numbers, wire_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pytest.fixture(autouse=True)
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


def test_secrets_are_in_no_plan(spark: SparkSession, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    frame = read(spark, broker, ["body"], accessKey="alice", secretKey="open-sesame").where("length(body) > 1")
    frame.explain(extended=True)
    assert "reput" in (shown := capsys.readouterr().out)
    assert "open-sesame" not in shown
    assert frame.count() == MESSAGES - 10


def test_what_is_wrong_reaches_the_user(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(PySparkException, match="option subscribe: no name server knows a topic missing"):
        read(spark, broker, subscribe="missing").count()
    with pytest.raises(PySparkException, match="no option 'path'"):
        read(spark, broker, path="/data/store").count()


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[DataStreamWriter], StreamingQuery]]:
    """Start a query with the test's checkpoint, and wait until it has read what there is."""
    queries = []

    def run(writer: DataStreamWriter) -> StreamingQuery:
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        for _ in range(RUNS_AVAILABLE_NOW):
            queries.append(query := writer.start())
            query.awaitTermination()
        return query

    yield run
    for query in queries:
        query.stop()


def stream(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    given = {"namesrv": broker.namesrv, "subscribe": "orders"} | options
    texts = {name: str(value) for name, value in given.items()}
    schema = spark_schema(["topic", "body", "properties"])
    return spark.readStream.format("reput").schema(schema).options(**texts).load()


@needs(LIMITS)
def test_a_stream_reads_each_message_once_over_restarts_and_shows_its_progress(
    spark: SparkSession, start: Callable[[DataStreamWriter], StreamingQuery], tmp_path: Path
) -> None:
    batches: dict[int, list[int]] = {}
    dies = [True]

    def sink(frame: DataFrame, batch: int) -> None:
        rows = sorted(int(row.body) for row in frame.collect())
        assert batches.setdefault(batch, rows) == rows, "a batch that runs again has the same rows"
        if dies and len(batches) == 2:
            dies.clear()
            raise RuntimeError("the sink died")

    with wire_broker(tmp_path / "broker") as broker:
        send_numbers(broker.namesrv, range(30))
        frame = stream(spark, broker, maxOffsetsPerTrigger=8, group="spark-orders")
        with pytest.raises(PySparkException, match="the sink died"):
            start(frame.writeStream.foreachBatch(sink))
        send_numbers(broker.namesrv, range(30, 40))
        query = start(frame.writeStream.foreachBatch(sink))
        assert sorted(number for rows in batches.values() for number in rows) == list(range(40))
        assert max(map(len, batches.values())) <= 8
        assert query.lastProgress is not None
        end = query.lastProgress["sources"][0]["endOffset"]
        assert json.loads(end) == {"orders": {"broker-a:0": 20, "broker-a:1": 20}}
        with PullConsumer(broker.namesrv, group="spark-orders") as consumer:
            committed = [consumer.committed(queue) for queue in sorted(consumer.queues("orders"))]
            assert committed == [16, 16]  # Spark tells of a batch when it plans the next one


def test_without_limits_a_stream_reads_each_message_once_over_restarts(
    spark: SparkSession, start: Callable[[DataStreamWriter], StreamingQuery], tmp_path: Path
) -> None:
    batches: dict[int, list[int]] = {}
    dies = [True]

    def sink(frame: DataFrame, batch: int) -> None:
        rows = sorted(int(row.body) for row in frame.collect())
        assert batches.setdefault(batch, rows) == rows, "a batch that runs again has the same rows"
        if dies:
            dies.clear()
            raise RuntimeError("the sink died")

    with wire_broker(tmp_path / "broker") as broker:
        frame = stream(spark, broker, group="spark-orders")
        send_numbers(broker.namesrv, range(30))
        with pytest.raises(PySparkException, match="the sink died"):
            start(frame.writeStream.foreachBatch(sink))
        for end in (40, 50):
            send_numbers(broker.namesrv, range(end - 10, end))
            start(frame.writeStream.foreachBatch(sink))
            assert sorted(number for rows in batches.values() for number in rows) == list(range(end))


def test_a_stream_into_a_topic_repeats_a_batch_with_the_same_unique_keys(
    spark: SparkSession, start: Callable[[DataStreamWriter], StreamingQuery], tmp_path: Path
) -> None:
    with wire_broker(tmp_path / "broker") as broker:
        send_numbers(broker.namesrv, range(30))
        rows = stream(spark, broker).select("topic", "body")
        sink = {"namesrv": broker.namesrv, "topic": "refunds"}
        for _ in range(2):  # once more, as after a kill before Spark knew that the batch was sent
            start(rows.writeStream.format("reput").options(**sink))
            for commit in (tmp_path / "checkpoint" / "commits").iterdir():
                commit.unlink()
        found = read(spark, broker, ["body", "unique_key"], subscribe="refunds")
        assert found.count() == 60
        assert numbers(found.dropDuplicates(["unique_key"])) == list(range(30))


def test_a_frame_goes_into_topics(spark: SparkSession, tmp_path: Path) -> None:
    with wire_broker(tmp_path / "broker") as broker:
        frame = spark.range(100).selectExpr("'orders' AS topic", "CAST(id AS string) AS body", "'t' AS tags")
        frame.write.format("reput").option("namesrv", broker.namesrv).mode("append").save()
        found = read(spark, broker, ["body", "tags", "unique_key"])
        assert numbers(found) == list(range(100))
        assert found.select("unique_key").distinct().count() == 100
        with pytest.raises(PySparkException, match="a topic is only appended to"):
            frame.write.format("reput").option("namesrv", broker.namesrv).mode("overwrite").save()
