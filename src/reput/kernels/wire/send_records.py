"""Records of sends, written by a kernel into the mapped log."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.message_batch import ITEM_BODY, ITEM_BODY_LENGTH, ITEM_FLAG, MIN_ITEM_SIZE
from reput.formats.properties import REAL_QID, REAL_TOPIC, SIZE_ADDED_LATER, TIMER_OUT_MS
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE
from reput.formats.unique_id import COUNTER_DIGITS, COUNTER_MASK, PREFIX_DIGITS, TIME_DIGITS, TIME_MASK
from reput.kernels.machine.decimals import decimal_digits, put_decimal
from reput.kernels.machine.memory import (
    copy_short,
    load_i16,
    load_i32,
    load_i32_native,
    load_i64_native,
    load_u8,
    store_i16,
    store_i32,
    store_i32_native,
    store_i64,
    store_i64_native,
    store_u8,
)
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.log_room import S_LOG, S_LOG_OFFSET, S_NEXT_OFFSETS, S_NOW
from reput.kernels.records.property_crc import carries_property_crc
from reput.kernels.records.property_names import NAME_END, PAIR_END, UNIQ_KEY_SIZE, UNIQ_KEY_WORD
from reput.kernels.records.record_encode import put_record
from reput.kernels.wire.send_answers import put_hex
from reput.kernels.wire.send_words import (
    MOST_ITEMS,
    S_BATCH_SUFFIX_SIZE,
    S_BORN_HOST,
    S_CLUSTER,
    S_CLUSTER_SIZE,
    S_COUNTER,
    S_LEVEL,
    S_LEVEL_AT,
    S_LEVEL_SIZE,
    S_MONTH_BEGIN,
    S_OUT_MS,
    S_SCHEDULE,
    S_SCRATCH,
    S_STORE_HOST,
    S_SUFFIX,
    S_SUFFIX_SIZE,
    S_TAKES_BATCH_PROPERTIES,
    S_UNIQUE_PREFIX,
    S_WAITS_IN,
    SIZES_AT,
    T_NAME,
    T_NAME_SIZE,
    T_NUMBERS,
    T_QUEUES,
)

_MAX_PROPERTIES = MAX_PROPERTIES_SIZE - SIZE_ADDED_LATER
_MIN_RECORD = MIN_RECORD_SIZE
#: The names that a message gets which waits, as they stand behind the broker's properties.
WAIT_NAMES = f"{TIMER_OUT_MS}\x01", f"{REAL_TOPIC}\x01", f"\x02{REAL_QID}\x01"
_OUT_NAME_SIZE, _REAL_TOPIC_SIZE, _REAL_QID_SIZE = map(len, WAIT_NAMES)
_REAL_PAIRS_SIZE = _REAL_TOPIC_SIZE + _REAL_QID_SIZE + 1


@njit
def _put_unique_id(words, t):  # type: ignore[no-untyped-def]
    """Write an id for a message that came without one (`service.unique_id`)."""
    counter = (get(words, S_COUNTER) + 1) & COUNTER_MASK
    put(words, S_COUNTER, counter)
    copy_short(t, get(words, S_UNIQUE_PREFIX), PREFIX_DIGITS)
    time = (get(words, S_NOW) - get(words, S_MONTH_BEGIN)) & TIME_MASK
    return put_hex(put_hex(t + PREFIX_DIGITS, time, TIME_DIGITS), counter, COUNTER_DIGITS)


@njit
def _append(  # type: ignore[no-untyped-def]
    words, p, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, topic
):
    """Write a record but for its properties and its size; returns (where properties go, its queue offset)."""
    offset = get(words, S_LOG_OFFSET) + (p - get(words, S_LOG))
    counter = get(words, S_NEXT_OFFSETS) + 8 * np.int64(load_i32_native(number_at))
    queue_offset = load_i64_native(counter)
    target = put_record(
        p, 0, queue_id, flag, queue_offset, offset, sys_flag, born, get(words, S_BORN_HOST), HOST_V4_SIZE,
        get(words, S_NOW), get(words, S_STORE_HOST), HOST_V4_SIZE, reconsume, 0, body, body_size,
        get(topic, T_NAME), get(topic, T_NAME_SIZE), False,
    )  # fmt: skip
    store_i64_native(counter, queue_offset + 1)
    return target, queue_offset


@njit
def is_ended(p, size):  # type: ignore[no-untyped-def]
    """Whether properties need no separator before others are added."""
    return size == 0 or load_u8(p + size - 1) == PAIR_END


@njit
def _put_end(t):  # type: ignore[no-untyped-def]
    store_u8(t, PAIR_END)
    return t + 1


@njit
def _put_ended(t, properties, size):  # type: ignore[no-untyped-def]
    copy_short(t, properties, size)
    t += size
    return t if is_ended(properties, size) else _put_end(t)


@njit
def _batch_properties(words, properties, size):  # type: ignore[no-untyped-def]
    """Bytes that each message of a batch gets after its own properties."""
    if not get(words, S_TAKES_BATCH_PROPERTIES):
        return np.int64(0)
    return size + (0 if is_ended(properties, size) else 1) + get(words, S_BATCH_SUFFIX_SIZE)


@njit
def measure_batch(words, topic, body, body_size, properties, size):  # type: ignore[no-untyped-def]
    """(number of messages, bytes of their records), each record's size in the scratch; (0, 0) if it is odd."""
    sizes = get(words, S_SCRATCH) + SIZES_AT
    added = _batch_properties(words, properties, size)
    end, p = body + body_size, body
    total, count = np.int64(0), 0
    while p < end:
        if p + ITEM_BODY > end or count == MOST_ITEMS:
            return 0, np.int64(0)
        item, item_body = np.int64(load_i32(p)), np.int64(load_i32(p + ITEM_BODY_LENGTH))
        if item < MIN_ITEM_SIZE or p + item > end or item_body < 0 or item_body > item - MIN_ITEM_SIZE:
            return 0, np.int64(0)
        own = np.int64(load_i16(p + ITEM_BODY + item_body))
        if own < 0 or MIN_ITEM_SIZE + item_body + own != item:
            return 0, np.int64(0)
        text = own + (0 if added == 0 or is_ended(p + MIN_ITEM_SIZE + item_body, own) else 1) + added
        if text > _MAX_PROPERTIES or carries_property_crc(p, item, own):
            return 0, np.int64(0)
        record = _MIN_RECORD + item_body + get(topic, T_NAME_SIZE) + text
        store_i32_native(sizes + 4 * count, record)
        total += record
        count += 1
        p += item
    return count, total


