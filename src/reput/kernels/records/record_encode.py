"""Columns -> record bytes, many at a time: the mirror of `record_scan`.

Three kernels. `measure` sizes every row and finds the first that may not be written, before anything is. `encode`
writes whole records with QUEUEOFFSET, PHYSICALOFFSET and STORETIMESTAMP left 0; it runs outside the append lock.
`patch` fills those three in under the lock, in 3 ns a record while the bytes are still in the cache.

The columns come as `column_addresses` has them.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit

from reput.formats.hosts import HOST_GROWTH, HOST_V4_SIZE
from reput.formats.record_layout import (
    BODY_CRC,
    BODY_LENGTH,
    BORN_HOST,
    BORN_TIMESTAMP,
    FLAG,
    MAGIC_CODE,
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
    MagicCode,
    SysFlag,
)
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.jit import inlined, kernel
from reput.kernels.machine.memory import (
    copy,
    copy_short,
    load_i16,
    load_i32,
    load_i32_native,
    load_i64,
    load_u8,
    store_i16,
    store_i32,
    store_i64,
    store_u8,
)
from reput.kernels.records.column_addresses import (
    A_BODIES,
    A_BODY_OFFSETS,
    A_BORN_TIMESTAMP,
    A_FLAG,
    A_HOST_OFFSETS,
    A_HOSTS,
    A_KEYS,
    A_KEYS_LISTS,
    A_KEYS_OFFSETS,
    A_NAME_OFFSETS,
    A_NAMES,
    A_PREPARED,
    A_PROPERTIES_LISTS,
    A_QUEUE,
    A_QUEUE_ID,
    A_QUEUE_TOPIC,
    A_RECONSUME_TIMES,
    A_SYS_FLAG,
    A_TAGS,
    A_TAGS_OFFSETS,
    A_TOPIC_IS_V2,
    A_TOPIC_OFFSETS,
    A_TOPICS,
    A_UNIQUE,
    A_UNIQUE_OFFSETS,
    A_VALUE_OFFSETS,
    A_VALUES,
    int32_of,
    int64_of,
    list_slice,
    text_slice,
)
from reput.kernels.records.property_crc import is_property_crc, put_property_crc
from reput.kernels.records.property_names import (
    INNER_BASE_REST,
    INNER_BASE_SIZE,
    INNER_BASE_WORD,
    INNER_NUM_REST,
    INNER_NUM_SIZE,
    INNER_NUM_WORD,
    KEY_END,
    KEYS_SIZE,
    KEYS_WORD,
    NAME_END,
    PAIR_END,
    PAIR_ENDS,
    TAGS_SIZE,
    TAGS_WORD,
    UNIQ_KEY_SIZE,
    UNIQ_KEY_WORD,
    UNIQ_REST,
    UNIQ_WORD,
)


class EncodeFault(IntEnum):
    """Reason why a row may not be written."""

    NONE = 0
    BODY_TOO_LARGE = 1
    PROPERTIES_TOO_LARGE = 2
    SEPARATOR_IN_TAGS = 3
    SEPARATOR_IN_KEYS = 4
    BLANK_OR_EMPTY_KEY = 5
    SEPARATOR_IN_UNIQUE_KEY = 6
    SEPARATOR_IN_PROPERTIES = 7
    EMPTY_PROPERTY = 8
    RESERVED_PROPERTY = 9


_V1, _V2 = int(MagicCode.MESSAGE_V1), int(MagicCode.MESSAGE_V2)
_BORN_V6, _STORE_V6, _TRANSACTION = SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, SysFlag.TRANSACTION_MASK
_PREPARED, _ROLLBACK = SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK
_MAX_PROPERTIES = MAX_PROPERTIES_SIZE
_BODY_TOO_LARGE, _PROPERTIES_TOO_LARGE, _IN_TAGS, _IN_KEYS, _BAD_KEY, _IN_UNIQUE, _IN_PROPERTIES, _EMPTY, _RESERVED = (
    int(fault) for fault in list(EncodeFault)[1:]
)


@njit
def has_separator(text, size, other):  # type: ignore[no-untyped-def]
    """Whether one of the bytes that end names and values, or the byte `other`, is among the bytes."""
    found = False
    for i in range(size):
        byte = load_u8(text + i)
        found |= (byte == NAME_END) | (byte == PAIR_END) | (byte == other)
    return found


@inlined
def _any_separator(addresses, offsets, data, first, last, other):  # type: ignore[no-untyped-def]
    """The same for all values from `first` to `last`: they follow each other, so it is one vectorized loop."""
    if first == last or addresses[offsets] == 0:
        return False
    begin, _ = text_slice(addresses, offsets, data, first)
    end, size = text_slice(addresses, offsets, data, last - 1)
    return has_separator(begin, end + size - begin, other)


@inlined
def _any_suspicious(addresses, rows):  # type: ignore[no-untyped-def]
    """Whether the texts must be looked at one by one: somewhere is a separator, or a blank in a key."""
    keys, _ = list_slice(addresses, A_KEYS_LISTS, 0)
    _, keys_end = list_slice(addresses, A_KEYS_LISTS, rows - 1)
    pairs, _ = list_slice(addresses, A_PROPERTIES_LISTS, 0)
    _, pairs_end = list_slice(addresses, A_PROPERTIES_LISTS, rows - 1)
    return (
        _any_separator(addresses, A_UNIQUE_OFFSETS, A_UNIQUE, 0, rows, NAME_END)
        or _any_separator(addresses, A_TAGS_OFFSETS, A_TAGS, 0, rows, NAME_END)
        or _any_separator(addresses, A_KEYS_OFFSETS, A_KEYS, keys, keys_end, KEY_END)
        or _any_separator(addresses, A_NAME_OFFSETS, A_NAMES, pairs, pairs_end, NAME_END)
        or _any_separator(addresses, A_VALUE_OFFSETS, A_VALUES, pairs, pairs_end, NAME_END)
    )


@njit
def is_reserved(name, size):  # type: ignore[no-untyped-def]
    """Whether a property's name is one that `Message` has a field for, or that only the store writes."""
    if size == TAGS_SIZE:
        word = load_i32(name)
        return word in (TAGS_WORD, KEYS_WORD)
    if size == INNER_NUM_SIZE:
        return load_i64(name) == INNER_NUM_WORD and load_u8(name + 8) == INNER_NUM_REST
    if size == INNER_BASE_SIZE:
        return load_i64(name) == INNER_BASE_WORD and load_i16(name + 8) == INNER_BASE_REST
    return size == UNIQ_KEY_SIZE and load_i64(name) == UNIQ_KEY_WORD


