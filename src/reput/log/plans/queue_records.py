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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError, StoreError
from reput.files import FileLayer
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.paths import file_name_to_offset
from reput.formats.record_layout import BLANK_SIZE
from reput.kernels.queues.claimed_records import (
    RUN_COUNT,
    RUN_ENDED,
    RUN_FIRST,
    RUN_LAST,
    RUN_NEXT,
    RUN_QUEUE_OFFSET,
    RUN_TAKEN,
    Claims,
    gaps_before,
)
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_batch import record_batch
from reput.log.directory import LogFile, QueueFiles
from reput.log.file_window import is_blank
from reput.log.point_reads import Points, read_records

Int64s = npt.NDArray[np.int64]

#: Log bytes proven in one batch: the claims of usual records stay in the processor's cache. With 64 MiB they do not.
BATCH_BYTES = 32 << 20
#: Bytes of units that are in memory, of all queues together, and the fewest and the most units of one queue.
_UNITS_BYTES = 64 << 20
_LEAST_UNITS, _MOST_UNITS = 64, 50_000


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
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer, log_end: int | None = None
) -> Iterator[ProvenBatch]:
    """Proven records and gaps of log files, in log order; the blank record at a file's end is no gap.

    log_end: end of the whole log, if these files are a part of it. A part is proven by itself, as a log is whose first
    files retention has deleted.

    Raises NotProven if the queues contradict the log or each other.
    """
    begin = -1
    before: QueueRecords | None = None  # the last record of the batch before, if a gap after it is not checked
    for file, end, records in claimed_batches(queues, log_files, files, log_end):
        begin = max(begin, file.start_offset)
        gap_rows, wrong = gaps_before(records.offsets, records.sizes, begin)
        if wrong is not None:
            raise NotProven(f"two consume queues claim offset {records.offsets[wrong]}")
        count = records.offsets.size
        last = int(records.offsets[-1] + records.sizes[-1]) if count else begin
        if last > file.end_offset:
            raise NotProven(f"a consume queue claims a record beyond the end of {file.path}")
        lows = np.where(gap_rows > 0, records.offsets[gap_rows - 1] + records.sizes[gap_rows - 1], begin)
        highs = records.offsets[gap_rows]
        begin = last
        if end == file.end_offset and last < end:
            gap_rows, lows, highs, begin = np.append(gap_rows, count), np.append(lows, last), np.append(highs, end), end
        if before is not None and gap_rows[:1].tolist() == [0]:
            check_records(before, log_files, files)
        beside = np.unique(np.concatenate([gap_rows - 1, gap_rows]))
        check_records(records.rows(beside[(beside >= 0) & (beside < count)]), [file], files)
        if count:
            before = None if gap_rows[-1:].tolist() == [count] else records.rows(np.array([count - 1]))
        gaps = [
            Gap(file, low, high)
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
            if high < file.end_offset or not _is_blank_end(file, low, files)
        ]
        yield ProvenBatch(file, records, gaps, begin)
    if before is not None:  # what follows may be a gap of another part
        check_records(before, log_files, files)


def check_records(records: QueueRecords, log_files: Sequence[LogFile], files: FileLayer) -> None:
    """Raises NotProven if a unit does not lead to a record of its queue with its queue offset."""
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
    if not records.offsets.size:
        return np.empty(0, np.bool_)
    numbers, queues = np.unique(records.queues, return_inverse=True)
    names = [records.names[number] for number in numbers.tolist()]
    # A folder's name may be no UTF-8: that of no record.
    topics = [topic.encode("utf-8", "replace").decode() for topic, _ in names]
    topic_numbers = {topic: number for number, topic in enumerate(topics)}
    queue_topics = np.array([topic_numbers[topic] for topic in topics], np.int32)
    queue_ids = np.array([queue_id for _, queue_id in names], np.int64)
    own = np.zeros(records.offsets.size, np.bool_)
    for file in log_files:
        in_file = records.of_file(file)
        if not in_file.offsets.size:
            continue
        done = int(np.searchsorted(records.offsets, file.start_offset))
        try:
            for columns in read_records(Points(file, in_file.offsets, in_file.sizes), files=files):
                rows = slice(done, done + columns.rows)
                own[rows] = (
                    (_topic_numbers(columns, topic_numbers) == queue_topics[queues[rows]])
                    & (columns["queue_id"] == queue_ids[queues[rows]])
                    & (columns["queue_offset"] == records.queue_offsets[rows])
                )
                done = rows.stop
        except CorruptRecordError:
            pass
    return own


