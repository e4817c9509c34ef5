"""The table of all consume queues, and the dispatcher that feeds them."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError, StoreFormatError
from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE
from reput.formats.paths import CONSUME_QUEUE, topic_folder_name
from reput.formats.record import MIN_RECORD_SIZE
from reput.kernels.columns import RecordColumns
from reput.kernels.consume_queue import UNIT_TYPE, UnitRuns, group_units
from reput.log.directory import QueueFiles
from reput.store.consume_queue import ConsumeQueue
from reput.store.unit_search import Units, read_units, search_units

#: Linux allows a process 65 530 maps (vm.max_map_count).
_MAX_MAPS = 8192


class ConsumeQueueStore:
    """RocketMQ's `ConsumeQueueStore`: finds, makes, feeds and flushes queues."""

    def __init__(self, files: FileLayer, path: str, file_size: int) -> None:
        self._files = files
        self._path = f"{path}/{CONSUME_QUEUE}"
        self._file_size = file_size
        self._table: dict[tuple[str, int], ConsumeQueue] = {}
        self._by_bytes: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._maps = 0
        self._unsynced_folders: set[str] = set()
        self._flush_lock = Lock()
        self.built_timestamp = 0

    def check(self, found: list[QueueFiles]) -> None:
        """Look at the files of a directory without changing anything.

        Raises:
            StoreFormatError: Files of another size than the configured one.
        """
        for queue_files in found:
            if queue_files.file_size != self._file_size:
                raise StoreFormatError(
                    f"{queue_files.paths[0]}: {queue_files.file_size} bytes, but mappedFileSizeConsumeQueue is "
                    f"{self._file_size}; give mappedFileSizeConsumeQueue={queue_files.file_size} if it was "
                    "written with it"
                )

    def load(
        self, found: list[QueueFiles], end_offset: int, known: Mapping[tuple[str, int], int] = MappingProxyType({})
    ) -> None:
        """Take over the queues of a directory, up to the units of records that end at or before `end_offset`.

        The written part of a queue ends before the first unit that is unused, or whose record ends behind `end_offset`;
        filler units count as written. Units lie in log order, so this is a binary search.

        Args:
            found: The queues' files.
            end_offset: Commit log offset.
            known: What the max offset of each (topic, queue id) was at the last clean exit: a guess that spares reads.
        """

        def is_written(units: Units) -> npt.NDArray[np.bool_]:
            ends = units["commit_log_offset"] + units["size"]
            written: npt.NDArray[np.bool_] = (units["size"] > 0) & (_are_fillers(units) | (ends <= end_offset))
            return written

        queues = [self._make(queue_files.topic, queue_files.queue_id) for queue_files in found]
        starts = [[int(path.rpartition("/")[2]) for path in queue_files.paths] for queue_files in found]
        first = np.array([begin[0] for begin in starts], np.int64) // UNIT_SIZE
        last = first + np.array([len(begin) for begin in starts], np.int64) * (self._file_size // UNIT_SIZE)
        guess = np.array([known.get((queue.topic, queue.queue_id), -1) for queue in queues], np.int64)
        ends = search_units(self._files, queues, first, last, guess, is_written)
        filled = np.flatnonzero(ends > first)
        units = read_units(self._files, [queues[i] for i in filled.tolist()], ends[filled] - 1)
        physical = np.full(ends.size, -1, np.int64)
        physical[filled] = np.where(_are_fillers(units), -1, units["commit_log_offset"] + units["size"])
        for queue, begin, end, physical_end in zip(queues, starts, ends.tolist(), physical.tolist(), strict=True):
            queue.start_with(begin, end, physical_end)

    def raise_min_offsets(self, min_commit_log_offset: int) -> None:
        """Move each `min_offset` to the first unit whose record the log still has (`ConsumeQueue.correctMinOffset`)."""

        def is_gone(units: Units) -> npt.NDArray[np.bool_]:
            return _are_fillers(units) | (units["commit_log_offset"] < min_commit_log_offset)

        queues = self.queues()
        first = np.array([queue.min_offset for queue in queues], np.int64)
        last = np.array([queue.max_offset for queue in queues], np.int64)
        offsets = search_units(self._files, queues, first, last, first, is_gone)
        for queue, offset in zip(queues, offsets.tolist(), strict=True):
            queue.min_offset = offset

    def cut(self) -> None:
        """Wipe out what lies behind the last unit of each queue."""
        for queue in self._table.values():
            queue.cut()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None where no message was ever dispatched to it."""
        return self._table.get((topic, queue_id))

    def queues(self) -> list[ConsumeQueue]:
        """All queues, in no special order."""
        return list(self._table.values())

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        path = f"{self._path}/{topic}/{queue_id}"
        queue = ConsumeQueue(
            self._files, path, topic, queue_id, self._file_size,
            on_new_name=self._unsynced_folders.add, on_map=self._mapped,
        )  # fmt: skip
        self._table[topic, queue_id] = queue
        return queue

    def _mapped(self) -> None:
        """Drop all maps once there are too many; they are back in 20 us each."""
        self._maps += 1
        if self._maps > _MAX_MAPS:
            self._maps = 0
            for queue in self.queues():
                queue.drop_mappings()

    def dispatch(self, columns: RecordColumns, *, fill_gaps: bool = True) -> bool:
        """Append the units of scanned records; repeats are dropped, so dispatching again does no harm.

        Args:
            columns: Scanned at `ScanLevel.PROPERTIES` or above.
            fill_gaps: Fill a gap behind a queue's last unit with filler units; otherwise stop there and return False.

        Raises:
            StoreFullError: No space. Nothing counts as dispatched; the same call may succeed later.
            CorruptRecordError: A queue offset that no log of this size can hold.
        """
        if not columns.rows:
            return True
        queues = self._queues_of(columns)
        row = 0
        while row < columns.rows:
            next_offsets = np.array([queue.max_offset for queue in queues], np.int64)
            runs = group_units(columns, next_offsets, row)
            self._write(runs, queues, next_offsets)
            row = runs.stop_row
            if row < columns.rows:
                if not fill_gaps:
                    return False
                queue = queues[columns["queue"][row]]
                self._fill_gap(queue, int(columns["queue_offset"][row]), int(columns["commit_log_offset"][row]))
        self.built_timestamp = int(columns["store_timestamp"][-1])
        return True

    def _queues_of(self, columns: RecordColumns) -> list[ConsumeQueue]:
        """The queues of a scan, by number; new ones are made."""
        keys = columns.queues()
        try:
            return [self._by_bytes[key] for key in keys]
        except KeyError:
            return [self._queue_of(*key, columns, int(row)) for key, row in zip(keys, columns.queue_rows, strict=True)]

    def _queue_of(self, topic: bytes, queue_id: int, columns: RecordColumns, row: int) -> ConsumeQueue:
        queue = self._by_bytes.get((topic, queue_id))
        if queue is None:
            name = topic_folder_name(topic)
            if name is None:
                shown = topic[:80].decode("utf-8", "replace")
                offset = int(columns["commit_log_offset"][row])
                raise CorruptRecordError(
                    self._path, offset, f"the topic {shown!r} cannot name a folder; look at it with `reput dump`"
                )
            queue = self._table.get((name, queue_id)) or self._make(name, queue_id)
            self._by_bytes[topic, queue_id] = queue
        return queue

    def _fill_gap(self, queue: ConsumeQueue, queue_offset: int, commit_log_offset: int) -> None:
        # Every message before this one took at least a smallest record of the log.
        if queue_offset > commit_log_offset // MIN_RECORD_SIZE:
            raise CorruptRecordError(
                queue.path,
                commit_log_offset,
                f"the record says queue offset {queue_offset}, more than a log of this size can hold; "
                "run `reput dump` around it and rebuild the log without it",
            )
        queue.fill_to(queue_offset)

    def _write(self, runs: UnitRuns, queues: list[ConsumeQueue], next_offsets: npt.NDArray[np.int64]) -> None:
        """Write each queue's units behind its last one, a run a file, and count them."""
        numbers = np.flatnonzero(runs.counts)
        if not numbers.size:
            return
        written = [queues[k] for k in numbers.tolist()]
        counts, starts = runs.counts[numbers], runs.starts[numbers]
        ends = next_offsets[numbers] + counts
        pieces = _cut_at_files((ends - counts) * UNIT_SIZE, counts * UNIT_SIZE, self._file_size)
        owners = [written[k] for k in pieces.owners.tolist()]
        files = pieces.files.tolist()
        self._files.write_runs(
            [queue.path_to_write(start) for queue, start in zip(owners, files, strict=True)],
            runs.units.ctypes.data + starts[pieces.owners] + pieces.skipped,
            pieces.sizes,
            pieces.positions,
        )
        last_units = runs.units.view(UNIT_TYPE)[starts // UNIT_SIZE + counts - 1]
        physical_ends = (last_units["commit_log_offset"] + last_units["size"]).tolist()
        for queue, end, physical_end in zip(written, ends.tolist(), physical_ends, strict=True):
            queue.max_physical_offset = physical_end
            queue.max_offset = end
        for queue, start in zip(owners, files, strict=True):
            queue.dirty.add(start)  # from now on, not before: a sync may have come in between

    @property
    def max_physical_offset(self) -> int:
        """End of the last dispatched record that has a unit; -1 when there is none."""
        return max((queue.max_physical_offset for queue in self._table.values()), default=-1)

    @property
    def last_record_offset(self) -> int:
        """Commit log offset of the last dispatched record that has a unit; -1 when there is none."""
        last = max(self._table.values(), key=lambda queue: queue.max_physical_offset, default=None)
        unit = last.unit(last.max_offset - 1) if last is not None else None
        return unit.commit_log_offset if unit is not None else -1

    def flush(self, least_pages: int = 0) -> int:
        """Sync the queues with at least so many unsynced pages; with 0 all of them, and the names of new files.

        Returns:
            The store timestamp (ms) up to which every unit is on the disk, if `least_pages` is 0.
        """
        with self._flush_lock:
            timestamp = self.built_timestamp
            chosen = [q for q in list(self._table.values()) if q.dirty and q.unsynced_pages >= least_pages]
            written = [queue.max_offset for queue in chosen]
            dirty = [sorted(queue.dirty) for queue in chosen]
            folders = [] if least_pages else sorted(self._unsynced_folders)
            for queue, starts in zip(chosen, dirty, strict=True):
                queue.dirty.difference_update(starts)
            self._unsynced_folders.difference_update(folders)
            try:
                paths = [q.file_path(start) for q, starts in zip(chosen, dirty, strict=True) for start in starts]
                self._files.sync_files(paths)
                self._files.sync_directories(folders)
            except BaseException:
                for queue, starts in zip(chosen, dirty, strict=True):
                    queue.dirty.update(starts)
                self._unsynced_folders.update(folders)
                raise
            for queue, offset in zip(chosen, written, strict=True):
                queue.synced_offset = offset
            return timestamp

    def close(self) -> None:
        """Let go of all maps; no file is open."""
        for queue in self._table.values():
            queue.drop_mappings()


class _Pieces(NamedTuple):
    """Parts of runs, each within one file; one element a piece.

    Attributes:
        owners: The number of the run.
        files: The first byte of the file, as its name says it.
        positions, sizes: Where in the file, and how many bytes.
        skipped: How many bytes of the run lie in files before.
    """

    owners: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    skipped: npt.NDArray[np.int64]


def _cut_at_files(begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], file_size: int) -> _Pieces:
    """Cut runs of `sizes` (at least 1) bytes from byte `begins` of their queues where files end."""
    first_files = begins // file_size
    counts = (begins + sizes - 1) // file_size - first_files + 1
    owners = np.repeat(np.arange(begins.size), counts)
    before = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)
    files = (first_files[owners] + before) * file_size
    piece_begins = np.maximum(files, begins[owners])
    piece_ends = np.minimum(files + file_size, (begins + sizes)[owners])
    return _Pieces(owners, files, piece_begins - files, piece_ends - piece_begins, piece_begins - begins[owners])


def _are_fillers(units: Units) -> npt.NDArray[np.bool_]:
    fillers: npt.NDArray[np.bool_] = units == np.array(tuple(FILLER), UNIT_TYPE)
    return fillers