@inlined
def _keys_size(addresses, row, look):  # type: ignore[no-untyped-def]
    """Bytes of the KEYS value, and a fault."""
    first, last = list_slice(addresses, A_KEYS_LISTS, row)
    size = max(last - first - 1, 0)
    for i in range(first, last):
        key, key_size = text_slice(addresses, A_KEYS_OFFSETS, A_KEYS, i)
        if look and has_separator(key, key_size, NAME_END):
            return 0, _IN_KEYS
        if key_size == 0 or (look and has_separator(key, key_size, KEY_END)):
            return 0, _BAD_KEY
        size += key_size
    return size, 0


@inlined
def _map_size(addresses, row, look):  # type: ignore[no-untyped-def]
    """Bytes of the pairs of the properties column, and a fault."""
    first, last = list_slice(addresses, A_PROPERTIES_LISTS, row)
    size = 0
    for i in range(first, last):
        name, name_size = text_slice(addresses, A_NAME_OFFSETS, A_NAMES, i)
        value, value_size = text_slice(addresses, A_VALUE_OFFSETS, A_VALUES, i)
        if name_size == 0 or value_size == 0:
            return 0, _EMPTY
        if look and (has_separator(name, name_size, NAME_END) or has_separator(value, value_size, NAME_END)):
            return 0, _IN_PROPERTIES
        if is_reserved(name, name_size):
            return 0, _RESERVED
        if is_property_crc(name, name_size):  # of the record that these properties were read from
            continue
        size += name_size + value_size + PAIR_ENDS
    return size, 0


@inlined
def _properties_size(addresses, row, reserved, look):  # type: ignore[no-untyped-def]
    """Bytes of the properties text and of what is reserved after it, and a fault."""
    size, fault = _map_size(addresses, row, look)
    if fault:
        return 0, fault
    size += reserved
    unique, unique_size = text_slice(addresses, A_UNIQUE_OFFSETS, A_UNIQUE, row)
    if unique_size:
        if look and has_separator(unique, unique_size, NAME_END):
            return 0, _IN_UNIQUE
        size += UNIQ_KEY_SIZE + unique_size + PAIR_ENDS
    tags, tags_size = text_slice(addresses, A_TAGS_OFFSETS, A_TAGS, row)
    if tags_size:
        if look and has_separator(tags, tags_size, NAME_END):
            return 0, _IN_TAGS
        size += TAGS_SIZE + tags_size + PAIR_ENDS
    keys_size, fault = _keys_size(addresses, row, look)
    if fault:
        return 0, fault
    if keys_size:
        size += KEYS_SIZE + keys_size + PAIR_ENDS
    return size, _PROPERTIES_TOO_LARGE if size > _MAX_PROPERTIES else 0