@njit
def append_batch(  # type: ignore[no-untyped-def]
    words, topic, number_at, queue_id, sys_flag, born, reconsume, body, count, properties, size
):
    """Append the messages of a batch that was measured; returns the queue offset of the first."""
    sizes = get(words, S_SCRATCH) + SIZES_AT
    p, target, first = body, get(words, S_LOG), np.int64(0)
    added = _batch_properties(words, properties, size)
    for i in range(count):
        item, item_body = np.int64(load_i32(p)), np.int64(load_i32(p + ITEM_BODY_LENGTH))
        own, text = item - MIN_ITEM_SIZE - item_body, p + MIN_ITEM_SIZE + item_body
        at, queue_offset = _append(
            words, target, number_at, queue_id, load_i32(p + ITEM_FLAG), sys_flag, born, reconsume, p + ITEM_BODY,
            item_body, topic,
        )  # fmt: skip
        first = queue_offset if i == 0 else first
        t = at + 2
        if added:
            t = _put_ended(_put_ended(t, text, own), properties, size)
            copy_short(t, get(words, S_SUFFIX), get(words, S_BATCH_SUFFIX_SIZE))
            t += get(words, S_BATCH_SUFFIX_SIZE)
        else:
            copy_short(t, text, own)
            t += own
        store_i16(at, t - at - 2)
        record = np.int64(load_i32_native(sizes + 4 * i))
        store_i32(target, record)  # last: a process that is killed in between leaves no half of a record
        target += record
        p += item
    put(words, S_LOG_OFFSET, get(words, S_LOG_OFFSET) + target - get(words, S_LOG))
    put(words, S_LOG, target)
    return first


