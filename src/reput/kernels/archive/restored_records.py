"""Rows of an archive -> record bytes: to restore them, and to prove that a row gives its record back.

The rows come as one int64 vector of addresses of Arrow's own buffers, in the order of `ADDRESSES`.
"""

from __future__ import annotations

import numpy as np

from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.java import INT32_MAX
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE, V1_MAX_TOPIC_SIZE, MagicCode
from reput.kernels.archive.property_orders import AS_STORED, KEYS, NO_END, PAIR, TAGS, UNIQUE_KEY
from reput.kernels.machine.jit import inlined, kernel
from reput.kernels.machine.memory import (
    copy,
    copy_short,
    equal_bytes,
    load_u8,
    store_i16,
    store_i32,
    store_i64,
    store_u8,
)
from reput.kernels.records.column_addresses import int32_of, int64_of, list_slice, text_slice
from reput.kernels.records.property_names import (
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
)
from reput.kernels.records.record_encode import put_record

#: What each element of the vector points to. Columns of few values are dictionaries: int32[rows] into their values.
ADDRESSES = (
    "topic",
    "topic_offsets",
    "topics",
    "born_host",
    "born_host_offsets",
    "born_hosts",  # as records have them
    "store_host",
    "store_host_offsets",
    "store_hosts",
    "property_order",
    "property_order_offsets",
    "property_orders",
    "queue_id",
    "queue_offset",
    "commit_log_offset",
    "magic_code",
    "flag",
    "sys_flag",
    "born_timestamp",  # us
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_offsets",
    "bodies",
    "tags_offsets",
    "tags",
    "unique_key_offsets",
    "unique_keys",
    "keys_lists",
    "keys_offsets",
    "keys",
    "properties_lists",
    "name_offsets",
    "names",
    "value_offsets",
    "values",
    "raw_properties_offsets",
    "raw_properties",
)
(
    _TOPIC, _TOPIC_OFFSETS, _TOPICS, _BORN_HOST, _BORN_HOST_OFFSETS, _BORN_HOSTS, _STORE_HOST, _STORE_HOST_OFFSETS,
    _STORE_HOSTS, _ORDER, _ORDER_OFFSETS, _ORDERS, _QUEUE_ID, _QUEUE_OFFSET, _OFFSET, _MAGIC_CODE, _FLAG, _SYS_FLAG,
    _BORN, _STORED, _RECONSUME_TIMES, _PREPARED, _BODY_OFFSETS, _BODIES, _TAGS_OFFSETS, _TAGS, _UNIQUE_OFFSETS,
    _UNIQUE, _KEYS_LISTS, _KEYS_OFFSETS, _KEYS, _MAP_LISTS, _NAME_OFFSETS, _NAMES, _VALUE_OFFSETS, _VALUES,
    _RAW_OFFSETS, _RAWS,
) = range(len(ADDRESSES))  # fmt: skip

_V1, _V2 = int(MagicCode.MESSAGE_V1), int(MagicCode.MESSAGE_V2)
_US = 1000


@inlined
def _coded(addresses, column, row):  # type: ignore[no-untyped-def]
    """Address and size of a row's value of a dictionary column; its values follow the column in the vector."""
    return text_slice(addresses, column + 1, column + 2, np.int64(int32_of(addresses, column, row)))


