"""`diff`: compare two stores message by message, by commit log offset or by queue offset: missing, extra, different.

Each task sums up hashes of its split by buckets of messages. Only messages of buckets whose sums differ are compared
one by one, and only different messages are read again, to find the fields that differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from reput.errors import ConfigError, StoreFormatError
from reput.files import DISK
from reput.jobs.arguments import check_arguments
from reput.jobs.diff.fields import DifferingFields
from reput.jobs.diff.match import DIFFERENT, EXTRA, MISSING, SCHEMA, Match, match_rows
from reput.jobs.diff.rows import (
    Buckets,
    BucketSet,
    By,
    QueueItem,
    QueueOutcome,
    RowOutcome,
    RowTarget,
    WantedBuckets,
    add_up,
    has_properties_as_map,
    read_queue_rows,
    read_split_rows,
)
from reput.jobs.job_folder import JobFolder, Option
from reput.jobs.log_bounds import bounded_splits, fixed_log_end, proven_split
from reput.jobs.resuming import ResumingRunner
from reput.jobs.runner import Runner
from reput.jobs.split_tasks import run_over_splits
from reput.kernels.records.content_hash import IGNORABLE, ignored_mask
from reput.log.all_queues import all_queues
from reput.log.damages import Damages, joined
from reput.log.directory import LogFile, StoreDirectory
from reput.progress import Progress

SPLIT_BYTES = 64 << 20
#: Limit of splits: the merge holds the results of all.
_MOST_SPLITS = 2048
#: Messages of both stores that are compared one by one in a round.
_ROUND_ROWS = 2_000_000
MAX_ROWS = 10_000
#: Fields that depend on the commit log offset; they may differ if messages are compared by queues.
LOCATION_FIELDS = ("commit_log_offset", "prepared_transaction_offset", "property_crc")


@dataclass(frozen=True, slots=True)
class DiffResult:
    """Result of a comparison.

    Attributes:
        table: the first differences, in the order of the log, or by topic, queue id and queue offset: kind (`missing`:
            in the left store only, `extra`: in the right store only, `different`), topic, queue id, queue offset,
            commit log offset and size on both sides, and for different messages the fields that differ, and the
            properties that differ: name, and the first 100 characters of both values.
        left_messages, right_messages: counts of messages of both stores.
        of_queues: units of queues were compared in place of messages, as one of the stores has no log.
        missing, extra, different: counts of all such messages, also of those beyond the table.
        left_damages, right_damages: ranges of the logs that no record proves; they were passed over.
        seconds: time of the job.
    """

    table: pa.Table
    left_messages: int
    right_messages: int
    of_queues: bool
    missing: int
    extra: int
    different: int
    left_damages: Damages
    right_damages: Damages
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether no message differs, and nothing was passed over."""
        return not (self.missing or self.extra or self.different or self.left_damages or self.right_damages)


@dataclass(frozen=True, slots=True)
class _Side:
    """One store: its log up to a fixed end, or its queues."""

    path: str
    log_files: tuple[LogFile, ...]
    log_end: int | None
    queues: tuple[QueueItem, ...] = ()


