"""Units and index entries that belong to no record, and slots whose unit is not their record's, as findings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.counts import counted
from reput.files import DISK, File, FileLayer
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import decode_address
from reput.formats.index_file import ENTRY_SIZE, entry_position
from reput.formats.java import INT64_MAX
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.jobs.audit.ascending_runs import Int64s
from reput.jobs.audit.files import ListedQueues
from reput.jobs.audit.lost_ranges import NO_WITNESSES, LogBounds, Range, Unmatched
from reput.jobs.audit.range_tables import NO_RANGES, RangeTable, free_blocks, is_inside
from reput.jobs.audit.unit_reader import is_used
from reput.jobs.findings import Finding, Findings
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, INDEX_ENTRY_TYPE, UNIT_TYPE

_BLOCK_BYTES = 1 << 20
_FIRST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ComparedQueue:
    """One queue, after all records were compared.

    Attributes:
        starts: positions of the files' first bytes in the queue.
        known: begin and end of slots that belong to records, a `union`.
        verified: from the first to the last slot whose unit is right; empty if no unit is right.
        different: (first slot, count, commit log offset of the first record, end offset of the last record) of records
            whose unit is not right.
        ext_different: (first slot, count) of units that are right except for their ext units.
        repeated: (slot, commit log offset, end offset) of single records whose slot belongs to an earlier record.
        files: file layer that reads the files.
        database: folder of the database that has the units, and no files; empty for files.
    """

    folder: str
    topic: str
    queue_id: int
    is_batch: bool
    file_size: int
    starts: tuple[int, ...]
    known: RangeTable = field(default_factory=lambda: RangeTable(NO_RANGES))
    verified: Range = (0, 0)
    different: RangeTable = field(default_factory=lambda: RangeTable(np.empty((0, 4), np.int64)))
    ext_different: RangeTable = field(default_factory=lambda: RangeTable(NO_RANGES))
    repeated: RangeTable = field(default_factory=lambda: RangeTable(np.empty((0, 3), np.int64)))
    files: FileLayer = DISK
    database: str = ""

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
        path, position = (self.database, None) if self.database else (self.path(slot), self.position(slot))
        return Finding(
            code, path, text, position, offset, self.topic, self.queue_id, None if self.is_batch else slot, count
        )


def look_at_queues(log: LogBounds, extensions: ListedQueues, queues: Sequence[ComparedQueue]) -> Unmatched:
    """Task: what is left of some queues."""
    counts = np.zeros(len(log.told), np.int64)
    witnesses, expired = [NO_WITNESSES], [0]
    findings = Findings()
    for queue in queues:
        _look_at_queue(log, extensions, queue, findings, counts, witnesses, expired)
    return Unmatched(findings, counts, witnesses=np.concatenate(witnesses), expired_messages=sum(expired))


def _look_at_queue(
    log: LogBounds, extensions: ListedQueues, queue: ComparedQueue, findings: Findings, counts: Int64s,
    witnesses: list[Int64s], expired: list[int],
) -> None:  # fmt: skip
    wrong_ext = queue.ext_different.rows
    findings.add_many(
        "ext-unit-wrong", len(wrong_ext), int(wrong_ext[:, 1].sum()),
        lambda row: _wrong_ext_unit(queue, extensions, *wrong_ext[row].tolist()),
    )  # fmt: skip
    misnumbered = _Misnumbered(queue)
    units_of_a_file = queue.file_size // queue.unit_size
    totals: dict[str, tuple[int, int]] = {}
    for start in queue.starts:
        begin = start // queue.unit_size
        with queue.files.open(queue.path(begin)) as file:
            for slots, units in _used_units(queue, file, begin, begin + units_of_a_file):
                some = misnumbered.find(slots, units, findings)
                slots, units = slots[~some], units[~some]
                counts += log.counts(units["commit_log_offset"].astype(np.int64))
                if not queue.topic.startswith(LMQ_PREFIX):  # light queues repeat messages
                    witnessing, before = _witnesses(log, queue, slots, units)
                    witnesses.append(witnessing)
                    expired.append(before)
                for code, some in _judged(log, queue, slots, units):
                    if code == "unit-wrong":
                        _add_wrong_units(queue, slots[some], units[some], findings)
                    else:
                        slot, total = totals.get(code, (int(slots[some][0]), 0))
                        totals[code] = slot, total + int(np.count_nonzero(some))
    findings.add(queue.finding(code, slot, total, counted(total, "unit")) for code, (slot, total) in totals.items())
    different = queue.different.rows
    different = different[~misnumbered.is_proven(different[:, 2])]
    if queue.is_batch or not queue.file_size:
        findings.add_many(
            "unit-missing", len(different), int(different[:, 1].sum()),
            lambda row: _missing_range(queue, *different[row].tolist()),
        )  # fmt: skip
    else:
        _add_different_units(queue, different, findings)
    repeated = queue.repeated.rows
    repeated = repeated[~misnumbered.is_proven(repeated[:, 1])]
    findings.add_many(
        "queue-offset-repeated", len(repeated), len(repeated),
        lambda row: repeated_offset(queue, int(repeated[row, 0]), 1, int(repeated[row, 1])),
    )  # fmt: skip


class _Misnumbered:
    """Records with a wrong queue offset: no record has the slot of a unit that leads to them, and its neighbours agree.

    The unit is then a witness, and right: no CRC covers the queue offset of a record.
    """

    def __init__(self, queue: ComparedQueue) -> None:
        self._queue = queue
        self._proven = [np.empty(0, np.int64)]
        different = queue.different.rows
        single = different[(different[:, 1] == 1) | queue.is_batch]  # a unit may be of several messages
        ones = np.insert(queue.repeated.rows, 1, 1, axis=1)
        rows = np.concatenate([single, ones])
        rows = rows[np.argsort(rows[:, 2], kind="stable")]
        self._slots, self._counts, self._offsets, self._ends = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]

    def is_proven(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n], whether the record at a commit log offset is one of them."""
        return np.isin(offsets, np.concatenate(self._proven))

    def find(self, slots: Int64s, units: npt.NDArray[Any], findings: Findings) -> npt.NDArray[np.bool_]:
        """bool[n], whether a unit at a slot of no record leads to such a record; each is a finding."""
        offsets, sizes = units["commit_log_offset"].astype(np.int64), units["size"].astype(np.int64)
        known = self._queue.known.rows
        found = np.isin(offsets, self._offsets) & (is_inside(known, slots - 1) | is_inside(known, slots + 1))
        if found.any():
            at = np.searchsorted(self._offsets, offsets[found])
            found[found] = offsets[found] + sizes[found] == self._ends[at]
        if self._queue.is_batch:
            for row in np.flatnonzero(found).tolist():
                found[row] = self._joins(int(slots[row]), units[row])
        rows = np.flatnonzero(found)

        def finding(number: int) -> Finding:
            slot, offset = int(slots[rows[number]]), int(offsets[rows[number]])
            unit = units[rows[number]]
            right = (int(unit["base_offset"]), int(unit["message_count"])) if self._queue.is_batch else (slot, 1)
            text = (
                f"the record at commit log offset {offset} says {_offsets(*self._said(offset))}, the unit here and the "
                f"records around it {_offsets(*right)}"
            )
            return self._queue.finding("queue-offset-wrong", slot, 1, text, offset)

        findings.add_many("queue-offset-wrong", rows.size, rows.size, finding)
        self._proven.append(offsets[rows])
        return found

    def _said(self, offset: int) -> tuple[int, int]:
        """First queue offset and count of messages that the record at a commit log offset says."""
        at = np.searchsorted(self._offsets, offset)
        return int(self._slots[at]), int(self._counts[at])

    def _joins(self, slot: int, unit: np.void) -> bool:
        """Whether a unit of a batch queue ends where the right one after it begins, or begins where that before ends.

        The latter says nothing of the number of messages, so it counts if the record says another queue offset.
        """
        first, count, offset = (int(unit[name]) for name in ("base_offset", "message_count", "commit_log_offset"))
        before, after = self._right_unit(slot - 1), self._right_unit(slot + 1)
        if after is not None and after.base_offset == first + count:
            return True
        return before is not None and before.next_offset == first != self._said(offset)[0]

    def _right_unit(self, slot: int) -> BatchUnit | None:
        """The unit of a batch queue at a slot, if it is its record's."""
        queue = self._queue
        if not is_inside(queue.known.rows, np.array([slot]))[0]:
            return None
        with DISK.open(queue.path(slot)) as file:
            return decode_batch_unit(file.read(queue.position(slot), BATCH_UNIT_SIZE))


