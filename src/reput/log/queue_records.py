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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import CorruptRecordError, StoreError
from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE
from reput.formats.paths import file_name_to_offset
from reput.formats.record import BLANK_SIZE
from reput.kernels.consume_queue import UNIT_TYPE
from reput.kernels.record_batch import record_batch
from reput.log.directory import LogFile, QueueFiles
from reput.log.points import Points, read_records
from reput.log.scan import is_blank

Int64s = npt.NDArray[np.int64]

#: More units than these, or index entries, are not asked: the proof holds them all, in about 100 bytes each.
MOST_UNITS = 16_000_000
_FIRST_READ_BYTES = 64 << 10


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


def proven_records(
    queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer
) -> tuple[QueueRecords, list[Gap]]:
    """All records that the queues prove, and the rest of the log; a file's blank end is no gap.

    Raises NotProven where the queues contradict the log or each other.
    """
    records = _without_strangers(read_queues(queues, log_files, files), log_files, files)
    if not records.offsets.size:
        raise NotProven("no consume queue has a record of this log")
    ends = records.offsets + records.sizes
    overlap = np.flatnonzero(records.offsets[1:] < ends[:-1])
    if overlap.size:
        raise NotProven(f"two consume queues claim offset {records.offsets[1:][overlap[0]]}")
    gaps, beside = [], []
    for file in log_files:
        begin, end = np.searchsorted(records.offsets, [file.start_offset, file.end_offset]).tolist()
        lows = np.append(file.start_offset, ends[begin:end])
        highs = np.append(records.offsets[begin:end], file.end_offset)
        if end > begin and ends[end - 1] > file.end_offset:
            raise NotProven(f"a consume queue claims a record beyond the end of {file.path}")
        open_ones = np.flatnonzero(highs > lows)
        beside += [begin + k - 1 for k in open_ones.tolist() if k] + [
            begin + k for k in open_ones.tolist() if begin + k < end
        ]
        for low, high in zip(lows[open_ones].tolist(), highs[open_ones].tolist(), strict=True):
            if high < file.end_offset or not _is_blank_end(file, low, files):
                gaps.append(Gap(file, low, high))
    check_records(records.rows(np.unique(np.array(beside, np.intp))), log_files, files)
    return records, gaps


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


def _without_strangers(records: QueueRecords, log_files: Sequence[LogFile], files: FileLayer) -> QueueRecords:
    """Less the queues whose first or last record is not their own."""
    count = len(records.names)
    first = np.full(count, records.offsets.size, np.intp)
    last = np.full(count, -1, np.intp)
    np.minimum.at(first, records.queues, np.arange(records.offsets.size))
    np.maximum.at(last, records.queues, np.arange(records.offsets.size))
    probes = np.unique(np.concatenate([first[last >= 0], last[last >= 0]]))
    strange = set()
    for row in probes[~_own(records.rows(probes), log_files, files)].tolist():
        # One that is damaged hides those behind it: each is asked for alone.
        alone = records.rows(np.array([row], np.intp))
        if not _own(alone, log_files, files)[0]:
            strange.add(int(records.queues[row]))
    return records.rows(~np.isin(records.queues, list(strange))) if strange else records


def read_queues(queues: Sequence[QueueFiles], log_files: Sequence[LogFile], files: FileLayer) -> QueueRecords:
    """The records that units in use claim, and nothing proves. Raises NotProven where there are too many."""
    count = 0
    parts: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
    log_begin, log_end = log_files[0].start_offset, log_files[-1].end_offset
    for number, queue in enumerate(queues):
        for offsets, sizes, queue_offsets in _read_queue(queue, files):
            used = (sizes > 0) & (offsets >= log_begin) & (offsets < log_end)
            used &= ~((offsets == FILLER.commit_log_offset) & (sizes == FILLER.size))
            found = int(np.count_nonzero(used))
            count += found
            if count > MOST_UNITS:
                raise NotProven(f"the consume queues have more than {MOST_UNITS} units of this log")
            if found:
                parts.append((offsets[used], sizes[used], np.full(found, number, np.int64), queue_offsets[used]))
    names = tuple((queue.topic, queue.queue_id) for queue in queues)
    if not parts:
        return QueueRecords(names, *(np.empty(0, np.int64) for _ in range(4)))
    columns = [np.concatenate([part[i] for part in parts]) for i in range(4)]
    order = np.argsort(columns[0], kind="stable")  # made of sorted runs, which the stable sort merges
    return QueueRecords(names, *(column[order] for column in columns))


def _read_queue(queue: QueueFiles, files: FileLayer) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
    """Commit log offsets, sizes and queue offsets of the units in use, and of some behind them."""
    for path in queue.paths:
        start = file_name_to_offset(os.path.basename(path))
        assert start is not None, "StoreDirectory lists no other files"
        try:
            file = files.open(path)
        except StoreError:  # retention has taken it: its records are gone, or a gap
            continue
        with file:
            position, size = 0, _FIRST_READ_BYTES // UNIT_SIZE * UNIT_SIZE
            while data := file.read(position, min(size, queue.file_size - position)):
                units = np.frombuffer(data[: len(data) // UNIT_SIZE * UNIT_SIZE], UNIT_TYPE)
                first = (start + position) // UNIT_SIZE
                yield (
                    units["commit_log_offset"].astype(np.int64),
                    units["size"].astype(np.int64),
                    np.arange(first, first + units.size, dtype=np.int64),
                )
                position += len(data)
                if not units.size or units["size"][-1] <= 0 or position >= queue.file_size:
                    break
                size *= 4


def _is_blank_end(file: LogFile, offset: int, files: FileLayer) -> bool:
    """Whether the blank record lies here, or too few bytes for one."""
    left = file.end_offset - offset
    with files.open(file.path) as opened:
        data = np.frombuffer(opened.read(offset - file.start_offset, min(left, BLANK_SIZE)), np.uint8)
    return is_blank(data, left)