@inlined
def _properties_size(addresses, row, order, letters):  # type: ignore[no-untyped-def]
    """Bytes of the properties text that a row gives; -1 for an order that is none."""
    if letters == 1 and load_u8(order) == AS_STORED:
        _, raw = text_slice(addresses, _RAW_OFFSETS, _RAWS, row)
        return raw
    pair, last_pair = list_slice(addresses, _MAP_LISTS, row)
    size = np.int64(0)
    for i in range(letters):
        letter = load_u8(order + i)
        if letter == PAIR:
            if pair >= last_pair:
                return -1
            _, name = text_slice(addresses, _NAME_OFFSETS, _NAMES, pair)
            _, value = text_slice(addresses, _VALUE_OFFSETS, _VALUES, pair)
            size += name + value + PAIR_ENDS
            pair += 1
        elif letter == UNIQUE_KEY:
            _, value = text_slice(addresses, _UNIQUE_OFFSETS, _UNIQUE, row)
            size += UNIQ_KEY_SIZE + value + PAIR_ENDS
        elif letter == TAGS:
            _, value = text_slice(addresses, _TAGS_OFFSETS, _TAGS, row)
            size += TAGS_SIZE + value + PAIR_ENDS
        elif letter == KEYS:
            first, last = list_slice(addresses, _KEYS_LISTS, row)
            size += KEYS_SIZE + PAIR_ENDS + max(last - first - 1, 0)
            for key in range(first, last):
                _, value = text_slice(addresses, _KEYS_OFFSETS, _KEYS, key)
                size += value
        elif letter == NO_END and 0 < i == letters - 1:
            size -= 1
        else:
            return -1
    return size


@inlined
def _put_properties(addresses, row, order, letters, target, size):  # type: ignore[no-untyped-def]
    """Write the properties text of a row, whose size is known."""
    if letters == 1 and load_u8(order) == AS_STORED:
        raw, raw_size = text_slice(addresses, _RAW_OFFSETS, _RAWS, row)
        copy(target, raw, raw_size)
        return
    end = target + size
    pair, _ = list_slice(addresses, _MAP_LISTS, row)
    for i in range(letters):
        letter = load_u8(order + i)
        if letter == PAIR:
            name, name_size = text_slice(addresses, _NAME_OFFSETS, _NAMES, pair)
            copy_short(target, name, name_size)
            store_u8(target + name_size, NAME_END)
            value, value_size = text_slice(addresses, _VALUE_OFFSETS, _VALUES, pair)
            copy_short(target + name_size + 1, value, value_size)
            target += name_size + 1 + value_size
            pair += 1
        elif letter == UNIQUE_KEY:
            value, value_size = text_slice(addresses, _UNIQUE_OFFSETS, _UNIQUE, row)
            store_i64(target, UNIQ_KEY_WORD)
            store_u8(target + UNIQ_KEY_SIZE, NAME_END)
            copy_short(target + UNIQ_KEY_SIZE + 1, value, value_size)
            target += UNIQ_KEY_SIZE + 1 + value_size
        elif letter == TAGS:
            value, value_size = text_slice(addresses, _TAGS_OFFSETS, _TAGS, row)
            store_i32(target, TAGS_WORD)
            store_u8(target + TAGS_SIZE, NAME_END)
            copy_short(target + TAGS_SIZE + 1, value, value_size)
            target += TAGS_SIZE + 1 + value_size
        elif letter == KEYS:
            store_i32(target, KEYS_WORD)
            store_u8(target + KEYS_SIZE, NAME_END)
            target += KEYS_SIZE + 1
            first, last = list_slice(addresses, _KEYS_LISTS, row)
            for key in range(first, last):
                value, value_size = text_slice(addresses, _KEYS_OFFSETS, _KEYS, key)
                copy_short(target, value, value_size)
                target += value_size
                if key + 1 < last:
                    store_u8(target, KEY_END)
                    target += 1
        if target < end and letter != NO_END:  # the last pair may lack it
            store_u8(target, PAIR_END)
            target += 1


