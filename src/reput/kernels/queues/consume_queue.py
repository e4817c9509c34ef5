"""Consume queue units: columns -> units grouped by queue, and units -> the messages of one pull."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.consume_queue import SIZE, TAGS_CODE, UNIT_SIZE
from reput.formats.consume_queue_ext import MAX_ADDRESS
from reput.formats.record_layout import SysFlag
from reput.kernels.machine.jit import inlined, kernel
from reput.kernels.machine.mapped_pages import BLOCK, PART_SHIFT
from reput.kernels.machine.memory import (
    load_i32,
    load_i32_native,
    load_i64,
    load_i64_native,
    load_u8,
    prefetch,
    store_i32,
    store_i32_native,
    store_i64,
    store_i64_native,
)
from reput.kernels.records.columns import (
    N_QUEUE,
    N_SIZE,
    N_SYS_FLAG,
    W_COMMIT_LOG_OFFSET,
    W_QUEUE_OFFSET,
    W_TAGS_CODE,
    RecordColumns,
)

_TRANSACTION, _PREPARED, _ROLLBACK = (
    SysFlag.TRANSACTION_MASK,
    SysFlag.TRANSACTION_PREPARED,
    SysFlag.TRANSACTION_ROLLBACK,
)
_UNIT = UNIT_SIZE
_MAX_ADDRESS = MAX_ADDRESS
#: How far a pull prefetches units, in bytes: the processor does not prefetch beyond a page.
_UNITS_AHEAD = 1024


@kernel("int64(int64[:, :], int32[:, :], int64, int64, int64[::1], int64[::1], int64[::1], int64, int64)")
def _group(wide, narrow, begin, end, next_offsets, counts, starts, units, rows):  # type: ignore[no-untyped-def]
    for queue in range(counts.size):
        counts[queue] = 0
    stop = end
    for row in range(begin, end):
        kind = narrow[N_SYS_FLAG, row] & _TRANSACTION
        if kind != _PREPARED and kind != _ROLLBACK:
            queue = narrow[N_QUEUE, row]
            expected = next_offsets[queue] + counts[queue]
            if wide[W_QUEUE_OFFSET, row] > expected:
                stop = row
                break
            counts[queue] += wide[W_QUEUE_OFFSET, row] == expected
    start = 0
    for queue in range(counts.size):
        starts[queue] = start
        start += counts[queue] * _UNIT
        counts[queue] = 0
    for row in range(begin, stop):
        kind = narrow[N_SYS_FLAG, row] & _TRANSACTION
        if kind != _PREPARED and kind != _ROLLBACK:
            queue = narrow[N_QUEUE, row]
            if wide[W_QUEUE_OFFSET, row] == next_offsets[queue] + counts[queue]:
                unit = units + starts[queue] + counts[queue] * _UNIT
                store_i64(unit, wide[W_COMMIT_LOG_OFFSET, row])
                store_i32(unit + SIZE, narrow[N_SIZE, row])
                store_i64(unit + TAGS_CODE, wide[W_TAGS_CODE, row])
                if rows:
                    store_i32_native(rows + (unit - units) // _UNIT * 4, row)
                counts[queue] += 1
    return stop


class UnitRuns(NamedTuple):
    """Units of some rows, grouped: queue k has `counts[k]` units from byte `starts[k]` of `units` on."""

    units: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    #: The first row without a unit: `end`, or a row whose queue offset leaves a gap after its queue's last unit.
    stop_row: int
    #: int32[units], the row of each unit, if it was asked for.
    rows: npt.NDArray[np.int32] | None = None


def group_units(
    columns: RecordColumns, next_offsets: npt.NDArray[np.int64], begin: int = 0, *, with_rows: bool = False
) -> UnitRuns:
    """Build the units of the rows from `begin` on, grouped by queue, in log order within each queue.

    Prepared and rolled back messages get no unit (`CommitLogDispatcherBuildConsumeQueue`). A row whose queue offset is
    before its queue's next offset is a repeat, and is dropped (`ConsumeQueue.putMessagePositionInfo`).

    Args:
        columns: Scanned at `ScanLevel.PROPERTIES` or above.
        next_offsets: int64[queues], the next queue offset of each queue of the scan; not changed.
        begin: First row.
        with_rows: Return the row of each unit, too.
    """
    queues = columns.queue_rows.size
    units = np.empty((columns.rows - begin) * UNIT_SIZE, np.uint8)
    rows = np.empty(columns.rows - begin, np.int32) if with_rows else None
    counts, starts = np.empty(queues, np.int64), np.empty(queues, np.int64)
    stop = _group(
        columns.wide, columns.narrow, begin, columns.rows, next_offsets, counts, starts, units.ctypes.data,
        0 if rows is None else rows.ctypes.data,
    )  # fmt: skip
    return UnitRuns(units, starts, counts, stop, rows)


class Selected(IntEnum):
    """Result of `select_units` for the last unit that it examined, if it took no message."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2


