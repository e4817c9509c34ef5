"""Records at commit log offsets that others name -> sizes, places in queues, and whether a unit proves each.

Bytes in the body of a message can look like a record of any topic and size, so an offset alone proves nothing: the unit
of the record's queue, which dispatch made, does. Kernels of a microsecond that keep the interpreter lock; who calls
them has seen to it that the bytes are in memory.
"""

from __future__ import annotations

import numpy as np

from reput.formats.consume_queue import SIZE, UNIT_SIZE
from reput.formats.record_layout import (
    BODY,
    BODY_LENGTH,
    MAGIC_CODE,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    MagicCode,
    SysFlag,
)
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import equal_bytes, load_i16, load_i32, load_i64, load_i64_native, load_u8
from reput.kernels.machine.shared_words import get, put

#: A record, in int64 words: the number of the first one of its queue, its place there, and where its topic stands; of a
#: first one also the bounds of the places of its queue's records.
P_FIRST, P_QUEUE_ID, P_QUEUE_OFFSET, P_TOPIC, P_TOPIC_SIZE, P_LOW, P_HIGH = range(0, 56, 8)
PLACE_WORDS = 7
_V1 = int(MagicCode.MESSAGE_V1)
_V6_HOSTS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_MIN_RECORD, _UNIT = MIN_RECORD_SIZE, UNIT_SIZE


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)", short=True)
def run_heads(offsets, step, count, begin, end, log, runs):  # type: ignore[no-untyped-def]
    """Make runs of the heads of records.

    Args:
        offsets: Address of the first commit log offset, native int64; the others follow every `step` bytes.
        count: How many they are.
        begin, end: Commit log offsets between which the records lie.
        log: Memory address at which commit log offset 0 would be.
        runs: Address of room for `count` runs, two native int64, address and size.

    Returns:
        Number of offsets before the first one that lies elsewhere.
    """
    for i in range(count):
        offset = load_i64_native(offsets + step * i)
        if offset < begin or offset > end - _MIN_RECORD:
            return i
        put(runs + 16 * i, 0, log + offset)
        put(runs + 16 * i, 8, _MIN_RECORD)
    return count


@kernel("int64(int64, int64, int64, int64, int64)", short=True)
def measure_records(offsets, step, count, end, runs):  # type: ignore[no-untyped-def]
    """Set the sizes of runs of `run_heads`; returns the number of records of format V1 before the first other one."""
    for i in range(count):
        offset, record = load_i64_native(offsets + step * i), get(runs + 16 * i, 0)
        size = np.int64(load_i32(record))
        if (
            load_i32(record + MAGIC_CODE) != _V1
            or size < _MIN_RECORD
            or size > end - offset
            or load_i64(record + PHYSICAL_OFFSET) != offset
            or load_i32(record + SYS_FLAG) & _V6_HOSTS
        ):
            return i
        put(runs + 16 * i, 8, size)
    return count


@kernel("int64(int64, int64, int64)", short=True)
def place_records(runs, count, places):  # type: ignore[no-untyped-def]
    """Write where records belong, `PLACE_WORDS` each; returns their number before the first that is none."""
    for i in range(count):
        record, size = get(runs + 16 * i, 0), get(runs + 16 * i, 8)
        body = np.int64(load_i32(record + BODY_LENGTH))
        if body < 0 or body > size - _MIN_RECORD:
            return i
        topic = record + BODY + body + 1
        topic_size = np.int64(load_u8(topic - 1))
        if topic_size > size - _MIN_RECORD - body:
            return i
        properties = np.int64(load_i16(topic + topic_size))
        if properties < 0 or _MIN_RECORD + body + topic_size + properties != size:
            return i
        queue_id, place = np.int64(load_i32(record + QUEUE_ID)), places + 8 * PLACE_WORDS * i
        first = i
        for j in range(i):
            other = places + 8 * PLACE_WORDS * j
            if (
                get(other, P_FIRST) == j
                and get(other, P_QUEUE_ID) == queue_id
                and get(other, P_TOPIC_SIZE) == topic_size
                and equal_bytes(get(other, P_TOPIC), topic, topic_size)
            ):
                first = j
                break
        queue_offset = load_i64(record + QUEUE_OFFSET)
        put(place, P_FIRST, first)
        put(place, P_QUEUE_ID, queue_id)
        put(place, P_QUEUE_OFFSET, queue_offset)
        put(place, P_TOPIC, topic)
        put(place, P_TOPIC_SIZE, topic_size)
        place = places + 8 * PLACE_WORDS * first
        put(place, P_LOW, queue_offset if first == i else min(get(place, P_LOW), queue_offset))
        put(place, P_HIGH, queue_offset if first == i else max(get(place, P_HIGH), queue_offset))
    return count


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)", short=True)
def first_unproven(offsets, step, count, runs, places, first, units, most):  # type: ignore[no-untyped-def]
    """Number of the first record of a queue that its unit does not name; `count` if all are proven.

    Args:
        offsets, step, runs: As of `run_heads`.
        count: How many records there are.
        places: Of the records.
        first: The number of the queue's first record.
        units: Address of the unit at the lowest place of the queue's records.
        most: Units that can be read from there on.
    """
    low = get(places + 8 * PLACE_WORDS * first, P_LOW)
    for i in range(first, count):
        place = places + 8 * PLACE_WORDS * i
        if get(place, P_FIRST) != first:
            continue
        number = get(place, P_QUEUE_OFFSET) - low
        unit = units + _UNIT * number
        if (
            number >= most
            or load_i64(unit) != load_i64_native(offsets + step * i)
            or np.int64(load_i32(unit + SIZE)) != get(runs + 16 * i, 8)
        ):
            return i
    return count
