"""Properties of a send, looked at by a kernel: whether anybody has to look into them."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.properties import OF_BROKERS
from reput.kernels.machine.blocks import get
from reput.kernels.machine.memory import (
    equal_bytes,
    equal_mask_64,
    load_i32,
    load_i64,
    load_i64_native,
    load_u8,
    store_i64_native,
    trailing_zeros,
)
from reput.kernels.wire.remoting_header import V1_TABLE, is_utf8
from reput.kernels.wire.send_block import (
    B_IS_SYNC,
    B_SCRATCH,
    B_TABLE,
    MOST_NAMES,
    NAMES_AT,
)

#: Names of properties that make a send odd: what the broker sets itself, or has to look into. Each after its size.
_ODD_NAMES = (
    b"DELAY", b"TRAN_MSG", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS", b"MSG_REGION", b"TRACE_ON",
    b"CLUSTER", b"INNER_NUM", *(name.encode() for name in sorted(OF_BROKERS)),
)  # fmt: skip
ODD_TABLE = np.frombuffer(b"".join(bytes([len(name)]) + name for name in _ODD_NAMES), np.uint8).copy()
_ODD_COUNT = len(_ODD_NAMES)
_NAMES_TABLE_SIZE = V1_TABLE.size
_UNIQ_KEY = np.int64(int.from_bytes(b"UNIQ_KEY", "big"))
_WAIT = np.int32(int.from_bytes(b"WAIT", "big"))
_QUOTE, _BACKSLASH = 0x22, 0x5C
_MOST_KEY = 256


@njit
def _is_odd_name(table, name, size):  # type: ignore[no-untyped-def]
    p = table
    for _ in range(_ODD_COUNT):
        length = np.int64(load_u8(p))
        if length == size and equal_bytes(p + 1, name, size):
            return True
        p += 1 + length
    return False


@njit
def _is_new_name(names, count, name, size):  # type: ignore[no-untyped-def]
    """Note a property's name; False where it came before: then one of the two values does not count."""
    for i in range(count):
        if load_i64_native(names + 16 * i + 8) == size and equal_bytes(load_i64_native(names + 16 * i), name, size):
            return False
    store_i64_native(names + 16 * count, name)
    store_i64_native(names + 16 * count + 8, size)
    return True


@njit
def _value_end(q, end):  # type: ignore[no-untyped-def]
    """The 2 that ends a property, or the end of the text."""
    while q < end:
        if q + 64 <= end:
            mask = equal_mask_64(q, np.uint8(2))
            if mask == np.uint64(0):
                q += 64
                continue
            return q + trailing_zeros(mask)
        if load_u8(q) == 2:
            break
        q += 1
    return q


@njit
def look_at_properties(block, p, size):  # type: ignore[no-untyped-def]
    """(whether they are plain, address and size of the unique key's value)."""
    end, count = p + size, 0
    names = get(block, B_SCRATCH) + NAMES_AT
    unique, unique_size = np.int64(0), np.int64(0)
    if not is_utf8(p, size):
        return False, unique, unique_size
    while p < end:
        q = p
        while q < end and load_u8(q) != 1 and load_u8(q) != 2:
            q += 1
        name_size, value = q - p, q + 1
        if name_size == 0 or q >= end or load_u8(q) == 2 or count == MOST_NAMES:
            return False, unique, unique_size
        q = _value_end(value, end)
        value_size = q - value
        if (
            value_size == 0
            or _is_odd_name(get(block, B_TABLE) + _NAMES_TABLE_SIZE, p, name_size)
            or not _is_new_name(names, count, p, name_size)
        ):
            return False, unique, unique_size
        count += 1
        if name_size == 8 and load_i64(p) == _UNIQ_KEY:
            unique, unique_size = value, value_size
        elif name_size == 4 and load_i32(p) == _WAIT and get(block, B_IS_SYNC) and not is_true(value, value_size):
            return False, unique, unique_size
        p = q + 1
    return True, unique, unique_size


@njit
def is_true(p, size):  # type: ignore[no-untyped-def]
    """Whether a text is true, in any letter case."""
    return size == 4 and (load_i32(p) | 0x20202020) == 0x74727565


@njit
def is_plain_key(p, size):  # type: ignore[no-untyped-def]
    """Whether a unique key goes into JSON as it is."""
    if size > _MOST_KEY:
        return False
    for i in range(size):
        c = load_u8(p + i)
        if c < 0x20 or c > 0x7E or c in (_QUOTE, _BACKSLASH):
            return False
    return True
