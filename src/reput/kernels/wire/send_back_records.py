"""Records of messages that are sent back, written by a kernel into the mapped log, and the answers.

The message is in the log, so nothing is decoded and encoded: head and body are copied, the properties are walked, and
what the broker sets is set where it stands, or added in the order of the plain way. The body's CRC is made anew: nobody
has proven the body, and a record with a wrong CRC ends the log for a start after a kill.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.java import INT32_MAX
from reput.formats.message_id import OFFSET_DIGITS
from reput.formats.properties import DELAY, ORIGIN_MESSAGE_ID, REAL_QID, REAL_TOPIC, RETRY_TOPIC, WAIT
from reput.formats.record_layout import (
    BODY,
    BODY_CRC,
    BODY_LENGTH,
    MAX_PROPERTIES_SIZE,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    STORE_HOST,
    STORE_TIMESTAMP,
    SYS_FLAG,
    SysFlag,
)
from reput.formats.remoting import FRAME_HEAD_SIZE, LENGTH_SIZE
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.decimals import put_decimal
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    copy,
    copy_short,
    equal_bytes,
    load_i16,
    load_i32,
    load_i32_native,
    load_i64_native,
    load_u8,
    store_i16,
    store_i32,
    store_i64,
    store_i64_native,
    store_u8,
)
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.log_room import S_LOG, S_LOG_END, S_LOG_OFFSET, S_NEXT_OFFSETS, S_NOW
from reput.kernels.records.property_names import NAME_END, PAIR_END
from reput.kernels.wire.remoting_header import is_utf8
from reput.kernels.wire.send_answers import put_hex
from reput.kernels.wire.send_back_words import (
    ANSWER_BYTES,
    OF_GROUP,
    R_LEVEL,
    R_MOST_TIMES,
    R_OFFSET,
    R_OPAQUE,
    ROW_WORDS,
    S_ANSWERED,
    S_ANSWERS,
    S_ANSWERS_END,
    S_DEAD,
    S_DEAD_NUMBER,
    S_DEAD_SIZE,
    S_HEAD,
    S_HEAD_SIZE,
    S_IS_DEAD,
    S_LEVELS,
    S_MOST_TIMES,
    S_NAMES,
    S_NEEDED,
    S_NUMBERS,
    S_ORIGIN,
    S_ORIGIN_SIZE,
    S_RANDOM,
    S_RECORDS,
    S_RETRY,
    S_RETRY_QUEUES,
    S_RETRY_SIZE,
    S_ROWS,
    S_SCHEDULE,
    S_SCHEDULE_SIZE,
    S_SCRATCH,
    S_STORE_HOST,
    S_TAIL,
    S_TAIL_SIZE,
)
from reput.kernels.wire.send_words import MOST_NAMES

#: Properties that the broker sets, in the order in which those that lack are added; the last two are of messages that
#: wait for a level.
_SET = (RETRY_TOPIC, WAIT, DELAY, ORIGIN_MESSAGE_ID, REAL_TOPIC, REAL_QID)
_RETRY_TOPIC, _WAIT, _DELAY, _ORIGIN_ID, _REAL_TOPIC, _REAL_QID = range(len(_SET))
#: How the names begin of properties that somebody has to look into: a time, a key of a batch, of several queues, a CRC.
_ODD = ("TIMER_", "INNER_", "__")
NAMES = "".join((*_SET, *_ODD)).encode()
_SIZES = np.array([len(name) for name in (*_SET, *_ODD)], np.int64)
_STARTS = np.cumsum(_SIZES) - _SIZES
_SET_COUNT, _COUNT = len(_SET), len(_SET) + len(_ODD)
#: Memory for a message's names: address and size of each, and address and end of the value that counts.
_N_SIZE, _N_VALUE, _N_VALUE_END, _NAME_BYTES = 8, 16, 24, 32
SCRATCH_SIZE = _NAME_BYTES * MOST_NAMES
#: The bytes that all properties of the broker take but for topics.
_ADDED_BYTES = len(NAMES) + 128
#: The delay level of a first retry, if the consumer leaves it to the broker; each further one has the next level.
FIRST_LEVEL = 3
_PLAIN_SYS_FLAG = SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | SysFlag.TRANSACTION_COMMIT | SysFlag.COMPRESSION_MASK
_MIN_RECORD, _MAX_PROPERTIES = MIN_RECORD_SIZE, MAX_PROPERTIES_SIZE
_BODY = BODY
_BLANK, _LAST_ASCII = 0x20, 0x7F
_MOST_ATTEMPTS = INT32_MAX
_FALSE = int.from_bytes(b"fals", "big")
_E = 0x65


@njit
def _is_name(words, number, name, size):  # type: ignore[no-untyped-def]
    """Whether a property's name is the one of a number, or begins like it if that is of `_ODD`."""
    known = _SIZES[number]
    is_right = size == known if number < _SET_COUNT else size >= known
    return is_right and equal_bytes(name, get(words, S_NAMES) + _STARTS[number], known)