@kernel("int64(int64[::1], int64, int64, int64, int64, int32[::1], int32[::1])")
def measure(  # type: ignore[no-untyped-def]
    addresses, rows, max_body_size, store_host_size, reserved, sizes, properties_sizes
):
    """Fill int32[rows] of record sizes and of properties sizes; returns -1, or the first bad row * 16 + its fault.

    `reserved` bytes at the end of each record's properties are left for `patch`: 20 for a property CRC, or none.
    """
    look = rows > 0 and _any_suspicious(addresses, rows)
    for row in range(rows):
        _, body_size = text_slice(addresses, A_BODY_OFFSETS, A_BODIES, row)
        if body_size > max_body_size:
            return row * 16 + _BODY_TOO_LARGE
        properties_size, fault = _properties_size(addresses, row, reserved, look)
        if fault:
            return row * 16 + fault
        topic = np.int64(load_i32_native(addresses[A_QUEUE_TOPIC] + 4 * np.int64(int32_of(addresses, A_QUEUE, row))))
        _, topic_size = text_slice(addresses, A_TOPIC_OFFSETS, A_TOPICS, topic)
        _, host_size = text_slice(addresses, A_HOST_OFFSETS, A_HOSTS, row)
        size = MIN_RECORD_SIZE + body_size + topic_size + properties_size + load_u8(addresses[A_TOPIC_IS_V2] + topic)
        sizes[row] = size + (host_size - HOST_V4_SIZE) + (store_host_size - HOST_V4_SIZE)
        properties_sizes[row] = properties_size
    return -1


@njit
def _put_name(target, word):  # type: ignore[no-untyped-def]
    """A name of four bytes, or the end of a longer one, and the separator; returns where the value goes."""
    store_i32(target, word)
    store_u8(target + 4, NAME_END)
    return target + 5


@njit
def _put_text(target, text, size):  # type: ignore[no-untyped-def]
    """A value and the byte that ends the pair; returns where the next goes."""
    copy_short(target, text, size)
    store_u8(target + size, PAIR_END)
    return target + size + 1


@inlined
def put_properties(addresses, row, target):  # type: ignore[no-untyped-def]
    """The properties of a row, as text; returns where it ends."""
    unique, unique_size = text_slice(addresses, A_UNIQUE_OFFSETS, A_UNIQUE, row)
    if unique_size:
        store_i32(target, UNIQ_WORD)
        target = _put_text(_put_name(target + 4, UNIQ_REST), unique, unique_size)
    tags, tags_size = text_slice(addresses, A_TAGS_OFFSETS, A_TAGS, row)
    if tags_size:
        target = _put_text(_put_name(target, TAGS_WORD), tags, tags_size)
    first, last = list_slice(addresses, A_KEYS_LISTS, row)
    if last > first:
        target = _put_name(target, KEYS_WORD)
        for i in range(first, last):
            key, key_size = text_slice(addresses, A_KEYS_OFFSETS, A_KEYS, i)
            copy_short(target, key, key_size)
            target += key_size
            store_u8(target, KEY_END if i + 1 < last else PAIR_END)
            target += 1
    first, last = list_slice(addresses, A_PROPERTIES_LISTS, row)
    for i in range(first, last):
        name, name_size = text_slice(addresses, A_NAME_OFFSETS, A_NAMES, i)
        value, value_size = text_slice(addresses, A_VALUE_OFFSETS, A_VALUES, i)
        if is_property_crc(name, name_size):
            continue
        copy_short(target, name, name_size)
        store_u8(target + name_size, NAME_END)
        target = _put_text(target + name_size + 1, value, value_size)
    return target


@njit
def put_record(  # type: ignore[no-untyped-def]
    p, size, queue_id, flag, queue_offset, commit_log_offset, sys_flag, born_timestamp, born_host, born_host_size,
    store_timestamp, store_host, store_host_size, reconsume_times, prepared_transaction_offset, body, body_size,
    topic, topic_size, is_v2,
):  # fmt: skip
    """All of a record of `size` bytes but its properties and their length; returns where these go."""
    growth = born_host_size - HOST_V4_SIZE
    flags = np.int64(sys_flag) & ~(_BORN_V6 | _STORE_V6)
    flags |= _BORN_V6 if growth else 0
    flags |= _STORE_V6 if store_host_size > HOST_V4_SIZE else 0
    store_i32(p, size)
    store_i32(p + MAGIC_CODE, _V2 if is_v2 else _V1)
    store_i32(p + BODY_CRC, body_crc(body, body_size))
    store_i32(p + QUEUE_ID, queue_id)
    store_i32(p + FLAG, flag)
    store_i64(p + QUEUE_OFFSET, queue_offset)
    store_i64(p + PHYSICAL_OFFSET, commit_log_offset)
    store_i32(p + SYS_FLAG, flags)
    store_i64(p + BORN_TIMESTAMP, born_timestamp)
    copy_short(p + BORN_HOST, born_host, born_host_size)
    store_i64(p + STORE_TIMESTAMP + growth, store_timestamp)
    copy_short(p + STORE_HOST + growth, store_host, store_host_size)
    growth += store_host_size - HOST_V4_SIZE
    store_i32(p + RECONSUME_TIMES + growth, reconsume_times)
    store_i64(p + PREPARED_TRANSACTION_OFFSET + growth, prepared_transaction_offset)
    target = p + BODY_LENGTH + growth
    store_i32(target, body_size)
    copy(target + 4, body, body_size)
    target += 4 + body_size
    if is_v2:
        store_i16(target, topic_size)
        target += 2
    else:
        store_u8(target, topic_size)
        target += 1
    copy_short(target, topic, topic_size)
    return target + topic_size


