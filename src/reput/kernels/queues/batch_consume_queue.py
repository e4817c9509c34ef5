"""Batch consume queue units: columns -> units grouped by queue, and units -> the records of one pull."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.batch_consume_queue import (
    BASE_OFFSET,
    BATCH_UNIT_SIZE,
    COMPACTED_OFFSET,
    MAX_MESSAGE_COUNT,
    MESSAGE_COUNT,
    NO_COMPACTED_OFFSET,
    RESERVED,
    SIZE,
    STORE_TIMESTAMP,
    TAGS_CODE,
)
from reput.formats.java import INT64_MAX
from reput.formats.record_layout import SysFlag
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    load_i16,
    load_i32,
    load_i32_native,
    load_i64,
    load_i64_native,
    load_u8,
    store_i16,
    store_i32,
    store_i64,
    store_i64_native,
)
from reput.kernels.queues.consume_queue import PULL_RESULT_COUNT, UnitRuns
from reput.kernels.records.columns import (
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_QUEUE,
    N_SIZE,
    N_SYS_FLAG,
    W_COMMIT_LOG_OFFSET,
    W_QUEUE_OFFSET,
    W_STORE_TIMESTAMP,
    W_TAGS_CODE,
    RecordColumns,
)
from reput.kernels.records.property_names import (
    INNER_BASE_REST,
    INNER_BASE_SIZE,
    INNER_BASE_WORD,
    INNER_NUM_REST,
    INNER_NUM_SIZE,
    INNER_NUM_WORD,
    NAME_END,
    PAIR_END,
)

_TRANSACTION, _PREPARED, _ROLLBACK = (
    SysFlag.TRANSACTION_MASK,
    SysFlag.TRANSACTION_PREPARED,
    SysFlag.TRANSACTION_ROLLBACK,
)
_UNIT = BATCH_UNIT_SIZE
#: From a pair's begin to its value.
_NUM_VALUE, _BASE_VALUE = INNER_NUM_SIZE + 1, INNER_BASE_SIZE + 1

#: In `last_offsets` of `group_batch_units`: a queue that gets no units.
NO_BATCH_QUEUE = INT64_MAX


@njit
def _decimal(text, end):  # type: ignore[no-untyped-def]
    """Value of a text of ASCII digits; -1 for any other text and for a value above an int64."""
    number = np.int64(0)
    if text == end:
        return np.int64(-1)
    for i in range(text, end):
        digit = np.int64(load_u8(i)) - 0x30
        if digit < 0 or digit > 9 or number > (INT64_MAX - digit) // 10:
            return np.int64(-1)
        number = number * 10 + digit
    return number


@njit
def _inner_batch(text, size):  # type: ignore[no-untyped-def]
    """INNER_BASE and INNER_NUM of a properties text; (-1, -1) unless both are numbers that a unit can hold."""
    base, number, pair, text_end = np.int64(-1), np.int64(-1), text, text + size
    while pair < text_end:
        end = pair
        while end < text_end and load_u8(end) != PAIR_END:
            end += 1
        if end - pair > _NUM_VALUE:
            name = load_i64(pair)
            is_number = name == INNER_NUM_WORD and load_u8(pair + 8) == INNER_NUM_REST
            if is_number and load_u8(pair + INNER_NUM_SIZE) == NAME_END:
                number = _decimal(pair + _NUM_VALUE, end)
            is_base = name == INNER_BASE_WORD and load_i16(pair + 8) == INNER_BASE_REST
            if is_base and end - pair > _BASE_VALUE and load_u8(pair + INNER_BASE_SIZE) == NAME_END:
                base = _decimal(pair + _BASE_VALUE, end)
        pair = end + 1
    if base < 0 or not 0 < number <= MAX_MESSAGE_COUNT:
        return np.int64(-1), np.int64(-1)
    return base, number


@kernel("void(int64, int64[:, :], int32[:, :], int64[::1], int64[::1], int64[::1], int64)")
def _group(buffer, wide, narrow, last_offsets, counts, starts, units):  # type: ignore[no-untyped-def]
    rows = narrow.shape[1]
    for queue in range(counts.size):
        counts[queue] = 0
    for row in range(rows):
        kind = narrow[N_SYS_FLAG, row] & _TRANSACTION
        if kind != _PREPARED and kind != _ROLLBACK:
            queue = narrow[N_QUEUE, row]
            counts[queue] += wide[W_COMMIT_LOG_OFFSET, row] > last_offsets[queue]
    start = 0
    for queue in range(counts.size):
        starts[queue] = start
        start += counts[queue] * _UNIT
        counts[queue] = 0
    for row in range(rows):
        kind = narrow[N_SYS_FLAG, row] & _TRANSACTION
        queue = narrow[N_QUEUE, row]
        has_unit = kind != _PREPARED and kind != _ROLLBACK
        if not has_unit or wide[W_COMMIT_LOG_OFFSET, row] <= last_offsets[queue]:
            continue
        properties = buffer + np.int64(narrow[N_PROPERTIES_POSITION, row])
        base, number = _inner_batch(properties, np.int64(narrow[N_PROPERTIES_SIZE, row]))
        if base < 0:
            base, number = wide[W_QUEUE_OFFSET, row], np.int64(1)
        if base < 0 or base > INT64_MAX - number:
            continue
        unit = units + starts[queue] + counts[queue] * _UNIT
        store_i64(unit, wide[W_COMMIT_LOG_OFFSET, row])
        store_i32(unit + SIZE, narrow[N_SIZE, row])
        store_i64(unit + TAGS_CODE, wide[W_TAGS_CODE, row])
        store_i64(unit + STORE_TIMESTAMP, wide[W_STORE_TIMESTAMP, row])
        store_i64(unit + BASE_OFFSET, base)
        store_i16(unit + MESSAGE_COUNT, number)
        store_i32(unit + COMPACTED_OFFSET, NO_COMPACTED_OFFSET)
        store_i32(unit + RESERVED, 0)
        counts[queue] += 1


def group_batch_units(columns: RecordColumns, last_offsets: npt.NDArray[np.int64]) -> UnitRuns:
    """Build the 46-byte units of the rows of batch queues, grouped by queue, in log order within each queue.

    A unit's queue offsets are the inner batch's (INNER_BASE and INNER_NUM), or the record's own, for one message
    (`CommitLog.setBatchSizeIfNeeded`). Prepared and rolled back messages get no unit, nor does a record with a negative
    queue offset or one too large for a unit. Records up to a queue's last record are repeats, and are dropped
    (`BatchConsumeQueue.putBatchMessagePositionInfo`).

    Args:
        columns: Scanned at `ScanLevel.PROPERTIES` or above.
        last_offsets: int64[queues], the commit log offset of each queue's last record, -1 without a record;
            `NO_BATCH_QUEUE` for a queue of another kind.
    """
    queues = columns.queue_rows.size
    rows = np.isin(columns.narrow[N_QUEUE], np.flatnonzero(last_offsets != NO_BATCH_QUEUE)).sum()
    units = np.empty(int(rows) * BATCH_UNIT_SIZE, np.uint8)
    counts, starts = np.empty(queues, np.int64), np.empty(queues, np.int64)
    _group(
        columns.buffer.ctypes.data, columns.wide, columns.narrow, last_offsets, counts, starts, units.ctypes.data
    )  # fmt: skip
    return UnitRuns(units, starts, counts, columns.rows)


@kernel("int64(int64, int64, int64)")
def find_batch_unit(units, count, queue_offset):  # type: ignore[no-untyped-def]
    """Number of the last of `count` (at least 1) units whose first message is at or before a queue offset, or 0."""
    first, last = np.int64(1), count
    while first < last:
        middle = (first + last) // 2
        if load_i64(units + middle * _UNIT + BASE_OFFSET) <= queue_offset:
            first = middle + 1
        else:
            last = middle
    return first - 1


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def select_batch_units(  # type: ignore[no-untyped-def]
    units, count, end_offset, log_begin, log_end, tags, tag_count, max_count, max_size, limits, out
):
    """Choose the records of one pull, as `select_units` of consume queues; limits count the messages in the records.

    Args:
        units: Address of the unit with the wanted queue offset; `count` units follow up to its file's end.
        end_offset: Units whose first message has this or a later queue offset are not examined.
        limits: Address of `PullLimits`.
        out: Address of native int64: the values that `PULL_RESULT_COUNT` lists, but the queue offset after the last
            examined unit (-1 for none) in place of the number of examined units; then room for max(memory_count,
            disk_count) pairs: commit log offset, size.
    """
    file_size, memory_begin = load_i64_native(limits), log_end - load_i64_native(limits + 8)
    memory_count, memory_size = load_i64_native(limits + 16), load_i64_native(limits + 24)
    disk_count, disk_size = load_i64_native(limits + 32), load_i64_native(limits + 40)
    pairs = out + 8 * PULL_RESULT_COUNT
    taken, messages, following, status = 0, np.int64(0), np.int64(-1), 1
    total = last = first = file_begin = file_end = np.int64(0)
    for i in range(count):
        unit = units + i * _UNIT
        offset, size = load_i64(unit), np.int64(load_i32(unit + SIZE))
        base, number = load_i64(unit + BASE_OFFSET), np.int64(load_i16(unit + MESSAGE_COUNT))
        if i and base >= end_offset:
            break
        if not file_begin <= offset < file_end:
            if taken:
                break
            file_begin = offset - offset % file_size
            file_end = file_begin + file_size
        if taken:
            most_count, most_size = memory_count, memory_size
            if offset < memory_begin:
                most_count, most_size = disk_count, disk_size
            too_many = messages + number > max_count or max(messages, taken) > most_count - 1
            if too_many or total >= max_size or total + size > max_size or total + size > most_size:
                break
        following = base + max(number, 1)
        last = offset
        matches = tag_count == 0
        for k in range(tag_count):
            matches |= load_i32_native(tags + 4 * k) == load_i32(unit + TAGS_CODE + 4)
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
        messages += number
        total += size
        status = 0
    store_i64_native(out, taken)
    store_i64_native(out + 8, following)
    store_i64_native(out + 16, status)
    store_i64_native(out + 24, total)
    store_i64_native(out + 32, last)
    store_i64_native(out + 40, first)