@njit
def _number_of(words, name, size):  # type: ignore[no-untyped-def]
    """Number of the name that this is; `_COUNT`: of none of them."""
    for number in range(_COUNT):
        if _is_name(words, number, name, size):
            return number
    return _COUNT


@njit
def _ends(p, end):  # type: ignore[no-untyped-def]
    """The ends of the name and of the value of the property at an address; 0 if it is odd."""
    q = p
    while q < end and load_u8(q) != NAME_END:
        if load_u8(q) == PAIR_END:
            return np.int64(0), np.int64(0)
        q += 1
    r = q + 1
    while r < end and load_u8(r) != PAIR_END:
        r += 1
    if q == p or q >= end or r == q + 1:
        return np.int64(0), np.int64(0)
    return q, r


@njit
def _note(names, count, name, q, r):  # type: ignore[no-untyped-def]
    """Note a property, of which the last value counts: the number of its name, `count` for a new one."""
    size, number = q - name, 0
    while number < count:
        known = names + _NAME_BYTES * number
        if get(known, _N_SIZE) == size and equal_bytes(get(known, 0), name, size):
            break
        number += 1
    entry = names + _NAME_BYTES * number
    if number == count:
        put(entry, 0, name)
        put(entry, _N_SIZE, size)
    put(entry, _N_VALUE, q + 1)
    put(entry, _N_VALUE_END, r)
    return number


@njit
def _look(words, p, size):  # type: ignore[no-untyped-def]
    """(whether nobody has to look into these properties, their names if some are repeated, place of RETRY_TOPIC, size).

    The scratch gets the names and their values, in their order.
    """
    end, count, pairs, names = p + size, 0, 0, get(words, S_SCRATCH)
    origin, origin_size = np.int64(0), np.int64(0)
    if not is_utf8(p, size):
        return False, 0, origin, origin_size
    while p < end:
        q, r = _ends(p, end)
        if q == 0 or count == MOST_NAMES:
            return False, 0, origin, origin_size
        number = _number_of(words, p, q - p)
        if _SET_COUNT <= number < _COUNT or (number == _ORIGIN_ID and not _BLANK < load_u8(q + 1) <= _LAST_ASCII):
            return False, 0, origin, origin_size
        if number == _RETRY_TOPIC:
            origin, origin_size = q + 1, r - q - 1
        if _note(names, count, p, q, r) == count:
            count += 1
        pairs += 1
        p = r + 1
    return True, count if pairs > count else 0, origin, origin_size


@njit
def _first_of(names, count, name):  # type: ignore[no-untyped-def]
    """The noted name that begins at an address; 0: the name came before."""
    for number in range(count):
        entry = names + _NAME_BYTES * number
        if get(entry, 0) == name:
            return entry
    return np.int64(0)


@njit
def _put_pair(words, t, number, level, queue_id, store_host, offset):  # type: ignore[no-untyped-def]
    """Write a property that the broker sets, but for its end; returns the address after it."""
    copy_short(t, get(words, S_NAMES) + _STARTS[number], _SIZES[number])
    t += _SIZES[number]
    store_u8(t, NAME_END)
    t += 1
    if number == _RETRY_TOPIC:
        copy_short(t, get(words, S_ORIGIN), get(words, S_ORIGIN_SIZE))
        return t + get(words, S_ORIGIN_SIZE)
    if number == _WAIT:
        store_i32(t, _FALSE)
        store_u8(t + 4, _E)
        return t + 5
    if number == _DELAY:
        return put_decimal(t, level)
    if number == _ORIGIN_ID:
        for i in range(HOST_V4_SIZE):
            t = put_hex(t, np.int64(load_u8(store_host + i)), 2)
        return put_hex(t, offset, OFFSET_DIGITS)
    if number == _REAL_TOPIC:
        copy_short(t, get(words, S_RETRY), get(words, S_RETRY_SIZE))
        return t + get(words, S_RETRY_SIZE)
    return put_decimal(t, queue_id)