@kernel("int64(int64[::1], int64, int64, int32[::1], int32[::1], int64, int64, int64, int64, int32[::1])")
def encode(  # type: ignore[no-untyped-def]
    addresses, begin, end, sizes, properties_sizes, store_host, store_host_size, out, capacity, positions
):
    """Write rows from `begin` into `out` while they fit its capacity; returns the first row that was not written.

    `positions` (int32) takes where each record starts in `out`, and after the last one where it ends.
    """
    p = out
    row = begin
    while row < end and p + np.int64(sizes[row]) <= out + capacity:
        queue = np.int64(int32_of(addresses, A_QUEUE, row))
        topic = np.int64(load_i32_native(addresses[A_QUEUE_TOPIC] + 4 * queue))
        is_v2 = load_u8(addresses[A_TOPIC_IS_V2] + topic) != 0
        body, body_size = text_slice(addresses, A_BODY_OFFSETS, A_BODIES, row)
        host, host_size = text_slice(addresses, A_HOST_OFFSETS, A_HOSTS, row)
        positions[row - begin] = p - out
        name, name_size = text_slice(addresses, A_TOPIC_OFFSETS, A_TOPICS, topic)
        target = put_record(
            p, np.int64(sizes[row]), load_i32_native(addresses[A_QUEUE_ID] + 4 * queue),
            int32_of(addresses, A_FLAG, row), 0, 0, int32_of(addresses, A_SYS_FLAG, row),
            int64_of(addresses, A_BORN_TIMESTAMP, row), host, host_size, 0, store_host, store_host_size,
            int32_of(addresses, A_RECONSUME_TIMES, row), int64_of(addresses, A_PREPARED, row), body, body_size, name,
            name_size, is_v2,
        )  # fmt: skip
        store_i16(target, properties_sizes[row])
        put_properties(addresses, row, target + 2)
        p += np.int64(sizes[row])
        row += 1
    positions[row - begin] = p - out
    return row


@kernel("void(int64, int64, int32[::1], int32[::1], int64[::1], int64, int64, boolean, int64[::1], int64[::1])")
def patch(  # type: ignore[no-untyped-def]
    buffer, rows, positions, queues, next_offsets, base_offset, store_timestamp, property_crc, commit_log_offsets,
    queue_offsets,
):  # fmt: skip
    """Give encoded records their places: queue offsets from `next_offsets` (int64[queues], advanced), log offset, time.

    Prepared and rolled back messages have queue offset 0 and take none (`DefaultMessageStore.assignOffset`). The record
    at `positions[0]` gets `base_offset`, and `positions` (int32[rows + 1]) say where each record ends. With
    `property_crc` the last 20 bytes of each record, which `measure` reserved, take the CRC of all before them.

    The places are also written to `commit_log_offsets` and `queue_offsets` (int64[rows] each).
    """
    first = np.int64(positions[0])
    for row in range(rows):
        p = buffer + np.int64(positions[row])
        sys_flag = load_i32(p + SYS_FLAG)
        kind = sys_flag & _TRANSACTION
        queue_offset = np.int64(0)
        if kind != _PREPARED and kind != _ROLLBACK:
            queue = queues[row]
            queue_offset = next_offsets[queue]
            store_i64(p + QUEUE_OFFSET, queue_offset)
            next_offsets[queue] = queue_offset + 1
        commit_log_offset = base_offset + np.int64(positions[row]) - first
        store_i64(p + PHYSICAL_OFFSET, commit_log_offset)
        commit_log_offsets[row], queue_offsets[row] = commit_log_offset, queue_offset
        store_i64(p + STORE_TIMESTAMP + (HOST_GROWTH if sys_flag & _BORN_V6 else 0), store_timestamp)
        if property_crc:
            put_property_crc(p, np.int64(positions[row + 1]) - np.int64(positions[row]))
