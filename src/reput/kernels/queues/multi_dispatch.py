"""Rows for the further queues that a record names in INNER_MULTI_DISPATCH: to dispatch they are rows like all others.

A record with `INNER_MULTI_DISPATCH=a,b` and `INNER_MULTI_QUEUE_OFFSET=3,7` has units in queues a and b beside its own
(RocketMQ's `ConsumeQueue.multiDispatchLmqQueue`). It becomes three rows here, which differ in topic, queue id and queue
offset. Names and offsets that make no sense (no name of a folder, no number, an offset that the log cannot hold, lists
of different length) get no row: clients write these texts, and no text may stop the dispatch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.multi_dispatch import (
    EXCLUDED_PREFIXES,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LMQ_PREFIX,
    LMQ_QUEUE_ID,
    SEPARATOR,
)
from reput.formats.paths import MAX_NAME_SIZE
from reput.formats.record_layout import MIN_RECORD_SIZE, SysFlag
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import equal_bytes, load_u8
from reput.kernels.records.columns import (
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_QUEUE,
    N_QUEUE_ID,
    N_SYS_FLAG,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    W_COMMIT_LOG_OFFSET,
    W_QUEUE_OFFSET,
    RecordColumns,
)
from reput.kernels.records.gather import _is_utf8
from reput.kernels.records.property_names import NAME_END, PAIR_END
from reput.kernels.records.record_scan import QUEUE_LINE_SIZE, _queue_number

_TRANSACTION, _PREPARED, _ROLLBACK = (
    SysFlag.TRANSACTION_MASK,
    SysFlag.TRANSACTION_PREPARED,
    SysFlag.TRANSACTION_ROLLBACK,
)
_INNER_BATCH = SysFlag.INNER_BATCH
_WORDS = (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, LMQ_PREFIX, *EXCLUDED_PREFIXES, SCHEDULE_TOPIC)
_DISPATCH, _OFFSETS, _LMQ, _RETRY, _SYSTEM, _SCHEDULE = range(len(_WORDS))
#: The concatenated words, and the begin of each: a kernel gets them by address.
_TEXT = np.frombuffer("".join(_WORDS).encode(), np.uint8).copy()
_STARTS = np.cumsum([0, *map(len, _WORDS)]).astype(np.int64)
_COMMA = ord(SEPARATOR)
#: Numbers for one further row: row of the record, position and size of the name, queue id, queue offset.
_ENTRY = 5


@njit
def _begins_with(text, size, words, starts, word):  # type: ignore[no-untyped-def]
    length = starts[word + 1] - starts[word]
    return size >= length and equal_bytes(text, words + starts[word], length)


@njit
def _find_value(text, size, words, starts, word):  # type: ignore[no-untyped-def]
    """(address, size) of the last value of a property; size 0 without a value."""
    length = starts[word + 1] - starts[word]
    value, value_size, end = text, np.int64(0), text + size
    pair = text
    while pair < end:
        pair_end = pair
        while pair_end < end and load_u8(pair_end) != PAIR_END:
            pair_end += 1
        if (
            pair_end - pair > length + 1
            and load_u8(pair + length) == NAME_END
            and _begins_with(pair, length, words, starts, word)
        ):
            value, value_size = pair + length + 1, pair_end - pair - length - 1
        pair = pair_end + 1
    while value_size and load_u8(value + value_size - 1) == _COMMA:  # String.split drops empty items at the end
        value_size -= 1
    return value, value_size


@njit
def _count_parts(text, size):  # type: ignore[no-untyped-def]
    parts = np.int64(size > 0)
    for i in range(size):
        parts += load_u8(text + i) == _COMMA
    return parts


@njit
def _part_end(text, end):  # type: ignore[no-untyped-def]
    while text < end and load_u8(text) != _COMMA:
        text += 1
    return text


@njit
def _parse_offset(text, end, limit):  # type: ignore[no-untyped-def]
    """A decimal number up to `limit`; -1 for anything else."""
    if text < end and load_u8(text) == 0x2B:  # Long.parseLong accepts a plus sign
        text += 1
    if text >= end:
        return np.int64(-1)
    number = np.int64(0)
    while text < end:
        digit = np.int64(load_u8(text)) - 0x30
        if digit < 0 or digit > 9:
            return np.int64(-1)
        number = number * 10 + digit
        if number > limit:
            return np.int64(-1)
        text += 1
    return number


@njit
def _is_folder_name(text, size):  # type: ignore[no-untyped-def]
    """As `formats.paths.topic_folder_name`; False for bytes that are no UTF-8: Java cannot have written them."""
    if size < 1 or size > MAX_NAME_SIZE:
        return False
    dots = 0
    for i in range(size):
        byte = load_u8(text + i)
        if byte == 0 or byte == 0x2F:
            return False
        dots += byte == 0x2E
    return not (dots == size and size <= 2) and _is_utf8(text, size)


@kernel("int64(int64, int64[:, :], int32[:, :], boolean, boolean, int64, int64[::1], int64[:, ::1])")
def _find(base, wide, narrow, enable_lmq, any_topic, words, starts, entries):  # type: ignore[no-untyped-def]
    """The further rows of all records, in order; as many as fit into `entries` are written, all are counted."""
    found = 0
    for row in range(narrow.shape[1]):
        size = np.int64(narrow[N_PROPERTIES_SIZE, row])
        kind = narrow[N_SYS_FLAG, row] & _TRANSACTION
        if size == 0 or kind in (_PREPARED, _ROLLBACK) or narrow[N_SYS_FLAG, row] & _INNER_BATCH:
            continue
        text = base + narrow[N_PROPERTIES_POSITION, row]
        name, names_size = _find_value(text, size, words, starts, _DISPATCH)
        if names_size == 0:
            continue
        number, numbers_size = _find_value(text, size, words, starts, _OFFSETS)
        topic, topic_size = base + narrow[N_TOPIC_POSITION, row], np.int64(narrow[N_TOPIC_SIZE, row])
        if _count_parts(name, names_size) != _count_parts(number, numbers_size):
            continue
        if not any_topic and (
            _begins_with(topic, topic_size, words, starts, _RETRY)
            or _begins_with(topic, topic_size, words, starts, _SYSTEM)
            or (
                topic_size == starts[_SCHEDULE + 1] - starts[_SCHEDULE]
                and _begins_with(topic, topic_size, words, starts, _SCHEDULE)
            )
        ):
            continue
        names_end, numbers_end = name + names_size, number + numbers_size
        # Each earlier message of a queue took at least a smallest record of the log before this record.
        limit = wide[W_COMMIT_LOG_OFFSET, row] // MIN_RECORD_SIZE
        while name < names_end:
            name_end, number_end = _part_end(name, names_end), _part_end(number, numbers_end)
            offset = _parse_offset(number, number_end, limit)
            if offset >= 0 and _is_folder_name(name, name_end - name):
                if found < entries.shape[0]:
                    is_lmq = enable_lmq and _begins_with(name, name_end - name, words, starts, _LMQ)
                    entries[found, 0] = row
                    entries[found, 1] = name - base
                    entries[found, 2] = name_end - name
                    entries[found, 3] = LMQ_QUEUE_ID if is_lmq else narrow[N_QUEUE_ID, row]
                    entries[found, 4] = offset
                found += 1
            name, number = name_end + 1, number_end + 1
    return found


@kernel("int64(int64, int32[:, ::1], uint64[::1], int32[::1], int32[::1], int64)")
def _number(base, narrow, table_hash, table_queue, queue_rows, lines):  # type: ignore[no-untyped-def]
    queues = np.int64(0)
    for row in range(narrow.shape[1]):
        queue = np.int64(_queue_number(base, narrow, row, table_hash, table_queue, queue_rows, lines, queues))
        narrow[N_QUEUE, row] = queue
        queues += queue == queues
    return queues


def add_multi_dispatch_rows(
    columns: RecordColumns, *, enable_lmq: bool, any_topic: bool = False
) -> tuple[RecordColumns, npt.NDArray[np.int32] | None]:
    """The rows of a scan, each followed by the rows for its further queues.

    Args:
        columns: Scanned at `ScanLevel.PROPERTIES` or above.
        enable_lmq: Light queues (`%LMQ%...`) have queue id 0. Other names have the record's queue id, and so have light
            queues if this is off.
        any_topic: Whether records of topics that have no further queues since 5.x (`takes_part`) have them, too.

    Returns:
        The columns and int32[rows], the scan's row of each row, -1 for a further row. With a further row the columns
        are copied and have no keys; without one the second value is None.
    """
    entries = np.empty((columns.rows, _ENTRY), np.int64)
    arguments = (
        columns.buffer.ctypes.data,
        columns.wide,
        columns.narrow,
        enable_lmq,
        any_topic,
        _TEXT.ctypes.data,
        _STARTS,
    )
    found = _find(*arguments, entries)
    if found > columns.rows:
        entries = np.empty((found, _ENTRY), np.int64)
        _find(*arguments, entries)
    if not found:
        return columns, None
    entries = entries[:found]
    counts = np.bincount(entries[:, 0], minlength=columns.rows)
    sources = np.repeat(np.arange(columns.rows, dtype=np.int32), 1 + counts)
    further = np.ones(sources.size, np.bool_)
    further[np.arange(columns.rows) + np.cumsum(counts) - counts] = False
    wide, narrow = np.take(columns.wide, sources, axis=1), np.take(columns.narrow, sources, axis=1)
    narrow[N_TOPIC_POSITION, further], narrow[N_TOPIC_SIZE, further] = entries[:, 1], entries[:, 2]
    narrow[N_QUEUE_ID, further], wide[W_QUEUE_OFFSET, further] = entries[:, 3], entries[:, 4]
    sources[further] = -1
    queue_rows, lines = np.empty(sources.size, np.int32), np.empty(sources.size * QUEUE_LINE_SIZE, np.uint8)
    slots = 1 << (2 * sources.size).bit_length()
    queues = _number(
        columns.buffer.ctypes.data, narrow, np.zeros(slots, np.uint64), np.empty(slots, np.int32), queue_rows,
        lines.ctypes.data,
    )  # fmt: skip
    none = np.empty(0, np.int32)
    return RecordColumns(
        columns.buffer, columns.base_offset, columns.consumed, columns.stop, wide, narrow,
        queue_rows[:queues], none, none,
    ), sources  # fmt: skip