@inlined
def _size_of(addresses, row):  # type: ignore[no-untyped-def]
    """Bytes of the record that a row gives, and of its properties; -1 for a row that gives none."""
    order, letters = _coded(addresses, _ORDER, row)
    properties_size = _properties_size(addresses, row, order, letters)
    _, topic_size = _coded(addresses, _TOPIC, row)
    _, born_size = _coded(addresses, _BORN_HOST, row)
    _, store_size = _coded(addresses, _STORE_HOST, row)
    _, body_size = text_slice(addresses, _BODY_OFFSETS, _BODIES, row)
    magic = int32_of(addresses, _MAGIC_CODE, row)
    most_topic = MAX_PROPERTIES_SIZE if magic == _V2 else V1_MAX_TOPIC_SIZE
    size = MIN_RECORD_SIZE + body_size + topic_size + properties_size + (1 if magic == _V2 else 0)
    size += born_size - HOST_V4_SIZE + store_size - HOST_V4_SIZE
    are_hosts = born_size in (HOST_V4_SIZE, HOST_V6_SIZE) and store_size in (HOST_V4_SIZE, HOST_V6_SIZE)
    is_record = magic in (_V1, _V2) and are_hosts and topic_size <= most_topic and size <= INT32_MAX
    if not is_record or properties_size < 0 or properties_size > MAX_PROPERTIES_SIZE:
        return np.int64(-1), np.int64(0)
    return np.int64(size), np.int64(properties_size)


@inlined
def _put(addresses, row, size, properties_size, target):  # type: ignore[no-untyped-def]
    """Write the record of a row, of a size that `_size_of` has told."""
    topic, topic_size = _coded(addresses, _TOPIC, row)
    born_host, born_host_size = _coded(addresses, _BORN_HOST, row)
    store_host, store_host_size = _coded(addresses, _STORE_HOST, row)
    body, body_size = text_slice(addresses, _BODY_OFFSETS, _BODIES, row)
    order, letters = _coded(addresses, _ORDER, row)
    properties = put_record(
        target, size, int32_of(addresses, _QUEUE_ID, row), int32_of(addresses, _FLAG, row),
        int64_of(addresses, _QUEUE_OFFSET, row), int64_of(addresses, _OFFSET, row),
        int32_of(addresses, _SYS_FLAG, row), int64_of(addresses, _BORN, row) // _US, born_host, born_host_size,
        int64_of(addresses, _STORED, row) // _US, store_host, store_host_size,
        int32_of(addresses, _RECONSUME_TIMES, row), int64_of(addresses, _PREPARED, row), body, body_size, topic,
        topic_size, int32_of(addresses, _MAGIC_CODE, row) == _V2,
    )  # fmt: skip
    store_i16(properties, properties_size)
    _put_properties(addresses, row, order, letters, properties + 2, properties_size)


@kernel("int64(int64[::1], int64, int64, int64[::1], int32[::1], int64, uint8[::1])")
def prove_records(addresses, rows, log, positions, sizes, scratch, differs):  # type: ignore[no-untyped-def]
    """Compare the record of each row with the log; returns the number of rows that give another one.

    Args:
        addresses: Of the rows.
        log: Address of the log file's bytes.
        positions, sizes: int64[rows] and int32[rows], of the records in the log file.
        scratch: Address of room for the largest of these sizes.
        differs: uint8[rows], takes 1 for a row that gives another record or none.
    """
    count = 0
    for row in range(rows):
        size, properties_size = _size_of(addresses, row)
        is_equal = size == sizes[row]
        if is_equal:
            _put(addresses, row, size, properties_size, scratch)
            is_equal = equal_bytes(scratch, log + positions[row], size)
        differs[row] = 0 if is_equal else 1
        count += differs[row]
    return count


@kernel("int64(int64[::1], int64, int64, int64, int64)")
def restore_records(addresses, rows, out, out_size, base_offset):  # type: ignore[no-untyped-def]
    """Write the record of each row at its place; returns the number of rows, or that of the first that has no place.

    `out` is the address of the `out_size` bytes of the log file that begins at `base_offset`.
    """
    for row in range(rows):
        size, properties_size = _size_of(addresses, row)
        offset = int64_of(addresses, _OFFSET, row)
        if size < 0 or offset < base_offset or offset - base_offset > out_size - size:
            return row
        _put(addresses, row, size, properties_size, out + (offset - base_offset))
    return rows
