"""What the planner has decided for the reads of a DataFrame: its partitions carry it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reput.errors import ReputError
from reput.spark.reader import LogPartition, StoreReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def reports(frame: DataFrame) -> list[StoreReport]:
    """A report for each store of each read of a query. Raises ReputError where there is none."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        raise ReputError("explain: Spark Connect does not show a plan; its server logs what was left out")
    found = [report for partition in _partitions(plan.queryExecution().sparkPlan()) for report in partition.report]
    if not found:
        raise ReputError("explain: this DataFrame reads no store")
    return found


def _partitions(plan: object) -> Iterator[LogPartition]:
    """Our partitions below a physical plan, each read of the query once."""
    leaves = plan.collectLeaves()  # type: ignore[attr-defined]
    for i in range(leaves.length()):
        leaf = leaves.apply(i)
        if leaf.getClass().getSimpleName() != "BatchScanExec":
            continue
        partitions = leaf.inputPartitions()
        for j in range(partitions.length()):
            partition = partitions.apply(j)
            if partition.getClass().getSimpleName() == "PythonInputPartition":
                value = pickle.loads(bytes(partition.pickedPartition()))
                if isinstance(value, LogPartition):
                    yield value
