"""Spark Connect: the same source and jobs through a client that has neither a JVM nor RDDs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import reput
import reput.spark
from reput.errors import ReputError
from reput.jobs.rebuild.job import RebuildResult, rebuild
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import Statistics, statistics
from reput.kernels.records.record_batch import SCHEMA
from reput.spark.runner import SparkRunner
from tests.support.cluster.driver import Driver, driver
from tests.support.cluster.dying_jobs import COPIED
from tests.support.trees import tree
from tests.support.wire import MESSAGES, orders_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPLIT_BYTES = 1 << 20


SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


def connect() -> SparkSession:
    """A client of a server in the same process, which has a port that was free."""
    from pyspark.sql import SparkSession

    plugin = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
    server: Any = reput.spark.session("local[2]", **plugin, **{"spark.connect.grpc.binding.port": "0"})
    port = getattr(getattr(server._jvm, SERVICE), "MODULE$").localPort()
    return SparkSession.builder.remote(f"sc://localhost:{port}").create()


@pytest.fixture(scope="module")
def program(executor_python: Path) -> Iterator[Driver]:
    """A client and its server, whose workers have the wheel."""
    with driver({"PYSPARK_PYTHON": str(executor_python)}, connect) as program:
        yield program


def module_of_session(spark: SparkSession) -> str:
    return type(spark).__module__


def read(spark: SparkSession, store: str) -> pa.Table:
    return reput.spark.read_log(spark, store, split_bytes=SPLIT_BYTES).toArrow()


def registered_and_asked(spark: SparkSession, *statements: str) -> list[tuple[Any, ...]]:
    reput.spark.register(spark)
    return [tuple(row) for row in [spark.sql(statement).collect() for statement in statements][-1]]


def explained(spark: SparkSession, store: str) -> str:
    """Of a query with two reads."""
    one_topic, all_of_it = reput.spark.read_log(spark, store, topics=["none"]), spark.read.format("reput").load(store)
    return reput.spark.explain(one_topic.union(all_of_it).where("queue_id = 5").select("topic"))


def why_not_explained(spark: SparkSession) -> str:
    with pytest.raises(ReputError) as caught:
        reput.spark.explain(spark.range(3))
    return str(caught.value)


def rebuilt(spark: SparkSession, store: str, output: str) -> RebuildResult:
    return rebuild(store, output, runner=SparkRunner(spark), split_bytes=SPLIT_BYTES)


def counted(spark: SparkSession, store: str) -> Statistics:
    return statistics(store, runner=SparkRunner(spark), split_bytes=SPLIT_BYTES)


def over_the_wire(spark: SparkSession, namesrv: str, checkpoint: str) -> list[int]:
    """Messages of orders, those that a write has sent, and those that a stream has sent on."""

    def rows_of(topic: str) -> Any:
        return spark.read.format("reput").option("namesrv", namesrv).option("subscribe", topic).load()

    orders = rows_of("orders")
    orders.select("body").write.format("reput").options(namesrv=namesrv, topic="copies").mode("append").save()
    stream = spark.readStream.format("reput").options(namesrv=namesrv, subscribe="copies").load().select("body")
    query = stream.writeStream.format("reput").options(namesrv=namesrv, topic="archive", checkpointLocation=checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return [rows_of(topic).count() for topic in ("orders", "copies", "archive")]


def test_the_session_is_one_of_spark_connect(program: Driver) -> None:
    assert program.run(module_of_session) == "pyspark.sql.connect.session"


def test_the_source_is_found_and_gives_the_rows_of_read_log(program: Driver, store: Path) -> None:
    assert program.run(read, str(store)).cast(SCHEMA) == reput.read_log(store).read_all()


def test_topics_of_brokers_are_read_written_and_streamed(program: Driver, tmp_path: Path) -> None:
    with orders_broker(tmp_path / "wire") as broker:
        assert program.run(over_the_wire, broker.namesrv, str(tmp_path / "checkpoint")) == [MESSAGES] * 3


def test_sql_reads_a_store_through_a_registered_source(program: Driver, store: Path) -> None:
    view = f"CREATE TEMPORARY VIEW messages (topic STRING) USING reput OPTIONS (path '{store}')"
    query = "SELECT topic, count(*) FROM messages GROUP BY topic ORDER BY topic"
    rows = program.run(registered_and_asked, view, query)
    assert rows == [("topic-0", 20_000), ("topic-1", 20_000), ("topic-2", 20_000)]


def test_explain_tells_what_each_read_of_a_query_leaves_out(program: Driver, store: Path) -> None:
    lines = program.run(explained, str(store)).splitlines()
    assert lines[0].startswith(f"{store}: reads 0 of ")
    assert lines[1] == "  consume queues: 0 records, and 0 bytes that they do not cover"
    assert lines[2].startswith(f"{store}: reads 1")
    assert lines[3] == "  nothing to leave out"
    assert "this DataFrame reads no store" in program.run(why_not_explained)


def test_a_rebuild_writes_the_same_files(
    program: Driver, store: Path, rebuilt_here: dict[str, str], tmp_path: Path
) -> None:
    program.run(rebuilt, str(store), str(tmp_path / "rebuilt"))
    assert tree(tmp_path / "rebuilt") == rebuilt_here != {}


def test_statistics_are_the_same(program: Driver, store: Path) -> None:
    assert program.run(counted, str(store)).table == statistics(store, runner=LocalRunner(2)).table


def copied(spark: SparkSession, store: str, output: str) -> None:
    frame = reput.spark.read_log(spark, store, COPIED, split_bytes=SPLIT_BYTES)
    for _ in range(2):
        frame.write.format("reput").mode("append").options(sinkId="copy", batchId=1).save(output)


def test_a_batch_is_written_to_another_store_once(program: Driver, store: Path, tmp_path: Path) -> None:
    program.run(copied, str(store), str(tmp_path / "copy"))
    assert reput.read_log(tmp_path / "copy", COPIED).read_all() == reput.read_log(store, COPIED).read_all()


def streamed(spark: SparkSession, store: str, output: str, checkpoint: str) -> None:
    query = (
        reput.spark.read_log_stream(spark, store, COPIED, max_bytes_per_trigger=3 << 20)
        .writeStream.format("reput")
        .options(sinkId="copy", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start(output)
    )
    query.awaitTermination()


def test_a_stream_is_written_to_another_store(program: Driver, store: Path, tmp_path: Path) -> None:
    program.run(streamed, str(store), str(tmp_path / "copy"), str(tmp_path / "checkpoint"))
    assert reput.read_log(tmp_path / "copy", COPIED).read_all() == reput.read_log(store, COPIED).read_all()
