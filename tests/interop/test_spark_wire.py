"""Spark's tasks with RocketMQ's brokers: what they pull and send, and a query over all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reput import Broker
from reput.remoting.queue_tables import QueueKey
from reput.spark.session import session
from reput.spark.source import register
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from reput.spark.wire.reader import WireReader
from reput.spark.wire.row_keys import RowKeys
from reput.spark.wire.sender import Sender
from reput.spark.wire.write_options import write_options
from tests.support.broker import make_topic
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

FILE_SIZE = 16 << 20
ROWS = 500


@pytest.fixture
def namesrv(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A broker of RocketMQ's with the topic orders in 4 queues, and nothing in it."""
    keys: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with Broker.start(tmp_path, mapped_file_size_commit_log=FILE_SIZE, **keys) as broker:
        make_topic(broker.address, "orders", 4)
    with Apache(request.param) as java:
        yield java.serve(tmp_path, log_file_size=FILE_SIZE, topic="orders", queues=4)


def rows_of(namesrv: str, **more: str) -> list[dict[str, Any]]:
    options = read_options({"namesrv": namesrv, "subscribe": "orders"} | more)
    reader = WireReader(options, ("body", "tags", "unique_key", "queue_id", "store_timestamp"))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def wait_until_stored(cluster: Cluster) -> None:
    """Return when the brokers' queues have all rows: they dispatch after they have answered."""
    while sum(map(cluster.latest, cluster.queues(["orders"]))) < ROWS:
        pass


@pytest.mark.parametrize("namesrv", ["4.9.7", "5.3.3", "5.5.0"], indirect=True)
def test_rows_that_were_sent_are_read_by_offsets_and_times(namesrv: str) -> None:
    options = write_options({"namesrv": namesrv})
    cluster = Cluster(options.access)
    sender = Sender(cluster, options, RowKeys("query", 0, 0))
    numbers = list(range(ROWS))
    bodies = [b"%d" % number for number in numbers]
    keys = [f"k-{number % 7}" for number in numbers]
    sender.put(
        pa.RecordBatch.from_pydict({"topic": ["orders"] * ROWS, "body": bodies, "tags": keys, "sharding_key": keys})
    )
    sender.flush()
    wait_until_stored(cluster)
    rows = rows_of(namesrv)
    assert sorted(int(row["body"]) for row in rows) == numbers
    assert {row["unique_key"] for row in rows} == {RowKeys("query", 0, 0).key(number) for number in numbers}
    queues: dict[str, set[int]] = {}
    for row in rows:
        queues.setdefault(row["tags"], set()).add(row["queue_id"])
    assert all(len(one) == 1 for one in queues.values())
    assert len(rows_of(namesrv, maxRecordsPerPartition="50")) == ROWS
    last = max(int(row["store_timestamp"].timestamp() * 1000 + 0.5) for row in rows)
    assert len(rows_of(namesrv, endingTimestamp=str(last + 1))) == ROWS
    assert rows_of(namesrv, startingTimestamp=str(last + 1)) == []
    queue = next(QueueKey("orders", one.broker_name, 0) for one in cluster.queues(["orders"]))
    cluster.commit("spark-orders", {queue: cluster.earliest(queue)})
    cluster.close()


@pytest.mark.spark
@pytest.mark.parametrize("namesrv", ["5.3.3"], indirect=True)
def test_a_stream_goes_through_a_broker(namesrv: str, tmp_path: Path) -> None:
    spark, folder = session("local[2]", "reput interop"), tmp_path / "spark"  # the broker's store is beside it
    try:
        register(spark)
        at = {"namesrv": namesrv}
        frame = spark.range(ROWS).selectExpr("'orders' AS topic", "CAST(id AS string) AS body")
        frame.write.format("reput").options(**at).mode("append").save()
        wait_until_stored(Cluster(read_options(at | {"subscribe": "orders"}).access))
        live = spark.readStream.format("reput").options(**at, subscribe="orders", maxOffsetsPerTrigger="200").load()
        writer = live.select("body").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "rows"))
        query.awaitTermination()
        found = sorted(int(row.body) for row in spark.read.parquet(str(folder / "rows")).collect())
        assert found == list(range(ROWS))
    finally:
        spark.stop()
