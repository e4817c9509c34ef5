"""Properties of a send, looked at by a kernel: whether anybody has to look into them."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.properties import (
    CLUSTER,
    INNER_NUM,
    MSG_REGION,
    NOT_HERE,
    OF_BROKERS,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRACE_ON,
    TRAN_MSG,
)
from reput.kernels.machine.decimals import read_decimal
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
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.property_names import (
    DELAY_REST,
    DELAY_SIZE,
    DELAY_WORD,
    NAME_END,
    PAIR_END,
    UNIQ_KEY_SIZE,
    UNIQ_KEY_WORD,
    WAIT_SIZE,
    WAIT_WORD,
)
from reput.kernels.wire.remoting_header import V1_TABLE, is_utf8
from reput.kernels.wire.send_words import (
    MOST_NAMES,
    NAMES_AT,
    S_IS_SYNC,
    S_LEVEL,
    S_LEVEL_AT,
    S_LEVEL_SIZE,
    S_MAX_DELAY_MS,
    S_NOW_MS,
    S_OUT_MS,
    S_PRECISION_MS,
    S_SCHEDULE,
    S_SCRATCH,
    S_TABLE,
    S_TIME,
    S_TIME_UNIT,
    S_TIMERS,
    S_WAITS_IN,
)

#: Names of properties that make a send odd: what the broker sets itself, or has to look into. Each after its size.
_ODD_NAMES = tuple(
    name.encode()
    for name in (
        *(TRAN_MSG, TIMER_DEL_UNIQKEY, MSG_REGION, TRACE_ON, CLUSTER, INNER_NUM),
        *sorted(OF_BROKERS),
        *NOT_HERE,
    )
)
_ODD_TABLE = np.frombuffer(b"".join(bytes([len(name)]) + name for name in _ODD_NAMES), np.uint8).copy()
_ODD_COUNT = len(_ODD_NAMES)
#: How the names begin that the broker gives to a message that waits for its delay level, and how long they are.
_REAL = int.from_bytes(REAL_TOPIC[:4].encode(), "big")
_REAL_SIZES = len(REAL_TOPIC), len(REAL_QID)
_MOST_LEVEL_DIGITS, _MOST_TIME_DIGITS = 9, 15
#: What says when a message is due, in the order in which they count, and their units in ms; 0: since 1970.
_TIMES = TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS
_TIME_UNITS = np.array([1000, 1, 0], np.int64)
_TIME_SIZES = np.array([len(name) for name in _TIMES], np.int64)
_TIME_STARTS = np.cumsum(_TIME_SIZES) - _TIME_SIZES
_TIME_COUNT = len(_TIMES)
_ODD_TABLE_SIZE = _ODD_TABLE.size
PROPERTY_TABLE = np.concatenate([_ODD_TABLE, np.frombuffer("".join(_TIMES).encode(), np.uint8)])
_TIMER_WORD, _LEAST_TIME_SIZE = int.from_bytes(TIMER_DELAY_MS[:4].encode(), "big"), min(map(len, _TIMES))
_NAMES_TABLE_SIZE = V1_TABLE.size
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
def is_new_name(names, count, name, size):  # type: ignore[no-untyped-def]
    """Note a property's name; False if it came before: then one of the two values does not count."""
    for i in range(count):
        if load_i64_native(names + 16 * i + 8) == size and equal_bytes(load_i64_native(names + 16 * i), name, size):
            return False
    store_i64_native(names + 16 * count, name)
    store_i64_native(names + 16 * count + 8, size)
    return True


@njit
def _value_end(q, end):  # type: ignore[no-untyped-def]
    """The separator that ends a property, or the end of the text."""
    while q < end:
        if q + 64 <= end:
            mask = equal_mask_64(q, np.uint8(PAIR_END))
            if mask == np.uint64(0):
                q += 64
                continue
            return q + trailing_zeros(mask)
        if load_u8(q) == PAIR_END:
            break
        q += 1
    return q


