"""Batch consume queues against the log: the units of a stretch of records stand in their order."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, PHYSICAL_OFFSET
from reput.formats.paths import offset_to_file_name, topic_folder_name
from reput.jobs.audit.files import ListedQueue
from reput.jobs.audit.runs import AscendingRun, EntryFiles, Int64s, RunFinder
from reput.jobs.audit.units import CONFIRMED, DIFFERENT, SlotRanges
from reput.kernels.batch_consume_queue import NO_BATCH_QUEUE, group_batch_units
from reput.kernels.columns import RecordColumns
from reput.kernels.unit_types import BATCH_UNIT_TYPE

#: A whole file of RocketMQ's own size.
_PIECE_BYTES = 300_000 * BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchQueueItem:
    """One batch consume queue in its folder."""

    folder: str
    file_size: int
    queue: ListedQueue

    @property
    def paths(self) -> list[str]:
        """Its files."""
        place = os.path.join(self.folder, self.queue.topic, str(self.queue.queue_id))
        return [os.path.join(place, offset_to_file_name(start)) for start in self.queue.starts]

    def first_unit(self, file: int) -> int:
        """The number of a file's first unit in the queue."""
        return self.queue.starts[file] // BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchQueueRuns:
    """The runs of the units of one queue."""

    item: BatchQueueItem
    runs: tuple[AscendingRun, ...]


def find_batch_runs(item: BatchQueueItem) -> BatchQueueRuns:
    """The task for one batch consume queue: how far its units ascend."""
    runs: list[AscendingRun] = []
    for number, path in enumerate(item.paths):
        finder = RunFinder(number)
        with DISK.open(path) as file:
            for position in range(0, item.file_size, _PIECE_BYTES):
                data = file.read(position, min(_PIECE_BYTES, item.file_size - position))
                units = np.frombuffer(data, BATCH_UNIT_TYPE, len(data) // BATCH_UNIT_SIZE)
                used = np.flatnonzero((units["size"] > 0) & (units["message_count"] > 0))
                count = int(used[-1]) + 1 if used.size else 0
                finder.add(units["commit_log_offset"][:count].astype(np.int64))
                if count < units.size or not count:  # units stand side by side, and behind the last one is nothing
                    break
        runs += finder.runs
    return BatchQueueRuns(item, tuple(runs))


class BatchCheck:
    """Compares the units of one task's records; `close` gives ranges of units, numbered from the queue's begin.

    Records without their units are ranges of messages, by their queue offsets.
    """

    def __init__(self, queues: tuple[BatchQueueRuns, ...], batch_topics: frozenset[str]) -> None:
        self._batch_topics = batch_topics
        self._known = {(found.item.queue.topic, found.item.queue.queue_id): found for found in queues}
        self._files: dict[tuple[str, int], EntryFiles] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._ranges: list[tuple[int, ...]] = []

    def put(self, columns: RecordColumns) -> list[int]:
        """Take scanned records (`ScanLevel.PROPERTIES` or above); returns rows that contradict themselves.

        RocketMQ gives an inner batch its queue offset twice (`BatchConsumeQueue.assignQueueOffset`). Units have that of
        the properties.
        """
        contradicting: list[int] = []
        if not self._batch_topics:
            return contradicting
        names = [(topic_folder_name(topic), queue_id) for topic, queue_id in columns.queues()]
        last_offsets = np.array([-1 if topic in self._batch_topics else NO_BATCH_QUEUE for topic, _ in names], np.int64)
        grouped = group_batch_units(columns, last_offsets)
        for k in np.flatnonzero(grouped.counts).tolist():
            topic, queue_id = names[k]
            assert topic is not None
            begin, size = int(grouped.starts[k]), int(grouped.counts[k]) * BATCH_UNIT_SIZE
            units = grouped.units[begin : begin + size].view(BATCH_UNIT_TYPE)
            offsets = units["commit_log_offset"].astype(np.int64)
            rows = np.searchsorted(columns["commit_log_offset"], offsets)
            contradicting += rows[units["base_offset"] != columns["queue_offset"][rows]].tolist()
            self._compare((topic, queue_id), offsets, units)
        return contradicting

    def _compare(self, key: tuple[str, int], offsets: Int64s, units: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
        number = self._numbers.setdefault(key, len(self._numbers))
        known = self._known.get(key)
        missing = np.ones(offsets.size, np.bool_)
        last = -1
        for part in () if known is None else self._files_of(known).between(int(offsets[0]), int(offsets[-1]) + 1):
            assert known is not None
            rows = np.searchsorted(offsets, part.entries["commit_log_offset"].astype(np.int64))
            same = units[rows].view(f"V{BATCH_UNIT_SIZE}") == part.entries.view(f"V{BATCH_UNIT_SIZE}")
            missing[rows[same]] = False
            at = np.flatnonzero(same)
            starts = np.flatnonzero(np.append(True, np.diff(at) != 1)[: at.size])
            counts = np.diff(np.append(starts, at.size))
            first = known.item.first_unit(part.file) + part.first
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                row, end_row = int(rows[at[start]]), int(rows[at[start + count - 1]])
                end = int(offsets[end_row]) + int(units["size"][end_row])
                last = max(last, end)
                self._ranges.append((number, first + int(at[start]), count, int(offsets[row]), end, CONFIRMED))
        at = np.flatnonzero(missing)
        behind = offsets[at] >= last
        starts = np.flatnonzero(np.append(True, (np.diff(at) != 1) | (np.diff(behind) != 0))[: at.size])
        counts = np.diff(np.append(starts, at.size))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            row, end_row = int(at[start]), int(at[start + count - 1])
            end = int(offsets[end_row]) + int(units["size"][end_row])
            base = int(units["base_offset"][row])
            messages = int(units["base_offset"][end_row]) + int(units["message_count"][end_row]) - base
            self._ranges.append((number, base, messages, int(offsets[row]), end, DIFFERENT))

    def _files_of(self, known: BatchQueueRuns) -> EntryFiles:
        key = known.item.queue.topic, known.item.queue.queue_id
        if key not in self._files:
            self._files[key] = EntryFiles(known.item.paths, 0, BATCH_UNIT_TYPE, PHYSICAL_OFFSET, known.runs)
        return self._files[key]

    def close(self) -> SlotRanges:
        """The ranges of all records."""
        for files in self._files.values():
            files.close()
        columns = np.array(self._ranges, np.int64).reshape(-1, 6).T
        return SlotRanges(tuple(self._numbers), *columns)
