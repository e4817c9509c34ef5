"""A DataFrame into a store through Spark's sink, on two cores: on the disk, and in queues and index.

In turns with the same rows into a writer that drops them: no sink in Python can be faster than Spark hands it its rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import reput.spark
from lab.bench import messages
from lab.bench.figures import Figure, Goal, lower
from lab.bench.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MASTER = "local[2]"
#: Spark's batches of Arrow by their rows alone (docs/spark-sink.md, "Speed"): right for messages of this size.
_BY_ROWS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
}
_PREFIX = "7F0000010001AABBCCDD0000"


def measure(setting: Setting) -> list[Figure]:
    """Messages that Spark makes by itself; the first write of the session apart."""
    goal = Goal(least=500_000)
    made = Figure("sink of messages that Spark makes", "msg/s", goal=goal)
    made.note = "2 cores; written twice: staged into the page cache, and appended and synced"
    by_rows = Figure("sink of messages that Spark makes, batches by rows", "msg/s", goal=goal)
    by_rows.note = "the same, with spark.sql.execution.arrow.maxBytesPerBatch=2147483647"
    kinds: list[tuple[Figure, dict[str, str], list[float]]] = [(made, {}, []), (by_rows, _BY_ROWS, [])]
    spark = reput.spark.session(_MASTER)
    try:
        reput.spark.register(spark)
        spark.dataSource.register(_dropping())
        count = setting.count(1_000_000)
        frame = _made(spark, count)
        _write(setting, _made(spark, count // 10))
        for _ in range(setting.repeats):
            for figure, settings, dropped in kinds:
                with _set(spark, settings):
                    figure.values.append(count / _write(setting, frame))
                    dropped.append(count / _write(setting, frame, "drop"))
    finally:
        spark.stop()
    for figure, _, dropped in kinds:
        jvm = "the JVM: the same rows into a writer that drops them", median(dropped)
        figure.limit = lower(jvm, setting.records_limit("durable sequential write"))
    return [made, by_rows]


@contextmanager
def _set(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """The session with other settings for a while."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old)


def _dropping() -> type[DataSource]:
    """The format `drop`; made by a function, so that workers get it by value."""

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            from reput.spark.daemon import freeze_worker

            for _ in iterator:
                pass
            freeze_worker()
            return WriterCommitMessage()

    class Drop(DataSource):
        @classmethod
        def name(cls) -> str:
            return "drop"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            return Writer()

    return Drop


def _made(spark: SparkSession, count: int) -> DataFrame:
    """The messages of `lab.bench.messages`, but for one body in all."""
    number = F.lpad(F.col("id").cast("string"), 8, "0")
    return spark.range(0, count, 1, 2).select(
        F.lit(messages.TOPIC).alias("topic"),
        (F.col("id") % messages.QUEUES).cast("int").alias("queue_id"),
        F.lit(messages.body(0)).alias("body"),
        F.element_at(F.array(*map(F.lit, messages.TAGS)), (F.col("id") % 4 + 1).cast("int")).alias("tags"),
        F.array(F.concat(F.lit("order-"), number)).alias("keys"),
        F.concat(F.lit(_PREFIX), number).alias("unique_key"),
        F.create_map(F.lit("region"), F.lit("eu"), F.lit("tenant"), F.lit("acme-trading")).alias("properties"),
    )


def _write(setting: Setting, frame: DataFrame, form: str = "reput") -> float:
    """Seconds of one write into a fresh store."""
    path = setting.folder("sink")
    start = time.perf_counter()
    frame.write.format(form).mode("append").save(path)
    seconds = time.perf_counter() - start
    setting.remove(path)
    return seconds
