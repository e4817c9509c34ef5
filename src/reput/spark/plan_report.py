"""`explain`: report of the plan for the reads of a DataFrame, which its partitions carry."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reput.errors import ReputError
from reput.spark.arguments import check_arguments
from reput.spark.reader import LogPartition, StoreReport
from reput.spark.runner import SparkRunner
from reput.spark.schema import spark_schema
from reput.spark.source import ReputDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CONNECT_SOURCE = "spark.connect.Read.DataSource"


def explain(frame: DataFrame) -> str:
    """Explain what a DataFrame reads of its stores, and why ranges were left out: a line for each store and reason.

    Spark plans the query, but does not run it. Each read of the query has its own lines. Spark Connect does not show
    its plan: there a task on the server plans the read anew, for the log as it is now, and without the filters of
    `pushFilters`.

    Raises ReputError for a DataFrame that reads no store; on Spark Connect also for a DataFrame of a view.
    """
    check_arguments(frame=frame)
    lines = []
    for report in reports(frame):
        share = 100 * report.read_bytes / max(report.log_bytes, 1)
        lines.append(f"{report.path}: reads {report.read_bytes} of {report.log_bytes} bytes ({share:.1f} %)")
        lines += [f"  {reason}" for reason in report.reasons or ("nothing to leave out",)]
    return "\n".join(lines)


def reports(frame: DataFrame) -> list[StoreReport]:
    """Reports for each store of each read of a query. Raises ReputError if there are none."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return _planned_by_tasks(frame)
    all_reports = [one for partition in _partitions(plan.queryExecution().sparkPlan()) for one in partition.report]
    if not all_reports:
        raise ReputError("explain: this DataFrame reads no store")
    return all_reports


def _partitions(plan: object) -> Iterator[LogPartition]:
    """Our partitions in a physical plan, each read of the query once."""
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


def _planned_by_tasks(frame: DataFrame) -> list[StoreReport]:
    """Reports for a DataFrame of Spark Connect: its client knows the reads, but no plan, so tasks plan them anew."""
    request = frame._plan.to_proto(frame.sparkSession.client)  # type: ignore[operator]
    reads = list(_reads(request))
    if not reads:
        raise ReputError(
            "explain: this DataFrame reads no store by load or read_log; Spark Connect does not show what a view reads"
        )
    planned = SparkRunner(frame.sparkSession).run(_planned, reads, description="explain")
    return [report for reports_of_read in planned for report in reports_of_read]


def _reads(message: Any) -> Iterator[dict[str, str]]:
    """Options of each read of our format in a message of Spark Connect (protobuf)."""
    if message.DESCRIPTOR.full_name == _CONNECT_SOURCE:
        if message.format.lower() == ReputDataSource.name():
            paths = {"paths": json.dumps(list(message.paths))} if message.paths else {}
            yield {**message.options, **paths}
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for below in value if field.is_repeated else [value]:
                yield from _reads(below)


def _planned(options: dict[str, str]) -> tuple[StoreReport, ...]:
    """Task: plan a read as the server's planner does, without filters of the query."""
    first = ReputDataSource(options).reader(spark_schema()).partitions()[0]
    assert isinstance(first, LogPartition)
    return first.report
