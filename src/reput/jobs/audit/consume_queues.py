"""Compare consume queues with the log: each record of a range has its unit at the slot of its queue offset.

A task returns ranges of slots. The merge knows the slots of all tasks, and so the slots that belong to no record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK, FileLayer
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.consume_queue_ext import MAX_ADDRESS
from reput.formats.multi_dispatch import takes_part
from reput.formats.paths import topic_folder_name
from reput.formats.record_layout import SysFlag
from reput.jobs.audit.consume_queue_ext import ExtFiles
from reput.jobs.audit.unit_reader import UnitReader, is_used
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import read_records_at

Int64s = npt.NDArray[np.int64]

#: Rows that are compared at once: with many queues, each has enough rows to be worth opening its file.
_ROWS = 128 << 10

#: State of a range of slots: the units are their records'; they are not; they are, except for their ext units.
VERIFIED, DIFFERENT, EXT_DIFFERENT = range(3)


class SlotRanges(NamedTuple):
    """Ranges of consecutive queue offsets, int64[n] each.

    Attributes:
        names: topic and queue id of each queue.
        queues: numbers into `names`.
        firsts, counts: first queue offset, and count of queue offsets.
        offsets, ends: commit log offset of the first record, and of the end of the last record.
        states: VERIFIED, DIFFERENT or EXT_DIFFERENT.
    """

    names: tuple[tuple[str, int], ...]
    queues: Int64s
    firsts: Int64s
    counts: Int64s
    offsets: Int64s
    ends: Int64s
    states: Int64s


@dataclass(frozen=True, slots=True)
class UnitTarget:
    """Consume queue files that records are compared with.

    Attributes:
        folder: path of the consume queues.
        file_size: size of each queue file, in bytes.
        batch_topics: topics whose records have no units in these queues.
        multi_dispatch: whether records have units in further queues that they name.
        ext_folder, ext_file_size: of extensions; size 0 if there are none.
        files: file layer that reads them.
        may_lack: whether a unit that is not there is no difference, since it may be elsewhere.
        instead: queues that have the units which these lack.
    """

    folder: str
    file_size: int
    batch_topics: frozenset[str]
    multi_dispatch: bool
    ext_folder: str
    ext_file_size: int
    files: FileLayer = DISK
    may_lack: bool = False
    instead: UnitTarget | None = None


@dataclass(slots=True)
class _Rows:
    """Columns of records that have a unit, in log order: lists with an array a scan."""

    queues: list[npt.NDArray[np.int32]] = field(default_factory=list)
    queue_offsets: list[Int64s] = field(default_factory=list)
    offsets: list[Int64s] = field(default_factory=list)
    sizes: list[npt.NDArray[np.int32]] = field(default_factory=list)
    tags_codes: list[Int64s] = field(default_factory=list)
    #: Tags codes that are right, too: in units that RocketMQ 4.9.7 has dispatched again for delayed messages.
    other_tags_codes: list[Int64s] = field(default_factory=list)
    timestamps: list[Int64s] = field(default_factory=list)
    #: True for units that only some versions of RocketMQ make.
    optional: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    count: int = 0


class UnitCheck:
    """Compares units with the records of one task. `close` returns the ranges.

    Attributes:
        found_any: whether any slot of these records had a unit.
    """

    def __init__(self, target: UnitTarget) -> None:
        self._target = target
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._names: list[tuple[str, int]] = []
        self._rows = _Rows()
        self._parts: list[tuple[Int64s, ...]] = []
        self._units = [UnitReader(one.folder, one.file_size, one.files) for one in (target, target.instead) if one]
        self.found_any = False
        self._ext = ExtFiles(target.ext_folder, target.ext_file_size) if target.ext_file_size else None

    def put(self, columns: RecordColumns) -> None:
        """Add scanned records (`ScanLevel.PROPERTIES` or above), and compare when there are enough."""
        record_columns, sources = columns, None
        if self._target.multi_dispatch:
            columns, sources = add_multi_dispatch_rows(columns, enable_lmq=True, any_topic=True)
        numbers = np.array([self._number(topic, queue_id) for topic, queue_id in columns.queues()], np.int32)
        queues = numbers[columns["queue"]]
        kind = columns["sys_flag"] & SysFlag.TRANSACTION_MASK
        kept = (queues >= 0) & (columns["queue_offset"] >= 0)
        kept &= (kind != SysFlag.TRANSACTION_PREPARED) & (kind != SysFlag.TRANSACTION_ROLLBACK)
        taken = slice(None) if kept.all() else kept
        rows = self._rows
        rows.queues.append(queues[taken])
        rows.queue_offsets.append(columns["queue_offset"][taken].copy())  # the scanner reuses its memory
        rows.offsets.append(columns["commit_log_offset"][taken].copy())
        rows.sizes.append(columns["store_size"][taken].copy())
        rows.tags_codes.append(columns["tags_code"][taken].copy())
        hashed = _hashed_tags(columns)
        rows.other_tags_codes.append(rows.tags_codes[-1] if hashed is None else hashed[taken])
        rows.timestamps.append(columns["store_timestamp"][taken].copy())
        rows.optional.append(_optional_rows(record_columns, columns, sources)[taken])
        rows.count += rows.queues[-1].size
        if rows.count >= _ROWS:
            self._compare()

    def close(self) -> SlotRanges:
        """Compare the remaining records, and return the ranges of all."""
        if self._rows.count:
            self._compare()
        none = (np.empty(0, np.int64),) * 6
        return SlotRanges(
            tuple(self._names), *(np.concatenate(column) for column in zip(none, *self._parts, strict=True))
        )

    def _number(self, topic: bytes, queue_id: int) -> int:
        """Number of a queue; -1 if its records have no units."""
        number = self._numbers.get((topic, queue_id))
        if number is None:
            name = topic_folder_name(topic)
            number = -1 if name is None or name in self._target.batch_topics else len(self._names)
            if number >= 0:
                assert name is not None
                self._names.append((name, queue_id))
            self._numbers[topic, queue_id] = number
        return number

    def _compare(self) -> None:
        rows, self._rows = self._rows, _Rows()
        unsorted = np.concatenate(rows.queues)
        # NumPy sorts 16-bit numbers by counting, in a fifth of the time.
        order = np.argsort(unsorted.astype(np.uint16) if len(self._names) < 1 << 16 else unsorted, kind="stable")
        queues, slots = unsorted[order].astype(np.int64), np.concatenate(rows.queue_offsets)[order]
        expected = np.empty(order.size, UNIT_TYPE)
        offsets, sizes = np.concatenate(rows.offsets)[order], np.concatenate(rows.sizes)[order].astype(np.int64)
        expected["commit_log_offset"], expected["size"] = offsets, sizes
        expected["tags_code"] = np.concatenate(rows.tags_codes)[order]
        found = self._read(queues, slots)
        self.found_any = self.found_any or bool((found["size"] != 0).any())
        states = np.full(order.size, VERIFIED, np.int64)
        if not np.array_equal(found.view(np.uint8), expected.view(np.uint8)):
            tags_codes, others = found["tags_code"].astype(np.int64), np.concatenate(rows.other_tags_codes)[order]
            right = (found["commit_log_offset"] == expected["commit_log_offset"]) & (found["size"] == expected["size"])
            if self._ext is not None:
                leads = right & (tags_codes <= MAX_ADDRESS)
                resolved, timestamps = tags_codes[leads], np.concatenate(rows.timestamps)[order][leads]
                unresolved = self._ext.resolve(self._names, queues[leads], resolved, timestamps)
                unresolved |= (resolved != expected["tags_code"][leads]) & (resolved != others[leads])
                states[np.flatnonzero(leads)[unresolved]] = EXT_DIFFERENT
                tags_codes[leads] = others[leads]
            right &= (tags_codes == expected["tags_code"]) | (tags_codes == others)
            states[~right] = DIFFERENT
            optional = np.concatenate(rows.optional)[order]
            if self._target.may_lack:
                optional |= ~is_used(found)
            taken = ~((states == DIFFERENT) & optional)
            if not taken.all():
                queues, slots, offsets, sizes, states = (
                    column[taken] for column in (queues, slots, offsets, sizes, states)
                )
        self._parts.append(_ranges(queues, slots, offsets, sizes, states))

    def _read(self, queues: Int64s, slots: Int64s) -> npt.NDArray[np.void]:
        """Units at the slots: the first ones that are there."""
        found = self._units[0].read(self._names, queues, slots)
        for others in self._units[1:]:
            lacks = ~is_used(found)
            if lacks.any():
                found[lacks] = others.read(self._names, queues[lacks], slots[lacks])
        return found


def _hashed_tags(columns: RecordColumns) -> Int64s | None:
    """int64[rows], hash of the tags for every topic. None: equal to `tags_code`, as no message is delayed."""
    delayed = [number for number, (topic, _) in enumerate(columns.queues()) if topic == SCHEDULE_TOPIC.encode()]
    if not delayed:
        return None
    rows = np.flatnonzero(np.isin(columns["queue"], delayed))
    hashed = columns["tags_code"].copy()
    positions = columns["position"][rows].astype(np.int64)
    read = read_records_at(columns.buffer, positions, np.ascontiguousarray(columns["commit_log_offset"][rows]))
    hashed[rows[: read.rows]] = read["tags_code"]
    return np.asarray(hashed)


def _optional_rows(
    records: RecordColumns, columns: RecordColumns, sources: npt.NDArray[np.int32] | None
) -> npt.NDArray[np.bool_]:
    """bool[rows], rows of further queues that RocketMQ 5 does not make, as the record's topic takes no part."""
    optional = np.zeros(columns.rows, np.bool_)
    if sources is not None:
        further = np.flatnonzero(sources < 0)
        own = np.searchsorted(records["commit_log_offset"], columns["commit_log_offset"][further])
        excluded = np.array([not takes_part(topic.decode("utf-8", "replace")) for topic, _ in records.queues()])
        optional[further] = excluded[records["queue"][own]]
    return optional


def _ranges(queues: Int64s, slots: Int64s, offsets: Int64s, sizes: Int64s, states: Int64s) -> tuple[Int64s, ...]:
    """Columns of `SlotRanges` for rows sorted by queue.

    A range ends at the end of the last verified record: records after it may not have been dispatched yet.
    """
    verified = states == VERIFIED
    last = int((offsets + sizes)[verified].max()) if verified.any() else -1
    after = offsets >= last
    goes_on = (
        (queues[1:] == queues[:-1])
        & (slots[1:] == slots[:-1] + 1)
        & (states[1:] == states[:-1])
        & (after[1:] == after[:-1])
    )
    starts = np.flatnonzero(np.append(True, ~goes_on)[: queues.size])
    counts = np.diff(np.append(starts, queues.size))
    lasts = starts + counts - 1
    return queues[starts], slots[starts], counts, offsets[starts], (offsets + sizes)[lasts], states[starts]