#: Results of `select_run`.
UNASKED_UNITS, UNASKED = 2, 4
#: Entries of the table `SelectLimits.asked`.
ASKED_FILES = 64


class SelectLimits(NamedTuple):
    """Limits of every pull of a store, as `select_units` reads them: native int64, in this order."""

    log_file_size: int
    #: The last this many bytes of the log count as in memory; the next two limits hold for messages there.
    memory_size: int
    memory_count: int
    memory_bytes: int
    disk_count: int
    disk_bytes: int
    #: Address of a table, by the log file's number modulo `ASKED_FILES`: offset at which a file begins, address of the
    #: marks of its map.
    asked: int = 0


#: Number of values that `select_units` writes before the pairs: messages, units examined, `Selected`, bytes, commit log
#: offset of the last unit examined, commit log offset of the first message taken.
PULL_RESULT_COUNT = 6


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def select_units(  # type: ignore[no-untyped-def]
    units, count, log_begin, log_end, tags, tag_count, max_count, max_size, limits, out
):
    """Choose the messages of one pull, as `DefaultMessageStore.getMessage`, but none after the first one's log file.

    All arguments are numbers and addresses: with an array and fourteen numbers the call itself took a tenth of a pull.

    Args:
        units: Address of the first unit; `count` units may be examined.
        log_begin: First commit log offset that can be read; `log_end` is the offset after the last byte.
        tags: Address of `tag_count` native int32 tag hashes, one of which must equal the low 32 bits of a tags code; 0
            takes all messages. A tags code that is the address of an ext unit matches: callers with extensions resolve
            it before.
        max_count: Largest number of messages; `max_size` largest number of bytes, but one message is always taken.
        limits: Address of `SelectLimits`.
        out: Address of `PULL_RESULT_COUNT` native int64, then room for `max_count` (at least 1) pairs of commit log
            offset and size.
    """
    file_size, memory_begin = load_i64_native(limits), log_end - load_i64_native(limits + 8)
    memory_count, memory_size = load_i64_native(limits + 16), load_i64_native(limits + 24)
    disk_count, disk_size = load_i64_native(limits + 32), load_i64_native(limits + 40)
    pairs = out + 8 * PULL_RESULT_COUNT
    taken, examined, status = 0, 0, 1
    total = last = first = file_begin = file_end = np.int64(0)
    while examined < count:
        unit = units + examined * _UNIT
        offset, size = load_i64(unit), np.int64(load_i32(unit + SIZE))
        if not file_begin <= offset < file_end:  # one division for each file, not for each unit
            if taken:
                break
            file_begin = offset - offset % file_size
            file_end = file_begin + file_size
        if taken:
            most_count, most_size = memory_count, memory_size
            if offset < memory_begin:
                most_count, most_size = disk_count, disk_size
            too_many = taken + 1 > max_count or taken + 1 > most_count
            if too_many or total >= max_size or total + size > max_size or total + size > most_size:
                break
        examined += 1
        last = offset
        matches = tag_count == 0 or load_i64(unit + TAGS_CODE) <= _MAX_ADDRESS
        for i in range(tag_count):
            matches |= load_i32_native(tags + 4 * i) == load_i32(unit + TAGS_CODE + 4)
        if not matches:
            if not taken:
                status = 1
            continue
        inside = log_begin <= offset and 0 < size <= log_end - offset and size <= file_end - offset
        if not inside:
            if not taken:
                status = 2
            continue
        if taken == 0:
            first = offset
        store_i64_native(pairs + 16 * taken, offset)
        store_i64_native(pairs + 16 * taken + 8, size)
        taken += 1
        total += size
        status = 0
    store_i64_native(out, taken)
    store_i64_native(out + 8, examined)
    store_i64_native(out + 16, status)
    store_i64_native(out + 24, total)
    store_i64_native(out + 32, last)
    store_i64_native(out + 40, first)


