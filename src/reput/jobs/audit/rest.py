"""Units and index entries that belong to no record, and slots whose unit is not their record's, as findings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.counts import counted
from reput.files import DISK, File
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import FILLER, UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import decode_address
from reput.formats.index_file import ENTRY_SIZE, entry_position
from reput.formats.java import INT64_MAX
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.jobs.audit.files import ListedQueues
from reput.jobs.audit.losses import NO_WITNESSES, LogBounds, Range, Rests
from reput.jobs.audit.runs import Int64s
from reput.jobs.findings import Finding
from reput.kernels.unit_types import BATCH_UNIT_TYPE, INDEX_ENTRY_TYPE, UNIT_TYPE

_BLOCK_BYTES = 1 << 20
_FIRST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class QueueRest:
    """One queue, after all records were compared.

    Attributes:
        starts: positions of the files' first bytes in the queue.
        known: slots that belong to records.
        verified: from the first to the last slot whose unit is right; empty where no unit is right.
        different: (first slot, count, commit log offset of the first record, end offset of the last record) of records
            whose unit is not right.
        ext_different: (first slot, count) of units that are right except for their ext units.
        repeated: (slot, commit log offset, end offset) of single records whose slot belongs to an earlier record.
    """

    folder: str
    topic: str
    queue_id: int
    is_batch: bool
    file_size: int
    starts: tuple[int, ...]
    known: tuple[Range, ...]
    verified: Range
    different: tuple[tuple[int, int, int, int], ...]
    ext_different: tuple[tuple[int, int], ...]
    repeated: tuple[tuple[int, int, int], ...] = ()

    def path(self, slot: int) -> str:
        """Path of the file that holds a slot."""
        start = slot * self.unit_size
        name = offset_to_file_name(start - start % self.file_size if self.file_size else 0)
        return os.path.join(self.folder, self.topic, str(self.queue_id), name)

    def position(self, slot: int) -> int:
        """Position of a slot in its file."""
        return slot * self.unit_size % self.file_size if self.file_size else 0

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return BATCH_UNIT_SIZE if self.is_batch else UNIT_SIZE

    def finding(self, code: str, slot: int, count: int, text: str, offset: int | None = None) -> Finding:
        """Make a finding of `count` units from a slot on."""
        return Finding(
            code, self.path(slot), text, self.position(slot), offset, self.topic, self.queue_id,
            None if self.is_batch else slot, count,
        )  # fmt: skip


def look_at_queues(log: LogBounds, extensions: ListedQueues, queues: Sequence[QueueRest]) -> Rests:
    """Task: what is left of some queues."""
    counts = np.zeros(len(log.lost), np.int64)
    witnesses, expired = [NO_WITNESSES], [0]
    findings: list[Finding] = []
    for queue in queues:
        findings += _look_at_queue(log, extensions, queue, counts, witnesses, expired)
    return Rests(tuple(findings), counts, witnesses=np.concatenate(witnesses), expired_messages=sum(expired))


def _look_at_queue(
    log: LogBounds, extensions: ListedQueues, queue: QueueRest, counts: Int64s, witnesses: list[Int64s],
    expired: list[int],
) -> Iterator[Finding]:  # fmt: skip
    for first, count in queue.ext_different:
        yield _wrong_ext_unit(queue, extensions, first, count)
    misnumbered = _Misnumbered(queue)
    units_of_a_file = queue.file_size // queue.unit_size
    totals: dict[str, tuple[int, int]] = {}
    for start in queue.starts:
        begin = start // queue.unit_size
        with DISK.open(queue.path(begin)) as file:
            for first, end in _gaps(queue.known, begin, begin + units_of_a_file):
                for slots, units in _used_units(queue, file, first, end):
                    some = misnumbered.find(slots, units)
                    slots, units = slots[~some], units[~some]
                    counts += log.counts(units["commit_log_offset"].astype(np.int64))
                    if not queue.topic.startswith(LMQ_PREFIX):  # light queues repeat messages
                        witnessing, before = _witnesses(log, queue, slots, units)
                        witnesses.append(witnessing)
                        expired.append(before)
                    for code, some in _judged(log, queue, slots, units):
                        if code == "unit-wrong":
                            yield from _wrong_units(queue, slots[some], units[some])
                        else:
                            slot, total = totals.get(code, (int(slots[some][0]), 0))
                            totals[code] = slot, total + int(np.count_nonzero(some))
    for code, (slot, total) in totals.items():
        yield queue.finding(code, slot, total, counted(total, "unit"))
    yield from misnumbered.findings
    for first, count, offset, end in queue.different:
        if offset not in misnumbered.proven:
            yield from _different_units(queue, first, count, offset, end)
    for slot, offset, _ in queue.repeated:
        if offset not in misnumbered.proven:
            yield repeated_offset(queue, slot, 1, offset)


class _Misnumbered:
    """Records with a wrong queue offset: no record has the slot of a unit that leads to them, and its neighbours agree.

    The unit is then a witness, and right: no CRC covers the queue offset of a record.

    Attributes:
        proven: commit log offsets of such records.
        findings: one for each.
    """

    def __init__(self, queue: QueueRest) -> None:
        self._queue = queue
        self.proven: set[int] = set()
        self.findings: list[Finding] = []
        single = [(first, offset, end) for first, count, offset, end in queue.different if count == 1]
        self._single = (
            {} if queue.is_batch else {offset: (slot, end) for slot, offset, end in (*single, *queue.repeated)}
        )
        self._offsets = np.array(sorted(self._single), np.int64)

    def find(self, slots: Int64s, units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """bool[n], whether a unit at a slot of no record leads to such a record."""
        offsets = units["commit_log_offset"].astype(np.int64)
        found = np.isin(offsets, self._offsets)
        for row in np.flatnonzero(found).tolist():
            slot, offset = int(slots[row]), int(offsets[row])
            says, end = self._single[offset]
            beside = any(begin <= one < stop for begin, stop in self._queue.known for one in (slot - 1, slot + 1))
            found[row] = beside and offset + int(units["size"][row]) == end
            if found[row]:
                self.proven.add(offset)
                text = (
                    f"the record at commit log offset {offset} says queue offset {says}, the unit here and the records "
                    f"around it {slot}"
                )
                self.findings.append(self._queue.finding("queue-offset-wrong", slot, 1, text, offset))
        return found


def repeated_offset(queue: QueueRest, slot: int, count: int, offset: int) -> Finding:
    """Finding of records whose slots belong to earlier records."""
    text = f"the record at commit log offset {offset} comes later than the record that the unit is of"
    return queue.finding("queue-offset-repeated", slot, count, text, offset)


def _wrong_ext_unit(queue: QueueRest, extensions: ListedQueues, slot: int, count: int) -> Finding:
    """Finding at the position of the ext unit that a unit leads to."""
    with DISK.open(queue.path(slot)) as file:
        unit = file.read(queue.position(slot), UNIT_SIZE).ljust(UNIT_SIZE, b"\0")  # the file may have been cut
    offset = decode_address(decode_unit(unit).tags_code)
    position = offset % extensions.file_size
    path = extensions.file_path(queue.topic, queue.queue_id, offset - position)
    text = f"the unit in {queue.path(slot)} at {queue.position(slot)} leads here, where no ext unit of its record is"
    if count > 1:
        text += f", nor is it for the next {counted(count - 1, 'unit')}"
    return Finding("ext-unit-wrong", path, text, position, None, queue.topic, queue.queue_id, slot, count)


def _different_units(queue: QueueRest, first: int, count: int, offset: int, end: int) -> Iterator[Finding]:
    """Findings of slots whose unit is missing, or is not their record's."""
    if queue.is_batch:
        text = f"no units for {counted(count, 'message')} of the queue, commit log offsets {offset} to {end}"
        yield Finding("unit-missing", queue.path(0), text, None, offset, queue.topic, queue.queue_id, first, count)
        return
    if not queue.file_size:
        text = f"the queue has no file: no units for {counted(count, 'message')}, commit log offsets {offset} to {end}"
        yield queue.finding("unit-missing", first, count, text, offset)
        return
    slot = first
    while slot < first + count:
        size = min(
            first + count - slot,
            _BLOCK_BYTES // UNIT_SIZE,
            max(1, (queue.file_size - queue.position(slot)) // UNIT_SIZE),
        )
        path = queue.path(slot)
        units = np.zeros(size, UNIT_TYPE)
        if DISK.exists(path):
            with DISK.open(path) as file:
                file.read_into(queue.position(slot), units.view(np.uint8).data)
        for is_there, group in groupby(enumerate(is_used(units).tolist()), itemgetter(1)):
            some = [row for row, _ in group]
            begin = slot + some[0]
            record = offset if begin == first else None
            where = f"the record at commit log offset {offset}" if begin == first else f"a record before {end}"
            if is_there:
                unit = units[some[0]]
                text = (
                    f"expected the unit of {where}, found commit log offset {unit['commit_log_offset']}, size "
                    f"{unit['size']}, tags code {unit['tags_code']}"
                )
                yield queue.finding("unit-wrong", begin, len(some), text, record)
            else:
                yield queue.finding(
                    "unit-missing", begin, len(some), f"expected the unit of {where}, found none", record
                )
        slot += size


def _gaps(known: Sequence[Range], begin: int, end: int) -> Iterator[Range]:
    """Ranges of [begin, end) between the ascending ranges `known`."""
    for known_begin, known_end in known:
        if known_end <= begin:
            continue
        if known_begin >= end:
            break
        if known_begin > begin:
            yield begin, known_begin
        begin = known_end
    if begin < end:
        yield begin, end


def _used_units(queue: QueueRest, file: File, first: int, end: int) -> Iterator[tuple[Int64s, npt.NDArray[Any]]]:
    """Slots and units in use of a range of one file, block by block. A tail without any data is not read."""
    kind = BATCH_UNIT_TYPE if queue.is_batch else UNIT_TYPE
    begin, size = first, _FIRST_BYTES
    while begin < end:
        position = queue.position(begin)
        if begin > first and not file.has_data_from(position):
            return
        wanted = min(end - begin, max(size // kind.itemsize, 1))
        data = file.read(position, wanted * kind.itemsize)
        units = np.frombuffer(data, kind, len(data) // kind.itemsize)
        used = np.flatnonzero(is_used(units))
        if used.size:
            yield begin + used, units[used]
        begin, size = begin + wanted, _BLOCK_BYTES


def is_used(units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """bool[n], whether a unit of a queue or batch queue is of a message: it is neither empty nor a filler."""
    used: npt.NDArray[np.bool_] = units["size"] > 0
    if units.dtype == BATCH_UNIT_TYPE:
        used &= units["message_count"] > 0
        return used
    filler = np.ones(units.size, np.bool_)
    for name, value in FILLER._asdict().items():
        filler &= units[name] == value
    return used & ~filler


def _judged(
    log: LogBounds, queue: QueueRest, slots: Int64s, units: npt.NDArray[Any]
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Finding codes of units at slots that belong to no record: (code, bool[n] of the units with that code)."""
    offsets = units["commit_log_offset"].astype(np.int64)
    first, end = queue.verified
    has_verified = first < end
    expired = (offsets < log.begin) & (offsets >= 0) & ((slots < first) | (not has_verified))
    after_end = offsets >= log.end
    if has_verified:
        after_end |= slots >= end
    excused = log.is_lost(offsets)
    after_end &= ~excused & ~expired
    wrong = ~(expired | after_end | excused)
    for code, some in (("unit-expired", expired), ("unit-behind-end", after_end), ("unit-wrong", wrong)):
        if some.any():
            yield code, some


def _witnesses(log: LogBounds, queue: QueueRest, slots: Int64s, units: npt.NDArray[Any]) -> tuple[Int64s, int]:
    """Units that belong to no record, and may be of lost ones (`Rests.witnesses`), and messages before the log."""
    offsets, sizes = units["commit_log_offset"].astype(np.int64), units["size"].astype(np.int64)
    messages = units["message_count"].astype(np.int64) if queue.is_batch else np.ones_like(offsets)
    can_be = (offsets >= 0) & (sizes >= MIN_RECORD_SIZE) & (offsets <= INT64_MAX - sizes)
    first, end = queue.verified
    behind = (offsets >= log.end) & ((slots >= end) | (first == end))
    before = can_be & (offsets < log.begin) & ((slots < first) | (first == end))
    some = can_be & (behind | log.is_lost(offsets))
    return np.stack([offsets, offsets + sizes, messages], axis=1)[some], int(messages[before].sum())


def _wrong_units(queue: QueueRest, slots: Int64s, units: npt.NDArray[Any]) -> Iterator[Finding]:
    starts = np.flatnonzero(np.append(True, np.diff(slots) != 1))
    counts = np.diff(np.append(starts, slots.size))
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        offset = int(units["commit_log_offset"][start])
        text = f"leads to commit log offset {offset}, where no record of this queue offset is"
        yield queue.finding("unit-wrong", int(slots[start]), count, text, offset)


@dataclass(frozen=True, slots=True)
class IndexRest:
    """One index file, after all keys were compared.

    Attributes:
        slots: count of hash slots.
        begin_ms: store time of the first entry.
        end: number after the last entry.
        known: entries that belong to keys.
    """

    path: str
    slots: int
    begin_ms: int
    end: int
    known: tuple[Range, ...]


def look_at_index_file(log: LogBounds, rest: IndexRest) -> Rests:
    """Task: what is left of one index file."""
    findings: list[Finding] = []
    counts = np.zeros(len(log.lost), np.int64)
    expired_ms, now_ms = 0, time.time() * 1000
    totals: dict[str, tuple[int, int]] = {}
    with DISK.open(rest.path) as file:
        for begin, end in _gaps(rest.known, 1, rest.end):
            for first in range(begin, end, _BLOCK_BYTES // ENTRY_SIZE):
                size = min(end - first, _BLOCK_BYTES // ENTRY_SIZE) * ENTRY_SIZE
                data = file.read(entry_position(rest.slots, first), size)
                entries = np.frombuffer(data, INDEX_ENTRY_TYPE, len(data) // ENTRY_SIZE)
                offsets = entries["phy_offset"].astype(np.int64)
                expired, after_end = (offsets < log.begin) & (offsets >= 0), offsets >= log.end
                excused = log.is_lost(offsets)
                counts += log.counts(offsets)
                seconds = entries["time_diff"].astype(np.int64)
                seconds[: int(first == 1)] = 0  # that of the first entry counts from the file before
                times = rest.begin_ms + seconds * 1000
                times = times[expired & (times <= now_ms)]  # a wrong one must not hide the others
                expired_ms = max(expired_ms, int(times.max(initial=0)))
                wrong = np.flatnonzero(~(expired | after_end | excused))
                findings += _wrong_entries(rest, first + wrong, offsets[wrong])
                for code, some in (("expired", expired), ("behind-end", after_end & ~excused)):
                    if some.any():
                        number, total = totals.get(code, (first + int(some.argmax()), 0))
                        totals[code] = number, total + int(np.count_nonzero(some))
    for code, (number, total) in totals.items():
        position = entry_position(rest.slots, number)
        findings.append(Finding(f"index-entry-{code}", rest.path, counted(total, "entry"), position, count=total))
    return Rests(tuple(findings), counts, expired_ms)


def _wrong_entries(rest: IndexRest, numbers: Int64s, offsets: Int64s) -> Iterator[Finding]:
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 1)[: numbers.size])
    counts = np.diff(np.append(starts, numbers.size))
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        number, offset = int(numbers[start]), int(offsets[start])
        text = f"entry {number} leads to commit log offset {offset}, where no record has its key"
        yield Finding(
            "index-entry-wrong", rest.path, text, entry_position(rest.slots, number), offset, count=int(count)
        )