@njit
def _wait_level(words):  # type: ignore[no-untyped-def]
    """The delay level of the send at hand as the broker takes it; 0 for none."""
    return min(get(words, S_LEVEL), get(get(words, S_SCHEDULE), T_QUEUES))


@njit
def wait_sizes(words, topic, queue_id):  # type: ignore[no-untyped-def]
    """Bytes by which properties and topic of the send at hand grow where it waits."""
    waits_in, out = get(words, S_WAITS_IN), get(words, S_OUT_MS)
    if waits_in == 0:
        return np.int64(0), np.int64(0)
    text = _REAL_PAIRS_SIZE + get(topic, T_NAME_SIZE) + decimal_digits(queue_id)
    if out:
        text += _OUT_NAME_SIZE + decimal_digits(out) + 1
    else:
        text += decimal_digits(_wait_level(words)) - get(words, S_LEVEL_SIZE)
    return text, get(waits_in, T_NAME_SIZE) - get(topic, T_NAME_SIZE)


@njit
def _put_level(words, t, properties, size):  # type: ignore[no-untyped-def]
    """Write properties with the delay level that the broker takes in place of the one that was sent."""
    before = get(words, S_LEVEL_AT) - properties
    copy_short(t, properties, before)
    t = put_decimal(t + before, _wait_level(words))
    behind = before + get(words, S_LEVEL_SIZE)
    return _put_ended(t, properties + behind, size - behind) if behind < size else _put_end(t)


@njit
def _put_wait(words, t, topic, queue_id):  # type: ignore[no-untyped-def]
    """Write what a message gets that waits: its slot's time, and the topic and the queue where it goes."""
    names, out = get(words, S_SUFFIX) + get(words, S_BATCH_SUFFIX_SIZE), get(words, S_OUT_MS)
    if out:
        copy_short(t, names, _OUT_NAME_SIZE)
        t = _put_end(put_decimal(t + _OUT_NAME_SIZE, out))
    names += _OUT_NAME_SIZE
    copy_short(t, names, _REAL_TOPIC_SIZE)
    t += _REAL_TOPIC_SIZE
    copy_short(t, get(topic, T_NAME), get(topic, T_NAME_SIZE))
    t += get(topic, T_NAME_SIZE)
    copy_short(t, names + _REAL_TOPIC_SIZE, _REAL_QID_SIZE)
    return _put_end(put_decimal(t + _REAL_QID_SIZE, queue_id))


@njit
def append_one(  # type: ignore[no-untyped-def]
    words, topic, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, properties, size, has_key,
    record,
):  # fmt: skip
    """Append one message; returns (its queue offset, address of the unique key that it was given)."""
    target, waits_in, level = get(words, S_LOG), get(words, S_WAITS_IN), _wait_level(words)
    stored_in, stored_queue, stored_number = topic, queue_id, number_at
    if waits_in:
        stored_in, stored_queue = waits_in, max(level - 1, 0)
        stored_number = get(waits_in, T_NUMBERS) + 4 * stored_queue
    at, queue_offset = _append(
        words, target, stored_number, stored_queue, flag, sys_flag, born, reconsume, body, body_size, stored_in
    )
    t = _put_level(words, at + 2, properties, size) if level else _put_ended(at + 2, properties, size)
    copy_short(t, get(words, S_SUFFIX), get(words, S_SUFFIX_SIZE))
    t += get(words, S_SUFFIX_SIZE)
    key = np.int64(0)
    if not has_key:
        store_i64(t, UNIQ_KEY_WORD)
        store_u8(t + UNIQ_KEY_SIZE, NAME_END)
        key = t + UNIQ_KEY_SIZE + 1
        t = _put_unique_id(words, key)
        store_u8(t, PAIR_END)
        t += 1
    copy_short(t, get(words, S_CLUSTER), get(words, S_CLUSTER_SIZE))
    t += get(words, S_CLUSTER_SIZE)
    if waits_in:
        t = _put_wait(words, t, topic, queue_id)
    store_i16(at, t - at - 2)
    store_i32(target, record)  # last: a process that is killed in between leaves no half of a record
    put(words, S_LOG_OFFSET, get(words, S_LOG_OFFSET) + record)
    put(words, S_LOG, target + record)
    return queue_offset, key