@njit
def _note_time(words, number, name, size, value, value_size):  # type: ignore[no-untyped-def]
    """Note a time, if a property is one, with the number of its name; (whether it is plain, the number that counts).

    `number`: of the name that was noted before.
    """
    if size < _LEAST_TIME_SIZE or load_i32(name) != _TIMER_WORD:
        return True, number
    names = get(words, S_TABLE) + _NAMES_TABLE_SIZE + _ODD_TABLE_SIZE
    for i in range(number):
        if size == _TIME_SIZES[i] and equal_bytes(name, names + _TIME_STARTS[i], size):
            time, digits = read_decimal(value, value + value_size)
            put(words, S_TIME, time)
            put(words, S_TIME_UNIT, _TIME_UNITS[i])
            return digits == value_size and digits <= _MOST_TIME_DIGITS, i
    return True, number


@njit
def _look_at_wait(words):  # type: ignore[no-untyped-def]
    """Set where the send at hand waits for its level or its time (`PutHooks`); False if somebody has to look at it."""
    put(words, S_WAITS_IN, 0)
    put(words, S_OUT_MS, 0)
    time, unit, now = get(words, S_TIME), get(words, S_TIME_UNIT), get(words, S_NOW_MS)
    if get(words, S_LEVEL):
        put(words, S_WAITS_IN, get(words, S_SCHEDULE))
        return time < 0
    if time < 0:
        return True
    due = now + time * unit if unit else time
    if get(words, S_MAX_DELAY_MS) == 0 or due - now > get(words, S_MAX_DELAY_MS):
        return False
    if due > now:
        put(words, S_WAITS_IN, get(words, S_TIMERS))
        put(words, S_OUT_MS, (due - 1) // get(words, S_PRECISION_MS) * get(words, S_PRECISION_MS))
    return True


@njit
def look_at_properties(words, p, size):  # type: ignore[no-untyped-def]
    """(whether they are plain, address and size of the unique key's value); the words get level and time."""
    end, count, has_given, time_name = p + size, 0, False, _TIME_COUNT
    put(words, S_LEVEL, 0)
    put(words, S_TIME, -1)
    names = get(words, S_SCRATCH) + NAMES_AT
    unique, unique_size = np.int64(0), np.int64(0)
    if not is_utf8(p, size):
        return False, unique, unique_size
    while p < end:
        q = p
        while q < end and load_u8(q) != NAME_END and load_u8(q) != PAIR_END:
            q += 1
        name_size, value = q - p, q + 1
        if name_size == 0 or q >= end or load_u8(q) == PAIR_END or count == MOST_NAMES:
            return False, unique, unique_size
        q = _value_end(value, end)
        value_size = q - value
        if (
            value_size == 0
            or _is_odd_name(get(words, S_TABLE) + _NAMES_TABLE_SIZE, p, name_size)
            or not is_new_name(names, count, p, name_size)
        ):
            return False, unique, unique_size
        count += 1
        if name_size == DELAY_SIZE and load_i32(p) == DELAY_WORD and load_u8(p + 4) == DELAY_REST:
            level, digits = read_decimal(value, q)
            if digits != value_size or digits > _MOST_LEVEL_DIGITS:
                return False, unique, unique_size
            put(words, S_LEVEL, level)
            put(words, S_LEVEL_AT, value)
            put(words, S_LEVEL_SIZE, value_size)
        elif name_size in _REAL_SIZES and load_i32(p) == _REAL:
            has_given = True
        else:
            is_plain, time_name = _note_time(words, time_name, p, name_size, value, value_size)
            if not is_plain:
                return False, unique, unique_size
        if name_size == UNIQ_KEY_SIZE and load_i64(p) == UNIQ_KEY_WORD:
            unique, unique_size = value, value_size
        elif (
            name_size == WAIT_SIZE
            and load_i32(p) == WAIT_WORD
            and get(words, S_IS_SYNC)
            and not is_true(value, value_size)
        ):
            return False, unique, unique_size
        p = q + 1
    is_plain = _look_at_wait(words) and (get(words, S_WAITS_IN) == 0 or not has_given)
    return is_plain, unique, unique_size


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
