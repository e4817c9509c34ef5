"""Columns of a table of messages as kernels read them: one int64 vector of addresses (Arrow's own buffers).

An address of 0 means that a column is absent. Offsets are Arrow's: native int32, one more than rows.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.machine.jit import inlined
from reput.kernels.machine.memory import load_i32_native, load_i64_native

#: What each element of the vector of addresses points to.
ADDRESSES = (
    "queue",  # int32[rows]: the row's queue, numbered within the batch
    "queue_topic",  # int32[queues]
    "queue_id",  # int32[queues]
    "topic_is_v2",  # uint8[topics]
    "topic_offsets",
    "topics",
    "body_offsets",
    "bodies",
    "tags_offsets",
    "tags",
    "keys_lists",  # a list's offsets into keys_offsets
    "keys_offsets",
    "keys",
    "unique_key_offsets",
    "unique_keys",
    "properties_lists",
    "name_offsets",
    "names",
    "value_offsets",
    "values",
    "flag",  # int32[rows]
    "sys_flag",  # int32[rows], host bits as the born hosts need them
    "born_timestamp",  # int64[rows], ms
    "reconsume_times",  # int32[rows]
    "prepared_transaction_offset",  # int64[rows]
    "born_host_offsets",
    "born_hosts",
)
(
    A_QUEUE, A_QUEUE_TOPIC, A_QUEUE_ID, A_TOPIC_IS_V2, A_TOPIC_OFFSETS, A_TOPICS, A_BODY_OFFSETS, A_BODIES,
    A_TAGS_OFFSETS, A_TAGS, A_KEYS_LISTS, A_KEYS_OFFSETS, A_KEYS, A_UNIQUE_OFFSETS, A_UNIQUE, A_PROPERTIES_LISTS,
    A_NAME_OFFSETS, A_NAMES, A_VALUE_OFFSETS, A_VALUES, A_FLAG, A_SYS_FLAG, A_BORN_TIMESTAMP, A_RECONSUME_TIMES,
    A_PREPARED, A_HOST_OFFSETS, A_HOSTS,
) = range(len(ADDRESSES))  # fmt: skip


@inlined
def text_slice(addresses, offsets, data, row):  # type: ignore[no-untyped-def]
    """Address and size of one value of a string or binary column; size 0 if the column is absent."""
    table = addresses[offsets]
    if table == 0:
        return 0, 0
    begin = np.int64(load_i32_native(table + 4 * row))
    return addresses[data] + begin, np.int64(load_i32_native(table + 4 * row + 4)) - begin


@inlined
def list_slice(addresses, lists, row):  # type: ignore[no-untyped-def]
    """First and last + 1 element of one value of a list or map column."""
    table = addresses[lists]
    if table == 0:
        return 0, 0
    return np.int64(load_i32_native(table + 4 * row)), np.int64(load_i32_native(table + 4 * row + 4))


@inlined
def int32_of(addresses, column, row):  # type: ignore[no-untyped-def]
    """One value of a number column; 0 if the column is absent."""
    return load_i32_native(addresses[column] + 4 * row) if addresses[column] else np.int32(0)


@inlined
def int64_of(addresses, column, row):  # type: ignore[no-untyped-def]
    """One value of a number column; 0 if the column is absent."""
    return load_i64_native(addresses[column] + 8 * row) if addresses[column] else np.int64(0)
