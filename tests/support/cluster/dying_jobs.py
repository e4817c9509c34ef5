"""Jobs in which a process of the cluster dies once; what `Driver.run` is given.

A death is the description of a phase, a point of `DyingRunner`, the path of a marker and a victim.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa

import reput.spark
from reput.jobs.dispatch import plan
from reput.jobs.rebuild.job import RebuildResult, rebuild
from reput.jobs.statistics.job import Statistics, statistics
from reput.spark import runner
from reput.spark.dispatch import DispatchResult, dispatch
from reput.spark.runner import SparkRunner
from tests.support.cluster.deaths import COMMITTER, DyingRunner, dying_reader, source_with_a_dying_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCAN, FINISH, WRITE = "read the log", "build the index, sync", "write queues and index"
SPLIT_BYTES = 1 << 20
#: The columns that the sink takes as the source gives them.
COPIED = ["topic", "queue_id", "tags", "keys", "body"]

Death = tuple[str, str, str, str]


def read_with_a_death(spark: SparkSession, store: str, marker: str, victim: str) -> pa.Table:
    """All rows of a store, in log order; the death comes between two batches."""
    frame = reput.spark.read_log(spark, store, split_bytes=4 << 20)
    return frame.mapInArrow(dying_reader(marker, victim), frame.schema).toArrow()


def rebuild_with_a_death(spark: SparkSession, store: str, output: str, death: Death) -> RebuildResult:
    return rebuild(store, output, runner=DyingRunner(SparkRunner(spark), *death), split_bytes=SPLIT_BYTES)


def statistics_with_a_death(spark: SparkSession, store: str, death: Death) -> Statistics:
    return statistics(store, runner=DyingRunner(SparkRunner(spark), *death), split_bytes=SPLIT_BYTES)


def dispatch_with_a_death(spark: SparkSession, store: str, output: str, death: Death) -> DispatchResult:
    """Dispatch a store by tasks, in batches of a log file or two."""
    sizes = {"LEAST_BYTES": SPLIT_BYTES, "MOST_BYTES": 8 << 20, "SPLIT_BYTES": SPLIT_BYTES}
    with patch.multiple(plan, **sizes), patch.object(runner, "SparkRunner", partial(_dying_runner, death)):
        return dispatch(store, output, session=spark, once=True)


def _dying_runner(death: Death, spark: SparkSession) -> DyingRunner:
    return DyingRunner(SparkRunner(spark), *death)


def copy_with_a_death(spark: SparkSession, store: str, output: str, marker: str, victim: str) -> None:
    """Write the messages of a store into another one; the death comes when tasks have staged some of them."""
    frame = reput.spark.read_log(spark, store, COPIED, split_bytes=4 << 20)
    frame.mapInArrow(dying_reader(marker, victim), frame.schema).write.format("reput").mode("append").save(output)


def stream_with_a_death(spark: SparkSession, store: str, output: str, marker: str, victim: str) -> None:
    """The same by a stream, in several batches; its checkpoint lies beside the marker."""
    frame = reput.spark.read_log_stream(spark, store, COPIED, max_bytes_per_trigger=3 << 20)
    _write_stream(frame.mapInArrow(dying_reader(marker, victim), frame.schema), output, f"{marker}-checkpoint")


def copy_with_a_dying_commit(spark: SparkSession, store: str, output: str, marker: str, point: str) -> None:
    """Write the messages of a store into another one, as batch 7; driver and commit die, unless the marker is there."""
    spark.dataSource.register(source_with_a_dying_commit((point, marker, COMMITTER, os.getpid()), 7))
    frame = reput.spark.read_log(spark, store, COPIED, split_bytes=4 << 20)
    frame.write.format("reput").mode("append").options(sinkId="once", batchId=7).save(output)


def stream_with_a_dying_commit(spark: SparkSession, store: str, output: str, marker: str, point: str) -> None:
    """The same by a stream, whose second batch it is that dies."""
    spark.dataSource.register(source_with_a_dying_commit((point, marker, COMMITTER, os.getpid()), 1))
    frame = reput.spark.read_log_stream(spark, store, COPIED, max_bytes_per_trigger=3 << 20)
    _write_stream(frame, output, f"{marker}-checkpoint")


def _write_stream(frame: DataFrame, output: str, checkpoint: str) -> None:
    """Everything that is there."""
    query = (
        frame.writeStream.format("reput")
        .options(sinkId="copy", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start(output)
    )
    query.awaitTermination()
