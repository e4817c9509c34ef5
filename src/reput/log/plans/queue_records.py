"""Record locations from the units of all consume queues, and the proof that the units can be believed.

Consume queues are derived from the log and can differ from it: they lag, were restored from an older copy, or half of
them is missing. RocketMQ also leaves units after a queue's end that lead to records which a crash cut off. So the units
of a queue are used only if

- the first and the last unit of the queue that lead into the log lead to records of that queue (a further queue, of
  light messages, holds records of other topics; a queue that fails is left out, so its records count as unknown),
- no two units of all queues claim the same byte, and
- on both sides of each range of the log that no unit claims, the nearest units lead to records of their own queues.

Then the units tile the log. What they claim is records. What they do not claim (transactions in progress, records that
are not dispatched yet, batch consume queues) begins and ends at records, and is read in full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import CorruptRecordError, StoreError
from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE
from reput.formats.paths import file_name_to_offset
from reput.formats.record_layout import BLANK_SIZE, MIN_RECORD_SIZE
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.record_batch import record_batch
from reput.log.directory import LogFile, QueueFiles
from reput.log.points import Points, read_records
from reput.log.window import is_blank

Int64s = npt.NDArray[np.int64]

#: Log bytes proven in one batch; at most 1.5 million records fit.
BATCH_BYTES = 128 << 20
_FIRST_READ_BYTES, _READ_BYTES = 64 << 10, 4 << 20


class NotProven(Exception):
    """Raised when queues or index do not prove what they say; the text is the reason. The log is then read in full."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueRecords:
    """Records as their units describe them, in log order; int64[n] each.

    Attributes:
        offsets, sizes: the records' commit log offsets and sizes in bytes.
        queues: for each record the number of its queue in `names`, the topics and queue ids.
        queue_offsets: the records' queue offsets.
    """

    names: tuple[tuple[str, int], ...]
    offsets: Int64s
    sizes: Int64s
    queues: Int64s
    queue_offsets: Int64s

    def rows(self, wanted: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> QueueRecords:
        """Selected records, by mask or row numbers."""
        arrays = (self.offsets, self.sizes, self.queues, self.queue_offsets)
        return QueueRecords(self.names, *(array[wanted] for array in arrays))

    def of_file(self, file: LogFile) -> QueueRecords:
        """The records that start in a file."""
        begin, end = np.searchsorted(self.offsets, [file.start_offset, file.end_offset])
        return self.rows(np.arange(begin, end))


@dataclass(frozen=True, slots=True)
class Gap:
    """Range of one file that no unit claims; a record starts at its begin and at its end."""

    file: LogFile
    begin: int
    end: int


def joined_records(parts: Sequence[QueueRecords]) -> QueueRecords:
    """One QueueRecords of several, at least one, that are in log order."""
    columns = [(part.offsets, part.sizes, part.queues, part.queue_offsets) for part in parts]
    return QueueRecords(parts[0].names, *(np.concatenate(column) for column in zip(*columns, strict=True)))


class ProvenBatch(NamedTuple):
    """Records that the queues prove in a range of one log file, and the gaps between them that no unit claims.

    Attributes:
        end: offset after the last record of the range, or the file's end.
    """

    file: LogFile
    records: QueueRecords
    gaps: list[Gap]
    end: int


def proven_batches(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer
) -> Iterator[ProvenBatch]:
    """Proven records and gaps of the whole log, in log order; the blank record at a file's end is no gap.

    Raises NotProven where the queues contradict the log or each other.
    """
    begin = -1
    for file, end, records in claimed_batches(queues, log_files, files):
        begin = max(begin, file.start_offset)
        ends = records.offsets + records.sizes
        overlap = np.flatnonzero(records.offsets < np.append(begin, ends[:-1])[: ends.size])
        if overlap.size:
            raise NotProven(f"two consume queues claim offset {records.offsets[overlap[0]]}")
        if ends.size and ends[-1] > file.end_offset:
            raise NotProven(f"a consume queue claims a record beyond the end of {file.path}")
        lows = np.append(begin, ends)
        begin = file.end_offset if end == file.end_offset else int(lows[-1])
        gap_rows = np.flatnonzero(np.append(records.offsets, begin) > lows)
        # The last record, too: the next batch may begin with a gap.
        beside = np.unique(np.concatenate([gap_rows - 1, gap_rows, [ends.size - 1]]))
        check_records(records.rows(beside[(beside >= 0) & (beside < ends.size)]), [file], files)
        highs = np.append(records.offsets, begin)[gap_rows].tolist()
        gaps = [
            Gap(file, low, high)
            for low, high in zip(lows[gap_rows].tolist(), highs, strict=True)
            if high < file.end_offset or not _is_blank_end(file, low, files)
        ]
        yield ProvenBatch(file, records, gaps, begin)


def check_records(records: QueueRecords, log_files: Sequence[LogFile], files: FileLayer) -> None:
    """Raises NotProven where a unit does not lead to a record of its queue with its queue offset."""
    wrong = np.flatnonzero(~_are_own(records, log_files, files))
    if wrong.size:
        row = int(wrong[0])
        topic, queue_id = records.names[int(records.queues[row])]
        raise NotProven(
            f"unit {records.queue_offsets[row]} of {topic}/{queue_id} leads to offset {records.offsets[row]}, but its "
            "message is not there"
        )


def _are_own(records: QueueRecords, log_files: Sequence[LogFile], files: FileLayer) -> npt.NDArray[np.bool_]:
    """bool[n], whether each unit leads to its own record; a damaged record makes all later ones of its file false."""
    topics = pa.array([topic for topic, _ in records.names], pa.string())
    queue_ids = np.array([queue_id for _, queue_id in records.names], np.int64)
    own = np.zeros(records.offsets.size, np.bool_)
    for file in log_files:
        in_file = records.of_file(file)
        done = int(np.searchsorted(records.offsets, file.start_offset))
        try:
            for columns in read_records(Points(file, in_file.offsets, in_file.sizes), files=files):
                rows = slice(done, done + columns.rows)
                queues = records.queues[rows]
                topic = record_batch(columns, ("topic",))["topic"]
                own[rows] = (
                    np.array(pc.equal(topic, topics.take(pa.array(queues))), np.bool_)
                    & (columns["queue_id"] == queue_ids[queues])
                    & (columns["queue_offset"] == records.queue_offsets[rows])
                )
                done = rows.stop
        except CorruptRecordError:
            pass
    return own


def claimed_batches(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer
) -> Iterator[tuple[LogFile, int, QueueRecords]]:
    """(file, end, records) for each range of the log: the records that units claim to start there, in log order.

    Nothing proves them yet, but for the first and the last unit of each queue: a queue whose first unit does not lead
    to a record of its own is left out, and so are the records in this range of a queue whose last unit does not.
    """
    names = tuple((queue.topic, queue.queue_id) for queue in queues)
    log_begin, log_end = log_files[0].start_offset, log_files[-1].end_offset
    units = [_UnitReader(queue, log_begin, log_end, files) for queue in queues]
    for file in log_files:
        for end in [*range(file.start_offset + BATCH_BYTES, file.end_offset, BATCH_BYTES), file.end_offset]:
            records = _claimed(names, units, end)
            if records.offsets.size > BATCH_BYTES // MIN_RECORD_SIZE + 1:
                raise NotProven(f"the consume queues have more units than {file.path} has room for")
            refuted = _refuted_queues(records, units, file, files)
            yield file, end, records.rows(~np.isin(records.queues, refuted)) if refuted else records


def _claimed(names: tuple[tuple[str, int], ...], units: Sequence[_UnitReader], end: int) -> QueueRecords:
    """The next records that the units of all queues claim, up to the log offset `end`, in log order."""
    columns: list[list[Int64s]] = [[], [], [], []]
    for number, queue in enumerate(units):
        for offsets, sizes, queue_offsets in queue.before(end):
            arrays = (offsets, sizes, np.full(offsets.size, number, np.int64), queue_offsets)
            for column, values in zip(columns, arrays, strict=True):
                column.append(values)
    none = np.empty(0, np.int64)
    unordered = [np.concatenate([none, *column]) for column in columns]
    order = np.argsort(unordered[0], kind="stable")  # made of sorted runs, which the stable sort merges
    return QueueRecords(names, *(column[order] for column in unordered))


def _refuted_queues(records: QueueRecords, units: Sequence[_UnitReader], file: LogFile, files: FileLayer) -> list[int]:
    """Numbers of the queues whose first or last unit in the log is among `records` and leads to a foreign record."""
    rows = np.arange(records.offsets.size)
    first = np.full(len(units), -1, np.intp)
    last = first.copy()
    first[records.queues[::-1]] = rows[::-1]  # of several assignments the last one counts
    last[records.queues] = rows
    found = np.flatnonzero(first >= 0).tolist()
    begun = [number for number in found if not units[number].has_begun]
    ended = [number for number in found if units[number].has_ended]
    for number in begun:
        units[number].has_begun = True
    probes = np.unique(np.concatenate([first[begun], last[ended]]))
    refuted = []
    for row in probes[~_are_own(records.rows(probes), [file], files)].tolist():
        # A damaged record hides the later ones: each row is checked alone.
        if not _are_own(records.rows(np.array([row], np.intp)), [file], files)[0]:
            number = int(records.queues[row])
            refuted.append(number)
            units[number].end()
    return refuted


class _UnitReader:
    """Reader of the units of one queue that lead into the log, while their offsets ascend: after them lie old units."""

    def __init__(self, queue: QueueFiles, log_begin: int, log_end: int, files: FileLayer) -> None:
        self._queue, self._files = queue, files
        self._log_begin, self._log_end = log_begin, log_end
        self._number, self._position = 0, 0
        self._last = -1
        self.has_begun = False

    @property
    def has_ended(self) -> bool:
        """Whether all units that lead into the log were returned."""
        return self._number >= len(self._queue.paths)

    def end(self) -> None:
        """Return no more units."""
        self._number = len(self._queue.paths)

    def before(self, end: int) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
        """Commit log offsets, sizes and queue offsets (int64[n] each) of the next units, up to the log offset `end`."""
        while not self.has_ended:
            path = self._queue.paths[self._number]
            start = file_name_to_offset(os.path.basename(path))
            assert start is not None, "StoreDirectory lists no other files"
            try:
                file = self._files.open(path)
            except StoreError:  # retention has deleted it: its records are gone, or a gap
                self._go_on()
                continue
            with file:
                size = _FIRST_READ_BYTES // UNIT_SIZE * UNIT_SIZE
                while data := file.read(self._position, min(size, self._queue.file_size - self._position)):
                    units = np.frombuffer(data[: len(data) // UNIT_SIZE * UNIT_SIZE], UNIT_TYPE)
                    offsets, sizes = units["commit_log_offset"].astype(np.int64), units["size"].astype(np.int64)
                    rows = np.flatnonzero(self._is_used(offsets, sizes))
                    falls = np.flatnonzero(np.diff(offsets[rows], prepend=self._last) <= 0)
                    ascending = int(falls[0]) if falls.size else rows.size
                    count = int(np.searchsorted(offsets[rows[:ascending]], end))
                    taken = rows[:count]
                    if count:
                        self._last = int(offsets[taken[-1]])
                        yield offsets[taken], sizes[taken], (start + self._position) // UNIT_SIZE + taken
                    if count < ascending:
                        self._position += int(rows[count]) * UNIT_SIZE
                        return
                    if ascending < rows.size:
                        self.end()
                        return
                    self._position += len(data)
                    if not units.size or sizes[-1] <= 0 or self._position >= self._queue.file_size:
                        break
                    size = min(4 * size, _READ_BYTES)
            self._go_on()

    def _go_on(self) -> None:
        self._number += 1
        self._position = 0

    def _is_used(self, offsets: Int64s, sizes: Int64s) -> npt.NDArray[np.bool_]:
        used = (sizes > 0) & (offsets >= self._log_begin) & (offsets < self._log_end)
        filler: npt.NDArray[np.bool_] = (offsets == FILLER.commit_log_offset) & (sizes == FILLER.size)
        return used & ~filler


def _is_blank_end(file: LogFile, offset: int, files: FileLayer) -> bool:
    """Whether the rest of a file from `offset` on is a blank record, with nothing but zeros after its header."""
    left, position = file.end_offset - offset, offset - file.start_offset
    with files.open(file.path) as opened:
        data = np.frombuffer(opened.read(position, min(left, BLANK_SIZE)), np.uint8)
        return is_blank(data, left) and not opened.has_data_from(position + BLANK_SIZE)