def diff(
    left_path: str | os.PathLike[str],
    right_path: str | os.PathLike[str],
    *,
    runner: Runner,
    by: By = "log",
    ignore: Sequence[str] = (),
    max_rows: int = MAX_ROWS,
    split_bytes: int = SPLIT_BYTES,
    work_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> DiffResult:
    """Compare two stores. Neither is changed. Both may be open: then their logs count up to their ends at the start.

    By `log`, messages at the same commit log offset are compared with all their bytes. By `queue`, messages of the same
    topic, queue id and queue offset are compared, without the fields that depend on the commit log offset
    (`LOCATION_FIELDS`), and their properties as RocketMQ reads them: as a map, whose order does not count. Messages
    without a queue offset (prepared, rolled back) are compared in their order. If one of the two stores has no log,
    as the output of `rebuild`, the units of its queues are compared; one of a batch consume queue is of a whole record.

    Args:
        ignore: further fields that may differ, of `reput.kernels.records.content_hash.IGNORABLE`.
        max_rows: limit of rows of the table.
        work_dir: a folder for outcomes of tasks: a comparison that was killed continues there.

    Raises:
        ConfigError: an unknown field; `work_dir` belongs to a comparison with other options.
        StoreFormatError: no store, a foreign file; or `work_dir` is not empty and belongs to no comparison.
        StoreError: a file cannot be read, or retention has deleted it meanwhile.
    """
    check_arguments(**locals())
    unknown = [name for name in ignore if name not in IGNORABLE]
    if unknown:
        raise ConfigError(f"ignore: {unknown[0]!r} cannot be left out; what can: {', '.join(IGNORABLE)}")
    if by not in ("log", "queue"):
        raise ConfigError(f'by: {by!r} is neither "log" nor "queue"')
    ignored = tuple(sorted({*ignore, *(LOCATION_FIELDS if by == "queue" else ())}))
    directories = [StoreDirectory(path) for path in (left_path, right_path)]
    if work_dir is None:
        return _Diff(directories, runner, by, ignored, max_rows, split_bytes, progress).run()
    for directory in directories:
        directory.check_output(work_dir)
    options: dict[str, Option] = {
        "left": directories[0].path, "right": directories[1].path, "by": by, "ignore": list(ignored),
        "split_bytes": split_bytes, "max_rows": max_rows,
    }  # fmt: skip
    with JobFolder(work_dir, "diff", options) as folder:
        resuming = ResumingRunner(runner, folder)
        result = _Diff(directories, resuming, by, ignored, max_rows, split_bytes, progress).run()
        folder.finish()
    return result


def _list_side(path: str) -> _Side:
    """Task: list the log files of a store, and the end of its log."""
    directory = StoreDirectory(path)
    log_files = tuple(directory.log_files())
    return _Side(path, log_files, fixed_log_end(directory, log_files))


class _Diff:
    """Phases of one comparison, with the arguments that they share."""

    def __init__(
        self,
        directories: Sequence[StoreDirectory],
        runner: Runner,
        by: By,
        ignored: tuple[str, ...],
        max_rows: int,
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._directories = directories
        self._runner = runner
        self._by = by
        self._ignored = ignored
        self._max_rows = max_rows
        self._split_bytes = split_bytes
        self._progress = progress
        self._of_queues = False

    def run(self) -> DiffResult:
        started = time.perf_counter()
        paths = [directory.path for directory in self._directories]
        sides = self._runner.run(_list_side, paths, description="list the stores", progress=self._progress)
        if not all(side.log_files for side in sides):
            sides = [replace(side, queues=_list_queues(StoreDirectory(side.path))) for side in sides]
        self._of_queues = any(side.queues for side in sides)
        if self._of_queues:
            self._by = "queue"
        target = RowTarget(self._by, ignored_mask(self._ignored))
        outcomes = [self._sum_up(target, side, name) for side, name in zip(sides, ("left", "right"), strict=True)]
        sums = [add_up([one.buckets for one in of_side if one.buckets is not None]) for of_side in outcomes]
        counts = dict.fromkeys((MISSING, EXTRA, DIFFERENT), 0)
        tables: list[pa.Table] = []
        fields = DifferingFields(
            [side.log_files for side in sides], self._ignored, properties_as_map=has_properties_as_map(self._by)
        )
        left = self._max_rows
        for number, wanted in enumerate(_rounds(*sums), start=1):
            match = self._look_at(number, replace(target, wanted=wanted), sides, outcomes)
            for kind in counts:
                counts[kind] += match.count(kind)
            if left:
                tables.append(fields.table(match.first(left)) if not self._of_queues else match.first(left).table())
                left -= len(tables[-1])
        damages = [
            joined(outcome.damages for outcome in of_side if isinstance(outcome, RowOutcome)) for of_side in outcomes
        ]
        return DiffResult(
            table=pa.concat_tables(tables) if tables else SCHEMA.empty_table(),
            left_messages=int(sums[0].counts.sum()),
            right_messages=int(sums[1].counts.sum()),
            of_queues=self._of_queues,
            missing=counts[MISSING],
            extra=counts[EXTRA],
            different=counts[DIFFERENT],
            left_damages=damages[0],
            right_damages=damages[1],
            seconds=time.perf_counter() - started,
        )

    def _sum_up(self, target: RowTarget, side: _Side, name: str) -> Sequence[RowOutcome | QueueOutcome]:
        description = f"read the {name} store"
        if self._of_queues:
            task = partial(read_queue_rows, target)
            return self._runner.run(task, side.queues, description=description, progress=self._progress)
        size = max(self._split_bytes, -(-sum(file.size for file in side.log_files) // _MOST_SPLITS))
        splits = bounded_splits(side.log_files, size, side.log_end)
        outcomes, _ = run_over_splits(
            self._runner, partial(read_split_rows, target), splits, description=description, progress=self._progress
        )
        return outcomes

    def _look_at(
        self,
        number: int,
        target: RowTarget,
        sides: Sequence[_Side],
        outcomes: Sequence[Sequence[RowOutcome | QueueOutcome]],
    ) -> Match:
        """Compare the messages of the buckets of a round one by one."""
        assert target.wanted is not None
        wanted = BucketSet(target.wanted)
        rows_of_sides = []
        for side, of_side, name in zip(sides, outcomes, ("left", "right"), strict=True):
            concerned = [i for i, outcome in enumerate(of_side) if _has_any(outcome.buckets, wanted)]
            # A resumed task is identified by the description and its item, so the description must name the round.
            description = f"look at differences of the {name} store, {number}"
            if self._of_queues:
                queues = [side.queues[i] for i in concerned]
                of_queues = self._runner.run(
                    partial(read_queue_rows, target), queues, description=description, progress=self._progress
                )
                rows_of_sides.append([rows for outcome in of_queues for rows in outcome.rows])
                continue
            read = [outcome for outcome in (of_side[i] for i in concerned) if isinstance(outcome, RowOutcome)]
            splits = [proven_split(outcome.read) for outcome in read]
            of_splits = self._runner.run(
                partial(read_split_rows, target), splits, description=description, progress=self._progress
            )
            rows_of_sides.append([rows for outcome in of_splits for rows in outcome.rows])
        return match_rows(self._by, *rows_of_sides)


def _list_queues(directory: StoreDirectory) -> tuple[QueueItem, ...]:
    """The queues of a store; raises StoreFormatError if some of them are not read."""
    for part in directory.foreign_parts():
        if part.hides_queues:
            raise StoreFormatError(str(part))
    (simple, files), batch = all_queues(directory), directory.batch_queues()
    return *(QueueItem(queue, False, files) for queue in simple), *(QueueItem(queue, True, DISK) for queue in batch)


def _has_any(buckets: Buckets | None, wanted: BucketSet) -> bool:
    assert buckets is not None
    return bool(wanted.has(buckets.names, buckets.queues, buckets.buckets).any())


def _rounds(left: Buckets, right: Buckets) -> Iterator[WantedBuckets]:
    """Rounds of differing buckets, in the order of topic, queue id and bucket."""
    negative = Buckets(right.names, right.queues, right.buckets, -right.counts, np.uint64(0) - right.sums)
    totals, differences = add_up([left, right]), add_up([left, negative])
    differs = (differences.counts != 0) | (differences.sums != 0)
    ranks = np.argsort(sorted(range(len(totals.names)), key=lambda number: totals.names[number]))
    rows = np.flatnonzero(differs)
    rows = rows[np.lexsort((totals.buckets[rows], ranks[totals.queues[rows]]))] if rows.size else rows
    numbers = np.cumsum(totals.counts[rows]) // _ROUND_ROWS
    for number in np.unique(numbers).tolist():
        some = rows[numbers == number]
        queues, numbers_of_queues = np.unique(totals.queues[some], return_inverse=True)
        names = tuple(totals.names[queue] for queue in queues.tolist())
        yield WantedBuckets(names, numbers_of_queues, totals.buckets[some])
