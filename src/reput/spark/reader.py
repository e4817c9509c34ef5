"""Reading the commit log in Spark's tasks: a plan of proven splits, and record batches of each.

The results of tasks cannot be compared before their rows are used, so a split may not look for its first record by the
bytes: content can forge those. Instead the planner walks the headers and checks the bodies' CRC, from a file's start to
the log's end. That takes 0.1 s for a million records, and no border is anything but the start of a record. Files that
have a successor end with the blank record and are tasks of their own, not walked, where there are enough of them.

The plan also fixes the log's end. So the rows of a DataFrame are a prefix of the log, and the same in each of its
queries, even while the store is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql.datasource import DataSourceReader, InputPartition

from reput.errors import CorruptRecordError
from reput.files import DISK
from reput.formats.record import MIN_RECORD_SIZE, decode_record
from reput.jobs.runner import LocalRunner
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory
from reput.log.reader import read_split
from reput.log.scan import scan_split
from reput.log.selection import make_selection
from reput.log.sink_commits import committed_end
from reput.log.splits import Split, SplitStop
from reput.spark.daemon import freeze_worker
from reput.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

#: Less is not worth a task.
_MIN_SPLIT_BYTES = 8 << 20


class SplitPartition(InputPartition):
    """One task's part: a split that begins at a record's start."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class LogReader(DataSourceReader):
    """Reads some columns of a commit log. Made and asked for a plan once a query, then pickled for the tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._directory = StoreDirectory(options.path, commit_log_path=options.commit_log_path)
        self._selection = make_selection(
            columns=columns,
            topics=options.topics,
            keys=options.keys,
            begin=options.begin,
            end=options.end,
            raw_body=options.raw_body,
            store=self._directory.name if options.store is None else options.store,
        )

    def partitions(self) -> Sequence[InputPartition]:
        """The splits, in log order. Raises CorruptRecordError for damage in what the planner walks."""
        flushed_ms = None
        if self._options.until == "flushed":
            checkpoint = self._directory.checkpoint()
            flushed_ms = checkpoint.physic_msg_timestamp if checkpoint else 0
        splits = plan_proven_splits(
            self._directory.log_files(),
            split_bytes=self._options.split_bytes,
            processors=os.cpu_count() or 1,
            flushed_ms=flushed_ms,
        )
        if self._directory.was_killed and splits:  # or is alive
            splits = cut_splits(splits, committed_end(DISK, self._directory.path, splits[-1].end))
        freeze_worker()
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The wanted rows of one split. Raises CorruptRecordError for damage, StoreError for a file that is gone."""
        if isinstance(partition, SplitPartition):  # Spark makes one of another kind where there are no splits
            yield from read_split(partition.split, self._selection)
        freeze_worker()


def cut_splits(splits: Sequence[Split], end: int) -> list[Split]:
    """The splits up to a record's start."""
    return [replace(split, end=min(split.end, end)) for split in splits if split.begin < end]


def plan_proven_splits(
    log_files: Sequence[LogFile], *, split_bytes: int | None, processors: int, flushed_ms: int | None
) -> list[Split]:
    """Splits whose borders are record starts, up to the log's end as it is now: together the rows of `read_log`.

    Args:
        log_files: of the store, in order.
        split_bytes: walk all files and cut them at the first record behind so many bytes; None: splits of whole files
            where there are more than processors, else equal ones of what the files hold.
        processors: how many tasks are wanted at least.
        flushed_ms: a record with a later store timestamp ends the log; then all files are walked.

    Raises CorruptRecordError where a record does not prove itself and a later one does.
    """
    started = _started_files(log_files)
    whole = started - 1 if split_bytes is None and flushed_ms is None and started > processors else 0
    step = split_bytes or _MIN_SPLIT_BYTES

    def walk(file: LogFile) -> _Walk:
        return _walk(file, step, flushed_ms)

    walks = LocalRunner().run(walk, log_files[whole:started], description="plan")
    for file in log_files[started:]:
        if walks and not walks[-1].goes_on:
            break
        walks.append(walk(file))
    walked = sum(borders[-1] - borders[0] for _, borders, _ in walks)
    size = split_bytes or max(-(-walked // processors), step)
    splits = [Split(file, file.start_offset, file.end_offset, True) for file in log_files[:whole]]
    for file, borders, goes_on in walks:
        splits += [Split(file, begin, end, True) for begin, end in pairwise(_thinned(borders, size))]
        if not goes_on:
            break
    return splits


class _Walk(NamedTuple):
    """Offsets of records from a file's start to the end of its records, and whether the log goes on in the next one."""

    file: LogFile
    borders: list[int]
    goes_on: bool


def _started_files(log_files: Sequence[LogFile]) -> int:
    """How many files the log's records have reached: behind them are only files made ahead."""
    for count in range(len(log_files), 0, -1):
        if _starts_with_record(log_files[count - 1]):
            return count
    return 0


def _starts_with_record(file: LogFile) -> bool:
    with DISK.open(file.path) as opened:
        size = int.from_bytes(opened.read(0, 4), "big", signed=True)
        if not MIN_RECORD_SIZE <= size <= file.size:
            return False
        try:
            return decode_record(opened.read(0, size)).commit_log_offset == file.start_offset
        except CorruptRecordError:
            return False


def _walk(file: LogFile, step: int, flushed_ms: int | None) -> _Walk:
    """Walk one file; the borders are the first records behind `step` bytes each."""
    scan = scan_split(Split(file, file.start_offset, file.end_offset, is_record_start=True), level=ScanLevel.HEADER)
    borders, end = [file.start_offset], file.start_offset
    for columns in scan:
        offsets, rows, end = columns["commit_log_offset"], columns.rows, columns.next_offset
        if flushed_ms is not None and (columns["store_timestamp"] > flushed_ms).any():
            rows = int(np.argmax(columns["store_timestamp"] > flushed_ms))
            end = int(offsets[rows])
        while (row := int(np.searchsorted(offsets[:rows], borders[-1] + step))) < rows:
            borders.append(int(offsets[row]))
        if rows < columns.rows:
            break
    return _Walk(file, [*borders, end], goes_on=scan.stop is SplitStop.BLANK)


def _thinned(borders: Sequence[int], size: int) -> list[int]:
    """Those of the borders that are at least `size` apart, the first and the last among them."""
    kept = [borders[0]]
    for border in borders[1:-1]:
        if border - kept[-1] >= size:
            kept.append(border)
    return kept if borders[-1] == kept[-1] else [*kept, borders[-1]]