@njit
def _put_properties(  # type: ignore[no-untyped-def]
    words, t, p, end, level, queue_id, store_host, offset, repeated
):
    """Write the properties [p, end) of a message as it is put again; returns the address after them.

    `level`: 0 for a dead letter, which keeps its REAL_TOPIC and REAL_QID if it has them. `repeated`: as of `_look`.
    """
    count, seen = (_SET_COUNT if level else _REAL_TOPIC), 0
    while p < end:
        q, r = _ends(p, end)
        value, value_end = q + 1, r
        if repeated:
            entry = _first_of(get(words, S_SCRATCH), repeated, p)
            if entry == 0:
                p = r + 1
                continue
            value, value_end = get(entry, _N_VALUE), get(entry, _N_VALUE_END)
        number = _number_of(words, p, q - p)
        if number < count:
            seen |= 1 << number
        if number in (_WAIT, _DELAY) or (number < count and number >= _REAL_TOPIC):
            t = _put_pair(words, t, number, level, queue_id, store_host, offset)
        else:
            copy_short(t, p, q + 1 - p)
            t += q + 1 - p
            copy_short(t, value, value_end - value)
            t += value_end - value
        store_u8(t, PAIR_END)
        t += 1
        p = r + 1
    for number in range(count):
        if not seen >> number & 1:
            t = _put_pair(words, t, number, level, queue_id, store_host, offset)
            store_u8(t, PAIR_END)
            t += 1
    return t


@njit
def _draw(words, count):  # type: ignore[no-untyped-def]
    """A number below `count` (xorshift)."""
    seed = get(words, S_RANDOM)
    seed ^= (seed << 13) & 0x7FFFFFFFFFFFFFFF
    seed ^= seed >> 7
    seed ^= (seed << 17) & 0x7FFFFFFFFFFFFFFF
    put(words, S_RANDOM, seed)
    return seed % count


@njit
def _put_answer(words, opaque):  # type: ignore[no-untyped-def]
    out = get(words, S_ANSWERS) + get(words, S_ANSWERED)
    t = out + FRAME_HEAD_SIZE
    copy_short(t, get(words, S_HEAD), get(words, S_HEAD_SIZE))
    t = put_decimal(t + get(words, S_HEAD_SIZE), opaque)
    copy_short(t, get(words, S_TAIL), get(words, S_TAIL_SIZE))
    t += get(words, S_TAIL_SIZE)
    store_i32(out, t - out - LENGTH_SIZE)
    store_i32(out + LENGTH_SIZE, t - out - FRAME_HEAD_SIZE)
    put(words, S_ANSWERED, t - get(words, S_ANSWERS))


@njit
def _is_of_run(words, is_first, origin, origin_size, is_dead):  # type: ignore[no-untyped-def]
    """Whether a message comes from the topic of the first one of the call, which it sets, and goes the same way."""
    if is_first:
        put(words, S_ORIGIN, origin)
        put(words, S_ORIGIN_SIZE, origin_size)
        put(words, S_IS_DEAD, np.int64(is_dead))
        return True
    return (
        np.int64(is_dead) == get(words, S_IS_DEAD)
        and origin_size == get(words, S_ORIGIN_SIZE)
        and equal_bytes(origin, get(words, S_ORIGIN), origin_size)
    )


