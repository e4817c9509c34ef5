"""Compare batch consume queues with the log: the units of a range of records stand in the order of the log."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, PHYSICAL_OFFSET
from reput.formats.paths import offset_to_file_name, topic_folder_name
from reput.jobs.audit.ascending_runs import AscendingRun, EntryFiles, Int64s, RunFinder
from reput.jobs.audit.consume_queues import DIFFERENT, VERIFIED, SlotRanges
from reput.jobs.audit.files import ListedQueue
from reput.kernels.queues.batch_consume_queue import NO_BATCH_QUEUE, group_batch_units
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE
from reput.kernels.records.columns import RecordColumns

#: Size of a file with RocketMQ's defaults.
_BLOCK_BYTES = 300_000 * BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchQueueItem:
    """One batch consume queue: the folder of all such queues, and the queue's files."""

    folder: str
    file_size: int
    queue: ListedQueue

    @property
    def paths(self) -> list[str]:
        """Paths of the queue's files."""
        folder = os.path.join(self.folder, self.queue.topic, str(self.queue.queue_id))
        return [os.path.join(folder, offset_to_file_name(start)) for start in self.queue.starts]

    def first_unit(self, file: int) -> int:
        """Number, in the queue, of a file's first unit."""
        return self.queue.starts[file] // BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchQueueRuns:
    """Ascending runs of the units of one queue."""

    item: BatchQueueItem
    runs: tuple[AscendingRun, ...]


def find_batch_runs(item: BatchQueueItem) -> BatchQueueRuns:
    """Task: find the ascending runs of one batch consume queue."""
    runs: list[AscendingRun] = []
    for number, path in enumerate(item.paths):
        finder = RunFinder(number)
        with DISK.open(path) as file:
            for position in range(0, item.file_size, _BLOCK_BYTES):
                data = file.read(position, min(_BLOCK_BYTES, item.file_size - position))
                units = np.frombuffer(data, BATCH_UNIT_TYPE, len(data) // BATCH_UNIT_SIZE)
                used = np.flatnonzero((units["size"] > 0) & (units["message_count"] > 0))
                count = int(used[-1]) + 1 if used.size else 0
                finder.add(units["commit_log_offset"][:count].astype(np.int64))
                if count < units.size or not count:  # units leave no gaps, and nothing comes after the last one
                    break
        runs += finder.runs
    return BatchQueueRuns(item, tuple(runs))


class BatchCheck:
    """Compares units with the records of one task. `close` returns the ranges.

    A range of right units holds unit numbers, counted from the begin of the queue. A range of records without units
    holds queue offsets of messages.
    """

    def __init__(self, queues: tuple[BatchQueueRuns, ...], batch_topics: frozenset[str]) -> None:
        self._batch_topics = batch_topics
        self._known = {(found.item.queue.topic, found.item.queue.queue_id): found for found in queues}
        self._files: dict[tuple[str, int], EntryFiles] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._ranges: list[tuple[int, ...]] = []

    def put(self, columns: RecordColumns) -> list[int]:
        """Compare scanned records (`ScanLevel.PROPERTIES` or above); returns rows that contradict themselves.

        RocketMQ gives an inner batch its queue offset twice (`BatchConsumeQueue.assignQueueOffset`): in a field of the
        record and in the properties. Units have the queue offset of the properties.
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
        slices = () if known is None else self._files_of(known).between(int(offsets[0]), int(offsets[-1]) + 1)
        for file, number_in_file, stored in slices:
            assert known is not None
            rows = np.searchsorted(offsets, stored["commit_log_offset"].astype(np.int64))
            same = units[rows].view(f"V{BATCH_UNIT_SIZE}") == stored.view(f"V{BATCH_UNIT_SIZE}")
            missing[rows[same]] = False
            at = np.flatnonzero(same)
            starts = np.flatnonzero(np.append(True, np.diff(at) != 1)[: at.size])
            counts = np.diff(np.append(starts, at.size))
            first = known.item.first_unit(file) + number_in_file
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                row, end_row = int(rows[at[start]]), int(rows[at[start + count - 1]])
                end = int(offsets[end_row]) + int(units["size"][end_row])
                last = max(last, end)
                self._ranges.append((number, first + int(at[start]), count, int(offsets[row]), end, VERIFIED))
        at = np.flatnonzero(missing)
        after = offsets[at] >= last
        bases = units["base_offset"].astype(np.int64)[at]
        ends = bases + units["message_count"][at]
        begins = (np.diff(at) != 1) | (np.diff(after) != 0) | (bases[1:] != ends[:-1])
        starts = np.flatnonzero(np.append(True, begins)[: at.size])
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
        """Close the files, and return the ranges of all records."""
        for files in self._files.values():
            files.close()
        columns = np.array(self._ranges, np.int64).reshape(-1, 6).T
        return SlotRanges(tuple(self._numbers), *columns)
