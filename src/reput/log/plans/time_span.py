"""Span of the log that may have the wanted store times, by the user's word on how far the clock ever went back.

Any record then bounds the times of all records before it and after it. The units of one consume queue lead to records
all over the log, so two bisections of the queue find the span by some dozens of records. A unit counts only if it leads
to its own record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Self

import numpy as np

from reput.errors import CorruptRecordError, StoreError
from reput.files import File, FileLayer
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.paths import file_name_to_offset
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.record_batch import record_batch
from reput.log.directory import LogFile, QueueFiles, open_listed
from reput.log.plans.pruning import Range
from reput.log.plans.queue_records import NotProven
from reput.log.point_reads import Points, read_records

#: Number of queues with the most files, of which the one with the most units is used.
_QUEUES = 16


class Span(NamedTuple):
    """Commit log offsets, each of a record's start.

    Attributes:
        begin: all records before it are older than what is wanted; None: unknown.
        end: this record and all after it are younger; None: unknown.
        last: a record near the log's end.
    """

    begin: int | None
    end: int | None
    last: int


class _Record(NamedTuple):
    offset: int
    store_ms: int


def time_span(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], store_ms: Range, margin_ms: int, files: FileLayer
) -> Span:
    """Find the span of the wanted store times.

    Args:
        log_files: the files that have records, in order.
        margin_ms: no store timestamp is smaller than an earlier record's by more than this.

    Raises NotProven, with the reason, if no queue has units of this log, or a unit leads to another record.
    """
    with ExitStack() as opened:
        readers = [
            opened.enter_context(_Units(queue, log_files, files))
            for queue in sorted(queues, key=lambda queue: -len(queue.paths))[:_QUEUES]
        ]
        units = max(readers, key=lambda reader: reader.count, default=None)
        if units is None or not units.count:
            raise NotProven("no consume queue has units of this log")
        low, high = store_ms.low - margin_ms, store_ms.high + margin_ms
        old = units.first
        if low > Range().low:
            old = _bisected(units.first, units.count, lambda number: units.record(number).store_ms < low)
        young = _bisected(old, units.count, lambda number: units.record(number).store_ms <= high)
        return Span(
            units.record(old - 1).offset if old > units.first else None,
            units.record(young).offset if young < units.count else None,
            units.record(units.count - 1).offset,
        )


def _bisected(begin: int, end: int, holds: Callable[[int], bool]) -> int:
    """A number of [begin, end] just before which `holds` was found to hold, and at which it was found not to."""
    while begin < end:
        middle = (begin + end) // 2
        if holds(middle):
            begin = middle + 1
        else:
            end = middle
    return begin


class _Units:
    """Units of one queue that lead into the log, by number: `first` to `count`."""

    def __init__(self, queue: QueueFiles, log_files: Sequence[LogFile], files: FileLayer) -> None:
        self._queue, self._log_files, self._files = queue, log_files, files
        self._in_file = queue.file_size // UNIT_SIZE
        start = file_name_to_offset(os.path.basename(queue.paths[0]))
        assert start is not None, "StoreDirectory lists no other files"
        self._start = start // UNIT_SIZE
        self._opened: dict[str, File] = {}
        total = self._in_file * len(queue.paths)
        self.count = _bisected(0, total, lambda number: self._unit(number)[1] > 0)
        begin = log_files[0].start_offset
        self.first = _bisected(0, self.count, lambda number: self._unit(number)[0] < begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._opened.values():
            file.close()

    def record(self, number: int) -> _Record:
        """The record that a unit leads to. Raises NotProven if it is not the unit's own."""
        offset, size = self._unit(number)
        file = next((file for file in self._log_files if file.start_offset <= offset < file.end_offset), None)
        if file is None or size > file.end_offset - offset:
            raise NotProven(f"unit {self._start + number} of {self._queue.topic} leads out of the log")
        points = Points(file, np.array([offset], np.int64), np.array([size], np.int64))
        try:
            (columns,) = read_records(points, files=self._files)
        except CorruptRecordError as error:
            raise NotProven(str(error)) from None
        own = (self._queue.topic, self._queue.queue_id, self._start + number)
        topic = record_batch(columns, ("topic",))["topic"][0].as_py()
        if (topic, int(columns["queue_id"][0]), int(columns["queue_offset"][0])) != own:
            raise NotProven(f"unit {self._start + number} of {self._queue.topic} leads to another record")
        return _Record(offset, int(columns["store_timestamp"][0]))

    def _unit(self, number: int) -> tuple[int, int]:
        """Commit log offset and size in bytes of a unit; zeros if none was written."""
        path = self._queue.paths[number // self._in_file]
        try:
            file = self._opened.get(path) or open_listed(self._files, path)
        except StoreError as error:
            raise NotProven(str(error)) from None  # retention has deleted it
        self._opened[path] = file
        (unit,) = np.frombuffer(file.read(number % self._in_file * UNIT_SIZE, UNIT_SIZE), UNIT_TYPE)
        return int(unit["commit_log_offset"]), int(unit["size"])