@inlined
def _is_asked(marks, position, size):  # type: ignore[no-untyped-def]
    """Whether the parts of a map were asked for that bytes lie in."""
    asked = True
    for part in range(position >> PART_SHIFT, ((position + size - 1) >> PART_SHIFT) + 1):
        asked = asked and load_u8(marks + part) != 0
    return asked


@kernel("UniTuple(int64, 4)(int64, int64, int64, int64, int64, int64, int64, int64)", short=True)
def select_run(units, count, map_fields, log_begin, log_end, max_count, max_size, limits):  # type: ignore[no-untyped-def]
    """`select_units` for the usual pull: the first units without a filter, so that nothing needs to be copied.

    Arguments as in `select_units`; `count` is at least 1. `map_fields`: address of the `MapFields` of the units' map; 0
    if the pages of units and records were looked at.

    Returns:
        Number of messages, or 0 if this is not the usual pull: it has units without a record or out of order, or
        messages both in memory and not. Bytes of the messages. Commit log offset of the first message. 1 if more of the
        log follows the last message than counts as in memory, and `UNASKED` more if a part of the log with messages was
        not asked for; or `UNASKED_UNITS`, and nothing else, if a part of the map with units was not.
    """
    most = max(min(count, max_count), 1)
    if map_fields and not _is_asked(
        load_i64_native(map_fields + 16), units - load_i64_native(map_fields), most * _UNIT
    ):
        return 0, np.int64(0), np.int64(0), UNASKED_UNITS
    first = load_i64(units)
    begin, end, limit = max(log_begin, log_end - load_i64_native(limits + 8)), log_end, limits + 16
    is_on_disk = first < log_end - load_i64_native(limits + 8)
    if is_on_disk:  # the same limits for all messages
        begin, end, limit = log_begin, min(begin, log_end), limits + 32
    if not begin <= first < end:
        return 0, np.int64(0), first, 0
    file_begin = first - first % load_i64_native(limits)
    file_end = file_begin + load_i64_native(limits)
    begin, end = first, min(end, file_end)  # messages of a queue are in the log's order
    marks, is_asked = np.int64(0), True
    if map_fields:
        entry = load_i64_native(limits + 48) + 16 * (file_begin // load_i64_native(limits) % ASKED_FILES)
        is_asked, marks = load_i64_native(entry) == file_begin, load_i64_native(entry + 8)
    most = max(min(count, max_count, load_i64_native(limit)), 1)
    most_size = min(max_size, load_i64_native(limit + 8))
    taken, total, known = 0, np.int64(0), np.int64(-1)
    while taken < most:
        unit = units + taken * _UNIT
        prefetch(unit + _UNITS_AHEAD)
        offset, size = load_i64(unit), np.int64(load_i32(unit + SIZE))
        if offset < begin or size <= 0 or size > end - offset:
            if taken and not file_begin <= offset < file_end:
                break
            return 0, total, first, 0
        if total + size > most_size and taken:
            break
        taken += 1
        total += size
        if map_fields and is_asked:
            read = min(size + BLOCK, file_end - offset)
            part = (offset - file_begin + read - 1) >> PART_SHIFT
            if part != known:
                is_asked, known = _is_asked(marks, offset - file_begin, read), part
    return taken, total, first, np.int64(is_on_disk) + (0 if is_asked else UNASKED)