def _offsets(first: int, count: int) -> str:
    return f"queue offset {first}" if count == 1 else f"queue offsets {first} to {first + count - 1}"


def repeated_offset(queue: ComparedQueue, slot: int, count: int, offset: int) -> Finding:
    """Finding of records whose slots belong to earlier records."""
    text = f"the record at commit log offset {offset} comes later than the record that the unit is of"
    return queue.finding("queue-offset-repeated", slot, count, text, offset)


def _wrong_ext_unit(queue: ComparedQueue, extensions: ListedQueues, slot: int, count: int) -> Finding:
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


def _missing_range(queue: ComparedQueue, first: int, count: int, offset: int, end: int) -> Finding:
    """Finding of messages without units, if the queue is a batch queue, or has no file."""
    of = f"{counted(count, 'message')}{' of the queue' if queue.is_batch else ''}, commit log offsets {offset} to {end}"
    if queue.is_batch:
        path, text = queue.path(0), f"no units for {of}"
        return Finding("unit-missing", path, text, None, offset, queue.topic, queue.queue_id, first, count)
    return queue.finding("unit-missing", first, count, f"the queue has no file: no units for {of}", offset)


def _add_different_units(queue: ComparedQueue, different: Int64s, findings: Findings) -> None:
    """Add slots whose unit is missing, or is not their record's; a finding is of one file, and of one kind of slots."""
    firsts, ends = different[:, 0], different[:, 0] + different[:, 1]
    units_of_a_file = max(queue.file_size // UNIT_SIZE, 1)
    spans = np.unique(np.stack([firsts, ends - 1], axis=1) // units_of_a_file, axis=0)
    files = np.unique(np.concatenate([firsts[:0], *(np.arange(low, high + 1) for low, high in spans.tolist())]))
    reached = np.maximum.accumulate(ends)
    for begin in (files * units_of_a_file).tolist():
        end = begin + units_of_a_file
        low, high = np.searchsorted(reached, begin, "right"), np.searchsorted(firsts, end)
        some = different[low:high]
        _add_of_file(queue, some[some[:, 0] + some[:, 1] > begin], begin, end, findings)


def _add_of_file(queue: ComparedQueue, different: Int64s, begin: int, end: int, findings: Findings) -> None:
    """`_add_different_units` for one file, whose slots are [begin, end)."""
    firsts, stops = np.maximum(different[:, 0], begin), np.minimum(different[:, 0] + different[:, 1], end)
    base = int(firsts[0])
    units = np.zeros(int(stops.max()) - base, UNIT_TYPE)
    if queue.files.exists(queue.path(base)):
        with queue.files.open(queue.path(base)) as file:
            file.read_into(queue.position(base), units.view(np.uint8).data)
    numbers = np.repeat(np.arange(len(firsts)), stops - firsts)
    slots = np.arange(numbers.size) + np.repeat(firsts - np.append(0, np.cumsum(stops - firsts)[:-1]), stops - firsts)
    is_there = is_used(units)[slots - base]
    at = np.flatnonzero(np.append(True, (np.diff(numbers) != 0) | (np.diff(is_there) != 0)))
    counts = np.diff(np.append(at, slots.size))
    for code, some in (("unit-wrong", is_there[at]), ("unit-missing", ~is_there[at])):
        groups = np.flatnonzero(some)

        def finding(number: int, code: str = code, groups: Int64s = groups) -> Finding:
            row = at[groups[number]]
            slot, (first, _, offset, until) = int(slots[row]), different[numbers[row]].tolist()
            where = f"the record at commit log offset {offset}" if slot == first else f"a record before {until}"
            found = "none"
            if code == "unit-wrong":
                unit = units[slot - base]
                found = (
                    f"commit log offset {unit['commit_log_offset']}, size {unit['size']}, tags code {unit['tags_code']}"
                )
            text = f"expected the unit of {where}, found {found}"
            return queue.finding(code, slot, int(counts[groups[number]]), text, offset if slot == first else None)

        findings.add_many(code, groups.size, int(counts[groups].sum()), finding)


def _used_units(queue: ComparedQueue, file: File, begin: int, end: int) -> Iterator[tuple[Int64s, npt.NDArray[Any]]]:
    """Slots and units in use of one file that belong to no record, block by block. A tail without data is not read."""
    kind = BATCH_UNIT_TYPE if queue.is_batch else UNIT_TYPE
    first_size, size = max(_FIRST_BYTES // kind.itemsize, 1), _BLOCK_BYTES // kind.itemsize
    for number, block in enumerate(free_blocks(queue.known.rows, begin, end, first_size, size)):
        position = queue.position(block.begin)
        if number and not file.has_data_from(position):
            return
        data = file.read(position, (block.end - block.begin) * kind.itemsize)
        units = np.frombuffer(data, kind, len(data) // kind.itemsize)
        used = np.flatnonzero(is_used(units) & block.is_free[: units.size])
        if used.size:
            yield block.begin + used, units[used]


def _judged(
    log: LogBounds, queue: ComparedQueue, slots: Int64s, units: npt.NDArray[Any]
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


def _witnesses(log: LogBounds, queue: ComparedQueue, slots: Int64s, units: npt.NDArray[Any]) -> tuple[Int64s, int]:
    """Units that belong to no record, and may be of lost ones (`Unmatched.witnesses`), and messages before the log."""
    offsets, sizes = units["commit_log_offset"].astype(np.int64), units["size"].astype(np.int64)
    messages = units["message_count"].astype(np.int64) if queue.is_batch else np.ones_like(offsets)
    can_be = (offsets >= 0) & (sizes >= MIN_RECORD_SIZE) & (offsets <= INT64_MAX - sizes)
    first, end = queue.verified
    behind = (offsets >= log.end) & ((slots >= end) | (first == end))
    before = can_be & (offsets < log.begin) & ((slots < first) | (first == end))
    some = can_be & (behind | log.is_lost(offsets))
    return np.stack([offsets, offsets + sizes, messages], axis=1)[some], int(messages[before].sum())


def _add_wrong_units(queue: ComparedQueue, slots: Int64s, units: npt.NDArray[Any], findings: Findings) -> None:
    starts = np.flatnonzero(np.append(True, np.diff(slots) != 1))
    counts = np.diff(np.append(starts, slots.size))

    def finding(number: int) -> Finding:
        start = starts[number]
        offset = int(units["commit_log_offset"][start])
        text = f"leads to commit log offset {offset}, where no record of this queue offset is"
        return queue.finding("unit-wrong", int(slots[start]), int(counts[number]), text, offset)

    findings.add_many("unit-wrong", starts.size, slots.size, finding)


@dataclass(frozen=True, slots=True)
class ComparedIndexFile:
    """One index file, after all keys were compared.

    Attributes:
        slots: count of hash slots.
        begin_ms: store time of the first entry.
        end: number after the last entry.
        known: begin and end of entries that belong to keys, a `union`.
    """

    path: str
    slots: int
    begin_ms: int
    end: int
    known: RangeTable


def look_at_index_file(log: LogBounds, index_file: ComparedIndexFile) -> Unmatched:
    """Task: what is left of one index file."""
    findings = Findings()
    counts = np.zeros(len(log.told), np.int64)
    expired_ms, now_ms = 0, time.time() * 1000
    totals: dict[str, tuple[int, int]] = {}
    size = _BLOCK_BYTES // ENTRY_SIZE
    with DISK.open(index_file.path) as file:
        for block in free_blocks(index_file.known.rows, 1, index_file.end, size, size):
            data = file.read(entry_position(index_file.slots, block.begin), (block.end - block.begin) * ENTRY_SIZE)
            entries = np.frombuffer(data, INDEX_ENTRY_TYPE, len(data) // ENTRY_SIZE)
            if not entries.size:
                break
            free = np.flatnonzero(block.is_free[: entries.size])
            entries, numbers = entries[free], block.begin + free
            offsets = entries["phy_offset"].astype(np.int64)
            expired, after_end = (offsets < log.begin) & (offsets >= 0), offsets >= log.end
            excused = log.is_lost(offsets)
            counts += log.counts(offsets)
            seconds = entries["time_diff"].astype(np.int64)
            seconds[numbers == 1] = 0  # that of the first entry counts from the file before
            times = index_file.begin_ms + seconds * 1000
            times = times[expired & (times <= now_ms)]  # a wrong one must not hide the others
            expired_ms = max(expired_ms, int(times.max(initial=0)))
            wrong = ~(expired | after_end | excused)
            _add_wrong_entries(index_file, numbers[wrong], offsets[wrong], findings)
            for code, some in (("expired", expired), ("behind-end", after_end & ~excused)):
                if some.any():
                    number, total = totals.get(code, (int(numbers[some][0]), 0))
                    totals[code] = number, total + int(np.count_nonzero(some))
    for code, (number, total) in totals.items():
        position = entry_position(index_file.slots, number)
        findings.add([Finding(f"index-entry-{code}", index_file.path, counted(total, "entry"), position, count=total)])
    return Unmatched(findings, counts, expired_ms)


def _add_wrong_entries(index_file: ComparedIndexFile, numbers: Int64s, offsets: Int64s, findings: Findings) -> None:
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 1)[: numbers.size])
    counts = np.diff(np.append(starts, numbers.size))

    def finding(at: int) -> Finding:
        number, offset = int(numbers[starts[at]]), int(offsets[starts[at]])
        text = f"entry {number} leads to commit log offset {offset}, where no record has its key"
        position = entry_position(index_file.slots, number)
        return Finding("index-entry-wrong", index_file.path, text, position, offset, count=int(counts[at]))

    findings.add_many("index-entry-wrong", starts.size, numbers.size, finding)
