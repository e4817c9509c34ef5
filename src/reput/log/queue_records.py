"""The records of a log as its consume queues know them, and the proof that they may be believed.

Queues are derived, and can be anything: behind the log, restored from an older copy, half of them gone; RocketMQ also
leaves units behind a queue's end that lead to records which a crash cut off. So nothing is taken from a queue before

- its first and its last unit in the log lead to records of its own (a further queue, of light messages, holds the
  records of other topics; a queue that fails is left out, so its records count as unknown),
- no two units of all queues claim the same byte, and
- beside every stretch of the log that no unit claims, the units before and behind it lead to records of their own.

Then the units are tiles: what they claim is records, and what they do not claim (transactions in the making, what was
not dispatched yet, batch consume queues) begins and ends at records, and is read as it is.
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
from reput.kernels.record_batch import record_batch
from reput.kernels.unit_types import UNIT_TYPE
from reput.log.directory import LogFile, QueueFiles
from reput.log.points import Points, read_records
from reput.log.scan import is_blank

Int64s = npt.NDArray[np.int64]

#: Log bytes that are proven at once; at most 1.5 million records fit.
PIECE_BYTES = 128 << 20
_FIRST_READ_BYTES, _READ_BYTES = 64 << 10, 4 << 20


class NotProven(Exception):
    """Raised when queues or index do not prove what they say; the text is the reason. The log is read as it is then."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueRecords:
    """Records by their units, in log order: int64[n] each.

    Attributes:
        offsets, sizes: where they lie in the commit log.
        queues: numbers into `names`, their topics and queue ids.
        queue_offsets: which message of the queue each is.
    """

    names: tuple[tuple[str, int], ...]
    offsets: Int64s
    sizes: Int64s
    queues: Int64s
    queue_offsets: Int64s

    def rows(self, wanted: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> QueueRecords:
        """Some of the records."""
        arrays = (self.offsets, self.sizes, self.queues, self.queue_offsets)
        return QueueRecords(self.names, *(array[wanted] for array in arrays))

    def of_file(self, file: LogFile) -> QueueRecords:
        """The records that start in a file."""
        begin, end = np.searchsorted(self.offsets, [file.start_offset, file.end_offset])
        return self.rows(np.arange(begin, end))


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of one file that no unit claims: it begins at a record's start, as does what is behind it."""

    file: LogFile
    begin: int
    end: int


def joined_records(parts: Sequence[QueueRecords]) -> QueueRecords:
    """The records of parts of one log, of which there is at least one, in its order."""
    columns = [(part.offsets, part.sizes, part.queues, part.queue_offsets) for part in parts]
    return QueueRecords(parts[0].names, *(np.concatenate(column) for column in zip(*columns, strict=True)))


class ProvenPiece(NamedTuple):
    """What the queues prove of a stretch of one log file: records, and all between them that no unit claims.

    Attributes:
        end: behind the stretch's last record, or the file's end.
    """

    file: LogFile
    records: QueueRecords
    gaps: list[Gap]
    end: int


def proven_pieces(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer
) -> Iterator[ProvenPiece]:
    """What the queues prove, in log order, and the rest of the log; a file's blank end is no gap.

    Raises NotProven where the queues contradict the log or each other.
    """
    begin = -1
    for file, end, records in claimed_pieces(queues, log_files, files):
        begin = max(begin, file.start_offset)
        ends = records.offsets + records.sizes
        overlap = np.flatnonzero(records.offsets < np.append(begin, ends[:-1])[: ends.size])
        if overlap.size:
            raise NotProven(f"two consume queues claim offset {records.offsets[overlap[0]]}")
        if ends.size and ends[-1] > file.end_offset:
            raise NotProven(f"a consume queue claims a record beyond the end of {file.path}")
        lows = np.append(begin, ends)
        begin = file.end_offset if end == file.end_offset else int(lows[-1])
        open_ones = np.flatnonzero(np.append(records.offsets, begin) > lows)
        # The last record stands before what the next piece may find to be a gap.
        beside = np.unique(np.concatenate([open_ones - 1, open_ones, [ends.size - 1]]))
        check_records(records.rows(beside[(beside >= 0) & (beside < ends.size)]), [file], files)
        highs = np.append(records.offsets, begin)[open_ones].tolist()
        gaps = [
            Gap(file, low, high)
            for low, high in zip(lows[open_ones].tolist(), highs, strict=True)
            if high < file.end_offset or not _is_blank_end(file, low, files)
        ]
        yield ProvenPiece(file, records, gaps, begin)


def check_records(records: QueueRecords, log_files: Sequence[LogFile], files: FileLayer) -> None:
    """Raises NotProven where a unit does not lead to a record of its own queue and queue offset."""
    wrong = np.flatnonzero(~_own(records, log_files, files))
    if wrong.size:
        row = int(wrong[0])
        topic, queue_id = records.names[int(records.queues[row])]
        raise NotProven(
            f"unit {records.queue_offsets[row]} of {topic}/{queue_id} leads to offset {records.offsets[row]}, where "
            "that message is not"
        )


def _own(records: QueueRecords, log_files: Sequence[LogFile], files: FileLayer) -> npt.NDArray[np.bool_]:
    """bool[n], whether each unit leads to its own record; one that is damaged makes all behind it in its file false."""
    topics = pa.array([topic for topic, _ in records.names], pa.string())
    queue_ids = np.array([queue_id for _, queue_id in records.names], np.int64)
    own = np.zeros(records.offsets.size, np.bool_)
    for file in log_files:
        part = records.of_file(file)
        done = int(np.searchsorted(records.offsets, file.start_offset))
        try:
            for columns in read_records(Points(file, part.offsets, part.sizes), files=files):
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


def claimed_pieces(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer
) -> Iterator[tuple[LogFile, int, QueueRecords]]:
    """What the units claim to begin in stretches of log files, with the end of each, in log order; nothing proves it.

    Queues whose first record is not their own are left out, and of those whose last one is not, what this piece has.
    """
    names = tuple((queue.topic, queue.queue_id) for queue in queues)
    log_begin, log_end = log_files[0].start_offset, log_files[-1].end_offset
    units = [_Units(queue, log_begin, log_end, files) for queue in queues]
    for file in log_files:
        for end in [*range(file.start_offset + PIECE_BYTES, file.end_offset, PIECE_BYTES), file.end_offset]:
            records = _claimed(names, units, end)
            if records.offsets.size > PIECE_BYTES // MIN_RECORD_SIZE + 1:
                raise NotProven(f"the consume queues have more units than {file.path} has room for")
            strange = _strangers(records, units, file, files)
            yield file, end, records.rows(~np.isin(records.queues, strange)) if strange else records


def _claimed(names: tuple[tuple[str, int], ...], units: Sequence[_Units], end: int) -> QueueRecords:
    """The next units of all queues, those that lead to before `end`, in log order."""
    columns: list[list[Int64s]] = [[], [], [], []]
    for number, queue in enumerate(units):
        for offsets, sizes, queue_offsets in queue.before(end):
            part = (offsets, sizes, np.full(offsets.size, number, np.int64), queue_offsets)
            for column, values in zip(columns, part, strict=True):
                column.append(values)
    none = np.empty(0, np.int64)
    unordered = [np.concatenate([none, *column]) for column in columns]
    order = np.argsort(unordered[0], kind="stable")  # made of sorted runs, which the stable sort merges
    return QueueRecords(names, *(column[order] for column in unordered))


def _strangers(records: QueueRecords, units: Sequence[_Units], file: LogFile, files: FileLayer) -> list[int]:
    """The queues that begin or end here with a record that is not their own."""
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
    strange = []
    for row in probes[~_own(records.rows(probes), [file], files)].tolist():
        # One that is damaged hides those behind it: each is asked for alone.
        if not _own(records.rows(np.array([row], np.intp)), [file], files)[0]:
            number = int(records.queues[row])
            strange.append(number)
            units[number].end()
    return strange


class _Units:
    """The units of one queue that lead into the log, as far as these ascend: behind a queue's end lies what was cut."""

    def __init__(self, queue: QueueFiles, log_begin: int, log_end: int, files: FileLayer) -> None:
        self._queue, self._files = queue, files
        self._log_begin, self._log_end = log_begin, log_end
        self._number, self._position = 0, 0
        self._last = -1
        self.has_begun = False

    @property
    def has_ended(self) -> bool:
        """Whether no unit leads further into the log than those that were returned."""
        return self._number >= len(self._queue.paths)

    def end(self) -> None:
        """Return no further units."""
        self._number = len(self._queue.paths)

    def before(self, end: int) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
        """Commit log offsets, sizes and queue offsets of the next units, those that lead to before `end`."""
        while not self.has_ended:
            path = self._queue.paths[self._number]
            start = file_name_to_offset(os.path.basename(path))
            assert start is not None, "StoreDirectory lists no other files"
            try:
                file = self._files.open(path)
            except StoreError:  # retention has taken it: its records are gone, or a gap
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
    """Whether the blank record lies here, or too few bytes for one."""
    left = file.end_offset - offset
    with files.open(file.path) as opened:
        data = np.frombuffer(opened.read(offset - file.start_offset, min(left, BLANK_SIZE)), np.uint8)
    return is_blank(data, left)
