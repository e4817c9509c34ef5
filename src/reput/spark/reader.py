"""Batch reader of commit logs: the planner plans each store, and each task reads its parts of the plans.

The rows of a task are used before the results of other tasks are known, so a task cannot search its first record by the
bytes: `reput.log.plans.plan` cuts only at proven records. It also fixes the log's end: the rows of a DataFrame are the
same in each of its queries, even while the store is written.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from reput.errors import ConfigError, ReputError, StoreError
from reput.files import DISK
from reput.jobs.runner import LocalRunner
from reput.log.directory import LogFile, StoreDirectory
from reput.log.plans.header_walk import Walk
from reput.log.plans.plan import MIN_TASK_BYTES, Plan, PlanOptions, plan_read
from reput.log.plans.plan_parts import Part, part_before, part_groups, read_part
from reput.log.plans.pruning import wanted_by
from reput.log.resume_points import TailLimit
from reput.log.scan import OnDamage
from reput.log.selection import Selection, make_selection
from reput.log.stores import find_stores, store_names
from reput.log.tail import LogTail
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.spark.compat import Filter
from reput.spark.daemon import freeze_worker
from reput.spark.filters import narrowed
from reput.spark.options import ReadOptions
from reput.spark.short_errors import without_traceback

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoreReport:
    """Report on one store for `reput.spark.explain`: bytes of the log, bytes that are read, and the reasons."""

    path: str
    log_bytes: int
    read_bytes: int
    reasons: tuple[str, ...]


class LogPartition(InputPartition):
    """Parts of one task, each with the number of its store. The partition of the first task has the report."""

    def __init__(self, parts: Sequence[tuple[int, Part]], report: tuple[StoreReport, ...] = ()) -> None:
        super().__init__(None)
        self.parts = tuple(parts)
        self.report = report


class LogReader(DataSourceReader):
    """Reader of some columns of commit logs. Spark makes one a query, plans by it, and pickles it for the tasks.

    Args:
        ends: of `log_ends`, where a DataFrame is planned again and again; None: the logs end where they end.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], ends: Mapping[str, int] | None = None) -> None:
        self._options = options
        self._ends = ends
        self._filters: tuple[Filter, ...] = ()
        self._stores = find_stores(options.path, commit_log_path=options.commit_log_path)
        if options.store is not None and len(self._stores) > 1:
            raise ConfigError(f"option store: {options.store!r} cannot name all of {len(self._stores)} stores")
        self._selections = [
            make_selection(
                columns=columns,
                topics=options.topics,
                keys=options.keys,
                begin=options.begin,
                end=options.end,
                raw_body=options.raw_body,
                store=name if options.store is None else options.store,
                mode=options.mode,
            )
            for name in store_names(self._stores)
        ]
        warn_of_unknown_topics(options.topics, *self._stores)
        for store in self._stores:
            if options.statistics is not None:
                store.check_output(options.statistics)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Plan the tasks, store by store in log order. Raises CorruptRecordError for damage where the planner walks."""
        plans = [self._plan(*pair) for pair in zip(self._stores, self._selections, strict=True)]
        report = tuple(
            StoreReport(store.path, plan.log_bytes, plan.read_bytes, plan.reasons)
            for store, plan in zip(self._stores, plans, strict=True)
        )
        total = sum(plan.read_bytes for plan in plans)
        size = self._options.split_bytes or max(-(-total // _processors()), MIN_TASK_BYTES)
        parts = [(number, part) for number, plan in enumerate(plans) for part in plan.parts]
        first, *others = part_groups(parts, size) or [[]]
        freeze_worker()
        return [LogPartition(first, report), *map(LogPartition, others)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the wanted rows of one task. Raises CorruptRecordError for damage, StoreError for a deleted file."""
        assert isinstance(partition, LogPartition), "made by partitions()"
        try:
            for number, part in partition.parts:
                yield from self._read(part, self._selections[number])
        except ReputError as error:
            raise error.with_traceback(None) from None  # as `without_traceback`
        freeze_worker()

    def _read(self, part: Part, selection: Selection) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_part(part, selection, DISK)
        except StoreError as error:
            if DISK.exists(part.file.path):
                raise
            raise StoreError(
                f"{error}: load it again, with option begin after the records that retention is about to delete"
            ) from None

    def _plan(self, store: StoreDirectory, selection: Selection) -> Plan:
        options = self._options
        plan_options = PlanOptions(
            processors=_processors(),
            split_bytes=options.split_bytes,
            flushed_ms=_flushed_ms(store, options),
            statistics=options.statistics,
            clock_margin_ms=options.clock_margin_ms,
            prune=options.prune,
        )
        wanted = narrowed(wanted_by(selection), self._filters)
        plan = plan_read(store, selection, plan_options, wanted, _walk_all)
        if self._ends is None:
            return plan
        end = self._ends.get(store.path, 0)
        return replace(plan, parts=tuple(cut for part in plan.parts for cut in part_before(part, end)))


class FilteringLogReader(LogReader):
    """LogReader that prunes by the query's filters, too.

    Spark 4.3 plans all queries on one loaded DataFrame by the filters of one of them, and the other queries miss rows.
    So this reader is used only if the user promises that there is one query (option `pushFilters`).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for pruning, and return all of them: Spark applies them, too."""
        self._filters = tuple(filters)
        return filters


def log_ends(options: ReadOptions) -> dict[str, int]:
    """Commit log offsets at which the stores' logs end now, by the path of the store."""
    ends = {}
    for store in find_stores(options.path, commit_log_path=options.commit_log_path):
        tail, newest_ms = LogTail(store, on_damage=OnDamage.SKIP), _flushed_ms(store, options)
        end = tail.latest(newest_ms)
        while (following := tail.advance(end, TailLimit(newest_ms=newest_ms))) is not end:  # behind damage
            end = following
        ends[store.path] = end.offset
    return ends


def _flushed_ms(store: StoreDirectory, options: ReadOptions) -> int | None:
    """With `until` flushed: store time (ms) up to which the log is on the disk; else None."""
    if options.until != "flushed":
        return None
    checkpoint = store.checkpoint()
    return checkpoint.physic_msg_timestamp if checkpoint else 0


def _walk_all(walk: Callable[[LogFile], Walk], log_files: Sequence[LogFile]) -> list[Walk]:
    return LocalRunner().run(walk, log_files, description="plan")


@functools.cache
def _processors() -> int:
    return len(os.sched_getaffinity(0))
