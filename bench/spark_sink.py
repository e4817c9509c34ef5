"""A DataFrame into a store through Spark's sink, on two cores: on the disk, and in queues and index."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import reput.spark
from bench import messages
from bench.figures import Figure, Goal
from bench.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MASTER = "local[2]"
_PREFIX = "7F0000010001AABBCCDD0000"


def measure(setting: Setting) -> list[Figure]:
    """Messages that Spark makes by itself, and a store copied through Spark; the first write of the session apart."""
    limit = setting.records_limit("durable sequential write")
    made = Figure("sink of messages that Spark makes", "msg/s", goal=Goal(least=500_000), limit=limit)
    made.note = "2 cores; written twice: staged into the page cache, and appended and synced"
    copied = Figure("sink of messages that the source reads", "msg/s", limit=limit)
    copied.note = "a log read by Spark and written again, all columns"
    spark = reput.spark.session(_MASTER)
    try:
        reput.spark.register(spark)
        count = setting.count(1_000_000)
        _write(setting, _made(spark, count // 10))
        for _ in range(setting.repeats):
            made.values.append(count / _write(setting, _made(spark, count)))
            stock = setting.stock()
            copied.values.append(setting.stock_count / _write(setting, reput.spark.read_log(spark, stock)))
    finally:
        spark.stop()
    return [made, copied]


def _made(spark: SparkSession, count: int) -> DataFrame:
    """The messages of `bench.messages`, but for one body in all."""
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


def _write(setting: Setting, frame: DataFrame) -> float:
    """Seconds of one write into a fresh store."""
    path = setting.folder("sink")
    start = time.perf_counter()
    frame.write.format("reput").mode("append").save(path)
    seconds = time.perf_counter() - start
    setting.remove(path)
    return seconds
