"""Records of sends, written by a kernel into the mapped log."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.properties import SIZE_ADDED_LATER
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE
from reput.kernels.machine.blocks import get, put
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
    store_i64_native,
    store_u8,
)
from reput.kernels.records.log_room import B_LOG, B_LOG_OFFSET, B_NEXT_OFFSETS, B_NOW
from reput.kernels.records.property_crc import carries_property_crc
from reput.kernels.records.record_encode import put_record
from reput.kernels.wire.send_answers import put_hex
from reput.kernels.wire.send_block import (
    B_BATCH_SUFFIX_SIZE,
    B_BORN_HOST,
    B_CLUSTER,
    B_CLUSTER_SIZE,
    B_COUNTER,
    B_MONTH_BEGIN,
    B_SCRATCH,
    B_STORE_HOST,
    B_SUFFIX,
    B_SUFFIX_SIZE,
    B_TAKES_BATCH_PROPERTIES,
    B_UNIQUE_PREFIX,
    MOST_ITEMS,
    SIZES_AT,
    T_NAME,
    T_NAME_SIZE,
)

HOST_SIZE = 8
UNIQUE_SIZE = 32
_UNIQUE_PREFIX_SIZE = 20
UNIQ_KEY_NATIVE = np.int64(int.from_bytes(b"UNIQ_KEY", "little"))
_MAX_PROPERTIES = MAX_PROPERTIES_SIZE - SIZE_ADDED_LATER
_MIN_RECORD = MIN_RECORD_SIZE
_MIN_ITEM, _ITEM_BODY = 22, 20


@njit
def _put_unique_id(block, t):  # type: ignore[no-untyped-def]
    """Write an id for a message that came without one (`service.unique_id`)."""
    counter = (get(block, B_COUNTER) + 1) & 0xFFFF
    put(block, B_COUNTER, counter)
    copy_short(t, get(block, B_UNIQUE_PREFIX), _UNIQUE_PREFIX_SIZE)
    t = put_hex(t + _UNIQUE_PREFIX_SIZE, (get(block, B_NOW) - get(block, B_MONTH_BEGIN)) & 0xFFFFFFFF, 8)
    return put_hex(t, counter, 4)


@njit
def _append(  # type: ignore[no-untyped-def]
    block, p, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, topic
):
    """Write a record but for its properties and its size; returns (where properties go, its queue offset)."""
    offset = get(block, B_LOG_OFFSET) + (p - get(block, B_LOG))
    counter = get(block, B_NEXT_OFFSETS) + 8 * np.int64(load_i32_native(number_at))
    queue_offset = load_i64_native(counter)
    target = put_record(
        p, 0, queue_id, flag, queue_offset, offset, sys_flag, born, get(block, B_BORN_HOST), HOST_SIZE,
        get(block, B_NOW), get(block, B_STORE_HOST), HOST_SIZE, reconsume, 0, body, body_size,
        get(topic, T_NAME), get(topic, T_NAME_SIZE), False,
    )  # fmt: skip
    store_i64_native(counter, queue_offset + 1)
    return target, queue_offset


@njit
def is_ended(p, size):  # type: ignore[no-untyped-def]
    """Whether properties need no 2 before others are added."""
    return size == 0 or load_u8(p + size - 1) == 2


@njit
def _put_ended(t, properties, size):  # type: ignore[no-untyped-def]
    copy_short(t, properties, size)
    t += size
    if not is_ended(properties, size):
        store_u8(t, 2)
        t += 1
    return t


@njit
def _batch_properties(block, properties, size):  # type: ignore[no-untyped-def]
    """Bytes that each message of a batch gets after its own properties."""
    if not get(block, B_TAKES_BATCH_PROPERTIES):
        return np.int64(0)
    return size + (0 if is_ended(properties, size) else 1) + get(block, B_BATCH_SUFFIX_SIZE)


@njit
def measure_batch(block, topic, body, body_size, properties, size):  # type: ignore[no-untyped-def]
    """(number of messages, bytes of their records), each record's size in the scratch; (0, 0) where it is odd."""
    sizes = get(block, B_SCRATCH) + SIZES_AT
    added = _batch_properties(block, properties, size)
    end, p = body + body_size, body
    total, count = np.int64(0), 0
    while p < end:
        if p + _ITEM_BODY > end or count == MOST_ITEMS:
            return 0, np.int64(0)
        item, item_body = np.int64(load_i32(p)), np.int64(load_i32(p + 16))
        if item < _MIN_ITEM or p + item > end or item_body < 0 or item_body > item - _MIN_ITEM:
            return 0, np.int64(0)
        own = np.int64(load_i16(p + _ITEM_BODY + item_body))
        if own < 0 or _MIN_ITEM + item_body + own != item:
            return 0, np.int64(0)
        text = own + (0 if added == 0 or is_ended(p + _MIN_ITEM + item_body, own) else 1) + added
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
    block, topic, number_at, queue_id, sys_flag, born, reconsume, body, count, properties, size
):
    """Append the messages of a batch that was measured; returns the queue offset of the first."""
    sizes = get(block, B_SCRATCH) + SIZES_AT
    p, target, first = body, get(block, B_LOG), np.int64(0)
    added = _batch_properties(block, properties, size)
    for i in range(count):
        item, item_body = np.int64(load_i32(p)), np.int64(load_i32(p + 16))
        own, text = item - _MIN_ITEM - item_body, p + _MIN_ITEM + item_body
        at, queue_offset = _append(
            block, target, number_at, queue_id, load_i32(p + 12), sys_flag, born, reconsume, p + _ITEM_BODY, item_body,
            topic,
        )  # fmt: skip
        first = queue_offset if i == 0 else first
        t = at + 2
        if added:
            t = _put_ended(_put_ended(t, text, own), properties, size)
            copy_short(t, get(block, B_SUFFIX), get(block, B_BATCH_SUFFIX_SIZE))
            t += get(block, B_BATCH_SUFFIX_SIZE)
        else:
            copy_short(t, text, own)
            t += own
        store_i16(at, t - at - 2)
        record = np.int64(load_i32_native(sizes + 4 * i))
        store_i32(target, record)  # last: a process that is killed in between leaves no half of a record
        target += record
        p += item
    put(block, B_LOG_OFFSET, get(block, B_LOG_OFFSET) + target - get(block, B_LOG))
    put(block, B_LOG, target)
    return first


@njit
def append_one(  # type: ignore[no-untyped-def]
    block, topic, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, properties, size, has_key,
    record,
):  # fmt: skip
    """Append one message; returns (its queue offset, address of the unique key that it was given)."""
    target = get(block, B_LOG)
    at, queue_offset = _append(
        block, target, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, topic
    )
    t = _put_ended(at + 2, properties, size)
    copy_short(t, get(block, B_SUFFIX), get(block, B_SUFFIX_SIZE))
    t += get(block, B_SUFFIX_SIZE)
    key = np.int64(0)
    if not has_key:
        store_i64_native(t, UNIQ_KEY_NATIVE)
        store_u8(t + 8, 1)
        key = t + 9
        t = _put_unique_id(block, key)
        store_u8(t, 2)
        t += 1
    copy_short(t, get(block, B_CLUSTER), get(block, B_CLUSTER_SIZE))
    t += get(block, B_CLUSTER_SIZE)
    store_i16(at, t - at - 2)
    store_i32(target, record)  # last: a process that is killed in between leaves no half of a record
    put(block, B_LOG_OFFSET, get(block, B_LOG_OFFSET) + record)
    put(block, B_LOG, target + record)
    return queue_offset, key
