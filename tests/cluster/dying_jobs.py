"""Jobs in which a process of the cluster dies once; what `Driver.run` is given.

A death is the description of a phase, a point of `DyingRunner`, the path of a marker and a victim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import reput.spark
from reput.jobs.rebuild import RebuildResult, rebuild
from reput.jobs.statistics import Statistics, statistics
from reput.spark.runner import SparkRunner
from tests.cluster.deaths import DyingRunner, dying_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCAN, FINISH = "read the log", "build the index, sync"
SPLIT_BYTES = 1 << 20

Death = tuple[str, str, str, str]


def read_with_a_death(spark: SparkSession, store: str, marker: str, victim: str) -> pa.Table:
    """All rows of a store, in log order; the death comes between two batches."""
    frame = reput.spark.read_log(spark, store, split_bytes=4 << 20)
    return frame.mapInArrow(dying_reader(marker, victim), frame.schema).toArrow()


def rebuild_with_a_death(spark: SparkSession, store: str, output: str, death: Death) -> RebuildResult:
    return rebuild(store, output, runner=DyingRunner(SparkRunner(spark), *death), split_bytes=SPLIT_BYTES)


def statistics_with_a_death(spark: SparkSession, store: str, death: Death) -> Statistics:
    return statistics(store, runner=DyingRunner(SparkRunner(spark), *death), split_bytes=SPLIT_BYTES)