def _topic_numbers(columns: RecordColumns, numbers: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """The number of each record's topic, -1 for one without a number.

    Buffers are read as they are: whatever makes an Arrow array of Python's or NumPy's values, or the reverse, imports
    pandas if it is installed, half a second for a planner of Spark that has no other need of it.
    """
    coded = record_batch(columns, ("topic",))["topic"].dictionary_encode()
    found = np.array([numbers.get(topic, -1) for topic in coded.dictionary.to_pylist()], np.int32)
    return found[np.frombuffer(coded.indices.buffers()[1], np.int32, columns.rows)]


def claimed_batches(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer, log_end: int | None = None
) -> Iterator[tuple[LogFile, int, QueueRecords]]:
    """(file, end, records) for each range of the log: the records that units claim to start there, in log order.

    Nothing proves them yet, but for the first and the last unit of each queue: a queue whose first unit does not lead
    to a record of its own is left out, and so are the records in this range of a queue whose last unit does not.
    log_end: as for `proven_batches`.
    """
    units = _Units(queues, log_files[0].start_offset, log_end or log_files[-1].end_offset, files)
    for file in log_files:
        begin = file.start_offset
        for end in [*range(begin + BATCH_BYTES, file.end_offset, BATCH_BYTES), file.end_offset]:
            records = units.claimed(begin, end)
            if records is None:
                raise NotProven(f"the consume queues have more units than {file.path} has room for")
            refuted = units.refuted(records, file)
            yield file, end, records.rows(~np.isin(records.queues, refuted)) if refuted else records
            begin = end


class _Units:
    """Units of all queues that lead into the log, range by range; of each queue, some are in memory."""

    def __init__(self, queues: Sequence[QueueFiles], log_begin: int, log_end: int, files: FileLayer) -> None:
        self._names = tuple((queue.topic, queue.queue_id) for queue in queues)
        self._queues, self._files = queues, files
        self._log_begin, self._log_end = log_begin, log_end
        room = _UNITS_BYTES // UNIT_SIZE // max(len(queues), 1)
        self._claims = Claims(len(queues), BATCH_BYTES, min(max(room, _LEAST_UNITS), _MOST_UNITS))
        #: For each queue: the number of its file, and the position in it, of the next units that are read.
        self._numbers = np.zeros(len(queues), np.int64)
        self._positions = np.zeros(len(queues), np.int64)
        self._has_begun = np.zeros(len(queues), np.bool_)
        if log_begin > 0:
            for number, queue in enumerate(queues):
                self._numbers[number], self._positions[number] = self._first_unit(queue)

    def claimed(self, begin: int, end: int) -> QueueRecords | None:
        """Records that the next units claim, up to the log offset `end`; None: more than fit there."""
        self._claims.begin()
        while (queue := self._claims.take(self._log_begin, self._log_end, begin, end)) is not None:
            self._fill(queue)
        return None if self._claims.is_full else QueueRecords(self._names, *self._claims.in_order(begin))

    def refuted(self, records: QueueRecords, file: LogFile) -> list[int]:
        """Numbers of the queues whose first or last unit in the log is one of `records`, and leads elsewhere."""
        runs = self._claims.runs
        taken = runs[:, RUN_TAKEN] > 0
        begun = np.flatnonzero(taken & ~self._has_begun)
        ended = np.flatnonzero(taken & (runs[:, RUN_ENDED] != 0))
        if not begun.size and not ended.size:
            return []
        self._has_begun[begun] = True
        offsets = np.concatenate([runs[begun, RUN_FIRST], runs[ended, RUN_LAST]])
        probes = np.searchsorted(records.offsets, offsets)
        for number, queue in enumerate(np.concatenate([begun, ended]).tolist()):
            while records.queues[probes[number]] != queue:  # another queue claims the same offset
                probes[number] += 1
        probes = np.unique(probes)
        refuted = []
        for row in probes[~_are_own(records.rows(probes), [file], self._files)].tolist():
            # A damaged record hides the later ones: each row is checked alone.
            if not _are_own(records.rows(np.array([row], np.intp)), [file], self._files)[0]:
                number = int(records.queues[row])
                refuted.append(number)
                runs[number, RUN_ENDED] = 1
        return refuted

    def _first_unit(self, queue: QueueFiles) -> tuple[int, int]:
        """Number of the file, and the position in it, of a queue's first unit that does not lead before the log.

        Found by bisection: if units do not ascend, it may be another one, and the proof fails.
        """
        per_file = queue.file_size // UNIT_SIZE
        if not per_file:
            return len(queue.paths), 0
        low, high = 0, len(queue.paths) * per_file
        while low < high:
            middle = (low + high) // 2
            unit = np.zeros(UNIT_SIZE, np.uint8)
            is_there = self._read(queue.paths[middle // per_file], middle % per_file * UNIT_SIZE, unit)
            offset, size = unit.view(UNIT_TYPE)[["commit_log_offset", "size"]][0]
            is_gone = not is_there and middle // per_file < len(queue.paths) - 1
            if is_gone or (size > 0 and offset < self._log_begin):
                low = middle + 1
            else:
                high = middle
        return low // per_file, low % per_file * UNIT_SIZE

    def _fill(self, number: int) -> None:
        """Read the next units of a queue, or end it."""
        claims, queue = self._claims, self._queues[number]
        buffer, run = claims.buffers[number], claims.runs[number]
        while self._numbers[number] < len(queue.paths):
            path = queue.paths[self._numbers[number]]
            start = file_name_to_offset(os.path.basename(path))
            assert start is not None, "StoreDirectory lists no other files"
            position = int(self._positions[number])
            count = self._read(path, position, buffer[: queue.file_size - position])
            if count:
                run[RUN_COUNT], run[RUN_NEXT] = count, 0
                run[RUN_QUEUE_OFFSET] = (start + position) // UNIT_SIZE
                self._positions[number] = position = position + count * UNIT_SIZE
                last = buffer[count * UNIT_SIZE - UNIT_SIZE :].view(UNIT_TYPE)
                if last["size"][0] <= 0 or position == queue.file_size:  # the end of what is written, or of the file
                    self._go_on(number)
                self._ask(number)
                return
            self._go_on(number)
        run[RUN_ENDED] = 1

    def _ask(self, number: int) -> None:
        """Ask the disk for a queue's next units, so that it reads them while those in memory are taken."""
        paths = self._queues[number].paths[self._numbers[number] :]
        with suppress(StoreError):
            for path in paths[:1]:
                with self._files.open(path) as file:
                    file.ask(int(self._positions[number]), self._claims.buffers.shape[1])

    def _read(self, path: str, position: int, buffer: npt.NDArray[np.uint8]) -> int:
        """Read whole units from a position on; returns how many there are."""
        try:
            file = self._files.open(path)
        except StoreError:  # retention has deleted it: its records are gone, or a gap
            return 0
        with file:
            return file.read_into(position, buffer.data) // UNIT_SIZE

    def _go_on(self, number: int) -> None:
        self._numbers[number] += 1
        self._positions[number] = 0


def _is_blank_end(file: LogFile, offset: int, files: FileLayer) -> bool:
    """Whether the rest of a file from `offset` on is a blank record, with nothing but zeros after its header."""
    left, position = file.end_offset - offset, offset - file.start_offset
    with files.open(file.path) as opened:
        data = np.frombuffer(opened.read(position, min(left, BLANK_SIZE)), np.uint8)
        return is_blank(data, left) and not opened.has_data_from(position + BLANK_SIZE)