@njit
def _append_one(words, row, record, is_first):  # type: ignore[no-untyped-def]
    """Write a message again, and its answer; False if that is not done, and then nothing has changed."""
    body = np.int64(load_i32(record + BODY_LENGTH))
    times = np.int64(load_i32(record + RECONSUME_TIMES))
    topic = record + _BODY + body
    topic_size = np.int64(load_u8(topic))
    text = topic + 1 + topic_size + 2
    size = np.int64(load_i16(text - 2))
    if times < 0 or np.int64(load_i32(record + SYS_FLAG)) & ~np.int64(_PLAIN_SYS_FLAG):
        return False
    plain, repeated, origin, origin_size = _look(words, text, size)
    if not plain:
        return False
    if origin_size == 0:
        origin, origin_size = topic + 1, topic_size
    most = get(row, R_MOST_TIMES)
    level = get(row, R_LEVEL)
    is_dead = level < 0 or times >= (get(words, S_MOST_TIMES) if most == OF_GROUP else most)
    added = _ADDED_BYTES + get(words, S_RETRY_SIZE) + origin_size
    if (is_dead and get(words, S_DEAD_SIZE) == 0) or size + added > _MAX_PROPERTIES:
        return False
    if not _is_of_run(words, is_first, origin, origin_size, is_dead):
        return False
    name, name_size = get(words, S_SCHEDULE), get(words, S_SCHEDULE_SIZE)
    queue_id, number = np.int64(0), get(words, S_DEAD_NUMBER)
    if is_dead:
        level = np.int64(0)
        name, name_size = get(words, S_DEAD), get(words, S_DEAD_SIZE)
    else:
        level = min(level if level else FIRST_LEVEL + times, get(words, S_LEVELS))
        queue_id = level - 1
        number = np.int64(load_i32_native(get(words, S_NUMBERS) + 4 * queue_id))
    target, most_bytes = get(words, S_LOG), _MIN_RECORD + body + name_size + size + added
    if most_bytes > get(words, S_LOG_END) - target:
        put(words, S_NEEDED, most_bytes)
        return False
    counter = get(words, S_NEXT_OFFSETS) + 8 * number
    queue_offset = load_i64_native(counter)
    copy(target + 4, record + 4, _BODY - 4 + body)  # head and body; what differs comes below
    t = target + _BODY + body
    store_u8(t, name_size)
    copy_short(t + 1, name, name_size)
    t += 1 + name_size + 2
    real_queue = np.int64(0) if is_dead else _draw(words, get(words, S_RETRY_QUEUES))
    end = _put_properties(
        words, t, text, text + size, level, real_queue, record + STORE_HOST, get(row, R_OFFSET), repeated
    )
    store_i16(t - 2, end - t)
    store_i32(target + QUEUE_ID, queue_id)
    store_i64(target + QUEUE_OFFSET, queue_offset)
    store_i64(target + PHYSICAL_OFFSET, get(words, S_LOG_OFFSET))
    store_i64(target + STORE_TIMESTAMP, get(words, S_NOW))
    copy_short(target + STORE_HOST, get(words, S_STORE_HOST), HOST_V4_SIZE)
    store_i32(target + BODY_CRC, body_crc(target + _BODY, body))
    store_i32(target + RECONSUME_TIMES, min(times + 1, _MOST_ATTEMPTS))
    store_i64(target + PREPARED_TRANSACTION_OFFSET, 0)  # it is of no transaction any more
    store_i32(target, end - target)  # last: a process that is killed in between leaves no half of a record
    store_i64_native(counter, queue_offset + 1)
    put(words, S_LOG_OFFSET, get(words, S_LOG_OFFSET) + end - target)
    put(words, S_LOG, end)
    _put_answer(words, get(row, R_OPAQUE))
    return True


@kernel("int64(int64, int64, int64)", short=True)
def append_send_backs(words, first, count):  # type: ignore[no-untyped-def]
    """Write the messages of the requests [first, count) again, as long as they are plain and of one run.

    Args:
        words: `SendBacks.address`, which has the rows, and the records: address and size of each, int64. They are
            proven, and of format V1 with hosts of 8 bytes.
        first, count: Numbers of requests.

    Returns:
        int64, how many were written: all came first from one topic, and all wait for a level, or all are dead letters.
    """
    put(words, S_NEEDED, 0)
    number = first
    while number < count:
        row = get(words, S_ROWS) + 8 * ROW_WORDS * number
        record = load_i64_native(get(words, S_RECORDS) + 16 * number)
        if get(words, S_ANSWERS_END) - get(words, S_ANSWERS) - get(words, S_ANSWERED) < ANSWER_BYTES:
            break
        if not _append_one(words, row, record, number == first):
            break
        number += 1
    return number - first
