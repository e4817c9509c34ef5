"""`statistics_stream`: statistics of a growing log by windows of time, as a Structured Streaming query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from reput.errors import ConfigError
from reput.jobs.statistics.job import Dimension, grouping_of
from reput.jobs.statistics.latency import QUANTILES
from reput.spark.arguments import check_arguments
from reput.spark.log_stream import read_log_stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Accuracy of Spark's `percentile_approx`: the rank errs by at most one in this number of messages of a group.
_ACCURACY = 10_000


def statistics_stream(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    by: Sequence[Dimension] = ("topic", "queue", "tag"),
    bucket: str = "1m",
    time_of: Literal["store", "born"] = "store",
    latency: bool = False,
    watermark: str = "10 minutes",
    **options: Any,
) -> DataFrame:
    """Count the groups of `reput.jobs.statistics.job.statistics` as a streaming DataFrame, a row a group and window.

    In output mode `append` each window is written once, when no later message can belong to it: when a message comes
    whose time is after the window's end by more than the watermark. In mode `update` a window is written again in each
    batch that changes it. With a checkpoint a query that was stopped, or killed, continues, and no message is counted
    twice.

    It has the columns of `Statistics.table` without body_bytes, which would need the bodies. Latencies are by Spark's
    `percentile_approx`: the rank of each errs by at most a 10 000th of the group's messages.

    Args:
        path: as for `read_log_stream`.
        by, bucket, time_of, latency: as for `statistics`; a stream needs a bucket.
        watermark: greatest lag of a message after later ones, by the time that makes the bucket, as Spark writes it
            (`10 minutes`). Messages with a greater lag are not counted. Store times only grow, unless a clock is set
            back; born times are the producers'.
        options: further arguments of `read_log_stream`.

    Raises ConfigError as `statistics`.
    """
    from pyspark.sql import functions as f

    check_arguments(**locals())
    if bucket is None:
        raise ConfigError("bucket: a stream is counted by windows of time, so it needs a bucket: 1m, 1h, 1d")
    grouping = grouping_of(by, bucket, time_of, latency=latency)
    time = grouping.time_column
    needed = {"keys" if name == "key" else name for name in grouping.columns} | {time, "store_size"}
    if latency:
        needed |= {"born_timestamp", "store_timestamp"}
    rows = read_log_stream(spark, path, sorted(needed), **options).withWatermark(time, watermark)
    groups = [f.window(time, f"{grouping.bucket_ms} milliseconds").alias("window"), *map(_column, grouping.columns)]
    sums = [f.count(f.lit(1)).alias("messages"), f.sum("store_size").alias("bytes")]
    if latency:
        milliseconds = f.unix_millis("store_timestamp") - f.unix_millis("born_timestamp")
        shares = list(QUANTILES.values())[:-1]
        sums += [f.percentile_approx(milliseconds, shares, _ACCURACY).alias("parts"), f.max(milliseconds).alias("most")]
    if "key" in grouping.columns:  # Spark allows no generator in a grouping
        keys = f.explode_outer(f.array_distinct("keys")).alias("key")
        rows = rows.select("*", keys)
    counted = rows.groupBy(*groups).agg(*sums)
    shown: list[Column | str] = [*grouping.columns, f.col("window.start").alias(time), "messages", "bytes"]
    if latency:
        *names, largest = QUANTILES
        shown += [f.col("parts")[number].alias(name) for number, name in enumerate(names)]
        shown.append(f.col("most").alias(largest))
    return counted.select(*shown)


def _column(name: str) -> Column:
    from pyspark.sql import functions as f

    if name == "born_host":  # without the port
        return f.regexp_replace(name, ":[^:]*$", "").alias(name)
    return f.col(name)
