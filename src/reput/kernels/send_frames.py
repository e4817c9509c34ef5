"""Frames that send messages -> records in the log and answers, all of one read in one call.

A client multiplexes its threads over one connection, so what one read brings holds many frames. `take_sends` takes
them one after the other: header, topic, properties, record with CRC straight into the mapped log, answer into a
buffer. What is not plain stops it *before* it changes anything; the caller does that frame in the plain way
(`broker.send_message_processor`), which also is the oracle, and calls again for the frames after it.

Plain is a send by SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE to a topic that the table has, with a body, with
properties that nobody has to look into, from an IPv4 host.
"""

from __future__ import annotations

import sys
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE
from reput.kernels._jit import kernel
from reput.kernels.memory import (
    copy_short,
    equal_bytes,
    equal_mask_64,
    load_i16,
    load_i32,
    load_i32_native,
    load_i64,
    load_i64_native,
    load_u8,
    load_u64_native,
    store_i16,
    store_i32,
    store_i32_native,
    store_i64_native,
    store_u8,
    trailing_zeros,
)
from reput.kernels.record_encode import put_record
from reput.kernels.remoting_header import (
    F_BATCH,
    F_BORN_TIMESTAMP,
    F_DEFAULT_TOPIC,
    F_DEFAULT_TOPIC_QUEUE_NUMS,
    F_FLAG,
    F_PRODUCER_GROUP,
    F_PROPERTIES,
    F_QUEUE_ID,
    F_RECONSUME_TIMES,
    F_SYS_FLAG,
    F_TOPIC,
    H_CODE,
    H_FLAG,
    H_OPAQUE,
    HEADER_WORDS,
    V1_TABLE,
    clear,
    field_address,
    field_size,
    is_int32,
    is_utf8,
    number_field,
    read_binary,
    read_json,
)


class Stop(IntEnum):
    """Why `take_sends` has stopped."""

    #: No whole frame is left.
    DONE = 0
    #: The next frame is not plain.
    ODD = 1
    #: The log file has no room for the next record.
    NO_ROOM = 2
    #: The buffer of answers is full.
    NO_ANSWER_ROOM = 3


_DONE, _ODD, _NO_ROOM, _NO_ANSWER_ROOM = (int(stop) for stop in Stop)

#: Words of the block that Python and the kernel share: int64 at an address, by their positions in bytes.
(
    _AT, _FRAME_END, _RECORDS, _SENDS, _ANSWERED,  # results
    _LOG, _LOG_OFFSET, _LOG_END, _NOW, _NEXT_OFFSETS,  # where records go, their time, counters of queues
    _ANSWERS, _ANSWERS_END,
    _SLOTS, _SLOT_MASK, _TOPICS,
    _BORN_HOST, _STORE_HOST, _STORE_HOST_HEX,
    _SUFFIX, _SUFFIX_SIZE, _CLUSTER, _CLUSTER_SIZE, _BATCH_SUFFIX_SIZE,
    _MAX_BODY, _IS_SYNC, _TAKES_BATCH_PROPERTIES,
    _UNIQUE_PREFIX, _MONTH_BEGIN, _COUNTER,
    _SCRATCH, _TEXTS, _TEXT_ENDS, _TABLE,
    _HEADER,
) = range(0, 34 * 8, 8)  # fmt: skip
_BLOCK_WORDS = 33 + HEADER_WORDS

#: A topic of the table, in int64 words: address and size of its name, its number of queues, address of their numbers.
_T_NAME, _T_NAME_SIZE, _T_QUEUES, _T_NUMBERS = 0, 8, 16, 24
_TOPIC_WORDS = 4

_MAX_FRAME = 16_777_216
_MAX_PROPERTIES = MAX_PROPERTIES_SIZE
_MIN_RECORD = MIN_RECORD_SIZE
_MIN_ITEM, _ITEM_BODY = 22, 20
_MOST_ITEMS = 4096
_MOST_NAMES = 32
_HOST = 8
_UNIQUE_PREFIX_SIZE, _UNIQUE_SIZE = 20, 32
#: Bits of sys_flag that a producer may set: compressed, and how.
_PLAIN_SYS_FLAG = 0x701
_ANSWER_ROOM, _ID_SIZE = 2048, 33
_MOST_KEY = 256
#: The scratch: properties, places of their names, sizes of a batch's records.
_NAMES_AT = MAX_PROPERTIES_SIZE + 64
_SIZES_AT = _NAMES_AT + 16 * _MOST_NAMES
_SCRATCH_SIZE = _SIZES_AT + 4 * _MOST_ITEMS
_SEND, _SEND_V2, _SEND_BATCH = 10, 310, 320
_QUOTE, _BACKSLASH, _COMMA, _MINUS = 0x22, 0x5C, 0x2C, 0x2D
_ONE_WAY, _RESPONSE = 2, 1
_UNIQ_KEY = np.int64(int.from_bytes(b"UNIQ_KEY", "big"))
_UNIQ_KEY_NATIVE = np.int64(int.from_bytes(b"UNIQ_KEY", "little"))
_WAIT = np.int32(int.from_bytes(b"WAIT", "big"))
V1_TABLE_SIZE = V1_TABLE.size

#: Names of properties that make a send odd: what the broker sets itself, or has to look into. Each after its size.
_ODD_NAMES = (
    b"DELAY", b"TRAN_MSG", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS", b"POP_CK", b"MSG_REGION",
    b"TRACE_ON", b"CLUSTER",
)  # fmt: skip
_ODD_TABLE = np.frombuffer(b"".join(bytes([len(name)]) + name for name in _ODD_NAMES), np.uint8).copy()
_ODD_COUNT = len(_ODD_NAMES)


@njit
def _get(block, word):  # type: ignore[no-untyped-def]
    return load_i64_native(block + word)


@njit
def _put(block, word, value):  # type: ignore[no-untyped-def]
    store_i64_native(block + word, value)


# -- topics


@njit
def _hash_of(p, size):  # type: ignore[no-untyped-def]
    h = np.uint64(0xCBF29CE484222325)
    i = 0
    while i + 8 <= size:
        h = (h ^ load_u64_native(p + i)) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        i += 8
    while i < size:
        h = (h ^ np.uint64(load_u8(p + i))) * np.uint64(0x100000001B3)
        i += 1
    h ^= h >> np.uint64(32)
    return np.int64(h & np.uint64(0x7FFFFFFF))


@kernel("int64(int64, int64)", short=True)
def topic_slot(p, size):  # type: ignore[no-untyped-def]
    """Hash of a topic's name, for the table of `SendFrames`."""
    return _hash_of(p, size)


@njit
def _find_topic(block, name, size):  # type: ignore[no-untyped-def]
    """Address of a topic of the table; 0: the table lacks it."""
    mask, slots = _get(block, _SLOT_MASK), _get(block, _SLOTS)
    slot = _hash_of(name, size) & mask
    while True:
        number = np.int64(load_i32_native(slots + 4 * slot))
        if number == 0:
            return np.int64(0)
        topic = _get(block, _TOPICS) + 8 * _TOPIC_WORDS * (number - 1)
        if _get(topic, _T_NAME_SIZE) == size and equal_bytes(_get(topic, _T_NAME), name, size):
            return topic
        slot = (slot + 1) & mask


# -- properties


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
def _look_at_properties(block, p, size):  # type: ignore[no-untyped-def]
    """(whether they are plain, address and size of the unique key's value)."""
    end, count = p + size, 0
    names = _get(block, _SCRATCH) + _NAMES_AT
    unique, unique_size = np.int64(0), np.int64(0)
    if not is_utf8(p, size):
        return False, unique, unique_size
    while p < end:
        q = p
        while q < end and load_u8(q) != 1 and load_u8(q) != 2:
            q += 1
        name_size, value = q - p, q + 1
        if name_size == 0 or q >= end or load_u8(q) == 2 or count == _MOST_NAMES:
            return False, unique, unique_size
        q = _value_end(value, end)
        value_size = q - value
        if (
            value_size == 0
            or _is_odd_name(_get(block, _TABLE) + V1_TABLE_SIZE, p, name_size)
            or not _is_new_name(names, count, p, name_size)
        ):
            return False, unique, unique_size
        count += 1
        if name_size == 8 and load_i64(p) == _UNIQ_KEY:
            unique, unique_size = value, value_size
        elif name_size == 4 and load_i32(p) == _WAIT and _get(block, _IS_SYNC) and not _is_true(value, value_size):
            return False, unique, unique_size
        p = q + 1
    return True, unique, unique_size


@njit
def _is_true(p, size):  # type: ignore[no-untyped-def]
    return size == 4 and (load_i32(p) | 0x20202020) == 0x74727565


@njit
def _is_plain_key(p, size):  # type: ignore[no-untyped-def]
    """Whether a unique key goes into JSON as it is."""
    if size > _MOST_KEY:
        return False
    for i in range(size):
        c = load_u8(p + i)
        if c < 0x20 or c > 0x7E or c in (_QUOTE, _BACKSLASH):
            return False
    return True


# -- answers


@njit
def _put_number(t, value):  # type: ignore[no-untyped-def]
    if value < 0:
        store_u8(t, _MINUS)
        t += 1
        value = -value
    digits = 1
    bound = np.int64(10)
    while digits < 19 and value >= bound:
        digits += 1
        bound *= 10
    for i in range(digits):
        store_u8(t + digits - 1 - i, 48 + value % 10)
        value //= 10
    return t + digits


@njit
def _put_hex(t, value, digits):  # type: ignore[no-untyped-def]
    for i in range(digits):
        digit = (value >> np.int64(4 * (digits - 1 - i))) & 15
        store_u8(t + i, digit + (48 if digit < 10 else 55))
    return t + digits


@njit
def _put_text(block, t, number):  # type: ignore[no-untyped-def]
    """Write one of the texts of `_answer_texts`."""
    ends = _get(block, _TEXT_ENDS)
    begin, end = np.int64(load_i32_native(ends + 4 * number)), np.int64(load_i32_native(ends + 4 * number + 4))
    copy_short(t, _get(block, _TEXTS) + begin, end - begin)
    return t + end - begin


@njit
def _put_ids(block, t, offset, count):  # type: ignore[no-untyped-def]
    """Write the offset message ids of records that follow one another, joined by commas."""
    sizes = _get(block, _SCRATCH) + _SIZES_AT
    for i in range(count):
        if i:
            store_u8(t, _COMMA)
            t += 1
        copy_short(t, _get(block, _STORE_HOST_HEX), 16)
        t = _put_hex(t + 16, offset, 16)
        if i + 1 < count:
            offset += np.int64(load_i32_native(sizes + 4 * i))
    return t


@njit
def _answer(block, first, count, queue_id, queue_offset, unique, unique_size):  # type: ignore[no-untyped-def]
    """Write the answer to a send whose records begin at log offset `first`."""
    out = _get(block, _ANSWERS) + _get(block, _ANSWERED)
    t = _put_ids(block, _put_text(block, out + 8, 0), first, count)
    t = _put_number(_put_text(block, t, 1), queue_id)
    t = _put_number(_put_text(block, t, 2), queue_offset)
    if unique_size:
        t = _put_text(block, t, 3)
        copy_short(t, unique, unique_size)
        t += unique_size
    t = _put_number(_put_text(block, t, 4), _get(block, _HEADER + H_OPAQUE))
    t = _put_text(block, t, 5)
    store_i32(out, t - out - 4)
    store_i32(out + 4, t - out - 8)
    _put(block, _ANSWERED, t - _get(block, _ANSWERS))


# -- records


@njit
def _put_unique_id(block, t):  # type: ignore[no-untyped-def]
    """Write an id for a message that came without one (`service.unique_id`)."""
    counter = (_get(block, _COUNTER) + 1) & 0xFFFF
    _put(block, _COUNTER, counter)
    copy_short(t, _get(block, _UNIQUE_PREFIX), _UNIQUE_PREFIX_SIZE)
    t = _put_hex(t + _UNIQUE_PREFIX_SIZE, (_get(block, _NOW) - _get(block, _MONTH_BEGIN)) & 0xFFFFFFFF, 8)
    return _put_hex(t, counter, 4)


@njit
def _append(  # type: ignore[no-untyped-def]
    block, p, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, topic
):
    """Write a record but for its properties and its size; returns (where properties go, its queue offset)."""
    offset = _get(block, _LOG_OFFSET) + (p - _get(block, _LOG))
    counter = _get(block, _NEXT_OFFSETS) + 8 * np.int64(load_i32_native(number_at))
    queue_offset = load_i64_native(counter)
    target = put_record(
        p, 0, queue_id, flag, queue_offset, offset, sys_flag, born, _get(block, _BORN_HOST), _HOST, _get(block, _NOW),
        _get(block, _STORE_HOST), _HOST, reconsume, 0, body, body_size, _get(topic, _T_NAME), _get(topic, _T_NAME_SIZE),
        False,
    )  # fmt: skip
    store_i64_native(counter, queue_offset + 1)
    return target, queue_offset


@njit
def _is_ended(p, size):  # type: ignore[no-untyped-def]
    """Whether properties need no 2 before others are added."""
    return size == 0 or load_u8(p + size - 1) == 2


@njit
def _put_ended(t, properties, size):  # type: ignore[no-untyped-def]
    copy_short(t, properties, size)
    t += size
    if not _is_ended(properties, size):
        store_u8(t, 2)
        t += 1
    return t


@njit
def _batch_properties(block, properties, size):  # type: ignore[no-untyped-def]
    """Bytes that each message of a batch gets after its own properties."""
    if not _get(block, _TAKES_BATCH_PROPERTIES):
        return np.int64(0)
    return size + (0 if _is_ended(properties, size) else 1) + _get(block, _BATCH_SUFFIX_SIZE)


@njit
def _measure_batch(block, topic, body, body_size, properties, size):  # type: ignore[no-untyped-def]
    """(number of messages, bytes of their records), each record's size in the scratch; (0, 0) where it is odd."""
    sizes = _get(block, _SCRATCH) + _SIZES_AT
    added = _batch_properties(block, properties, size)
    end, p = body + body_size, body
    total, count = np.int64(0), 0
    while p < end:
        if p + _ITEM_BODY > end or count == _MOST_ITEMS:
            return 0, np.int64(0)
        item, item_body = np.int64(load_i32(p)), np.int64(load_i32(p + 16))
        if item < _MIN_ITEM or p + item > end or item_body < 0 or item_body > item - _MIN_ITEM:
            return 0, np.int64(0)
        own = np.int64(load_i16(p + _ITEM_BODY + item_body))
        if own < 0 or _MIN_ITEM + item_body + own != item:
            return 0, np.int64(0)
        text = own + (0 if added == 0 or _is_ended(p + _MIN_ITEM + item_body, own) else 1) + added
        if text > _MAX_PROPERTIES:
            return 0, np.int64(0)
        record = _MIN_RECORD + item_body + _get(topic, _T_NAME_SIZE) + text
        store_i32_native(sizes + 4 * count, record)
        total += record
        count += 1
        p += item
    return count, total


@njit
def _append_batch(  # type: ignore[no-untyped-def]
    block, topic, number_at, queue_id, sys_flag, born, reconsume, body, count, properties, size
):
    """Append the messages of a batch that was measured; returns the queue offset of the first."""
    sizes = _get(block, _SCRATCH) + _SIZES_AT
    p, target, first = body, _get(block, _LOG), np.int64(0)
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
            copy_short(t, _get(block, _SUFFIX), _get(block, _BATCH_SUFFIX_SIZE))
            t += _get(block, _BATCH_SUFFIX_SIZE)
        else:
            copy_short(t, text, own)
            t += own
        store_i16(at, t - at - 2)
        record = np.int64(load_i32_native(sizes + 4 * i))
        store_i32(target, record)  # last: a process that is killed in between leaves no half of a record
        target += record
        p += item
    _put(block, _LOG_OFFSET, _get(block, _LOG_OFFSET) + target - _get(block, _LOG))
    _put(block, _LOG, target)
    return first


@njit
def _append_one(  # type: ignore[no-untyped-def]
    block, topic, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, properties, size, has_key,
    record,
):  # fmt: skip
    """Append one message; returns (its queue offset, address of the unique key that it was given)."""
    target = _get(block, _LOG)
    at, queue_offset = _append(
        block, target, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, topic
    )
    t = _put_ended(at + 2, properties, size)
    copy_short(t, _get(block, _SUFFIX), _get(block, _SUFFIX_SIZE))
    t += _get(block, _SUFFIX_SIZE)
    key = np.int64(0)
    if not has_key:
        store_i64_native(t, _UNIQ_KEY_NATIVE)
        store_u8(t + 8, 1)
        key = t + 9
        t = _put_unique_id(block, key)
        store_u8(t, 2)
        t += 1
    copy_short(t, _get(block, _CLUSTER), _get(block, _CLUSTER_SIZE))
    t += _get(block, _CLUSTER_SIZE)
    store_i16(at, t - at - 2)
    store_i32(target, record)  # last: a process that is killed in between leaves no half of a record
    _put(block, _LOG_OFFSET, _get(block, _LOG_OFFSET) + record)
    _put(block, _LOG, target + record)
    return queue_offset, key


@njit
def _numbers_are_plain(header):  # type: ignore[no-untyped-def]
    """Whether the fields that a send needs are there, and the numbers that it does not use are numbers."""
    for field in (F_PRODUCER_GROUP, F_DEFAULT_TOPIC):
        if field_size(header, field) < 0:
            return False
    good, value = number_field(header, F_DEFAULT_TOPIC_QUEUE_NUMS, 0)
    return good and is_int32(value) and field_size(header, F_DEFAULT_TOPIC_QUEUE_NUMS) > 0


@njit
def _send(block, header, body, body_size):  # type: ignore[no-untyped-def]
    """Do the send at hand; DONE, or why not, and then nothing has changed."""
    name_size = field_size(header, F_TOPIC)
    topic = _find_topic(block, field_address(header, F_TOPIC), name_size) if name_size > 0 else np.int64(0)
    good_queue, queue_id = number_field(header, F_QUEUE_ID, -1)
    good_sys, sys_flag = number_field(header, F_SYS_FLAG, -1)
    good_born, born = number_field(header, F_BORN_TIMESTAMP, 0)
    good_flag, flag = number_field(header, F_FLAG, 0)
    good_times, reconsume = number_field(header, F_RECONSUME_TIMES, 0)
    if topic == 0 or not (good_queue and good_sys and good_born and good_flag and good_times):
        return _ODD
    if (
        queue_id < 0
        or queue_id >= _get(topic, _T_QUEUES)
        or body_size <= 0
        or body_size > _get(block, _MAX_BODY)
        or sys_flag < 0
        or sys_flag & ~np.int64(_PLAIN_SYS_FLAG)
        or not is_int32(flag)
        or not is_int32(reconsume)
        or field_size(header, F_BORN_TIMESTAMP) < 0
        or field_size(header, F_FLAG) < 0
        or not _numbers_are_plain(header)
    ):
        return _ODD
    properties, size = field_address(header, F_PROPERTIES), max(np.int64(0), field_size(header, F_PROPERTIES))
    if size > _MAX_PROPERTIES:
        return _ODD
    plain, unique, unique_size = _look_at_properties(block, properties, size)
    if not plain or not _is_plain_key(unique, unique_size):
        return _ODD
    number_at = _get(topic, _T_NUMBERS) + 4 * queue_id
    first, room = _get(block, _LOG_OFFSET), _get(block, _LOG_END) - _get(block, _LOG)
    answer_room = _get(block, _ANSWERS_END) - _get(block, _ANSWERS) - _get(block, _ANSWERED)
    is_batch = field_size(header, F_BATCH) > 0 and _is_true(field_address(header, F_BATCH), field_size(header, F_BATCH))
    if is_batch:
        count, total = _measure_batch(block, topic, body, body_size, properties, size)
        if count == 0:
            return _ODD
        if total > room:
            return _NO_ROOM
        if answer_room < _ANSWER_ROOM + _ID_SIZE * count:
            return _NO_ANSWER_ROOM
        queue_offset = _append_batch(
            block, topic, number_at, queue_id, sys_flag, born, reconsume, body, count, properties, size
        )
    else:
        count = 1
        text = size + (0 if _is_ended(properties, size) else 1) + _get(block, _SUFFIX_SIZE) + _get(block, _CLUSTER_SIZE)
        text += 0 if unique_size else 8 + 1 + _UNIQUE_SIZE + 1
        if text > _MAX_PROPERTIES:
            return _ODD
        record = _MIN_RECORD + body_size + name_size + text
        if record > room:
            return _NO_ROOM
        if answer_room < _ANSWER_ROOM:
            return _NO_ANSWER_ROOM
        queue_offset, key = _append_one(
            block, topic, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, properties, size,
            unique_size > 0, record,
        )  # fmt: skip
        if unique_size == 0:
            unique, unique_size = key, np.int64(_UNIQUE_SIZE)
    _put(block, _SENDS, _get(block, _SENDS) + 1)
    _put(block, _RECORDS, _get(block, _RECORDS) + count)
    if not _get(header, H_FLAG) & _ONE_WAY:
        _answer(block, first, count, queue_id, queue_offset, unique, unique_size)
    return _DONE


@kernel("int64(int64, int64, int64)", short=True)
def take_sends(block, begin, end):  # type: ignore[no-untyped-def]
    """Take the sends at the addresses [begin, end), as long as they are plain, and say why it stopped.

    Args:
        block: `SendFrames.block`.
        begin, end: Addresses of what was received.

    Returns:
        int64, a `Stop`; the block says where: the next frame, and its end where the frame is whole.
    """
    p = begin
    header = block + _HEADER
    scratch = _get(block, _SCRATCH)
    stop = np.int64(_DONE)
    _put(block, _RECORDS, 0)
    _put(block, _SENDS, 0)
    _put(block, _FRAME_END, 0)
    while end - p >= 8:
        length = np.int64(load_i32(p))
        word = np.int64(load_i32(p + 4)) & 0xFFFFFFFF
        header_size, kind = word & 0xFFFFFF, word >> 24
        if length < 4 or length > _MAX_FRAME - 4 or header_size > length - 4 or kind > 1:
            stop = np.int64(_ODD)
            break
        frame_end = p + 4 + length
        if frame_end > end:
            break
        at, body = p + 8, p + 8 + header_size
        _put(block, _FRAME_END, frame_end)
        clear(header)
        read = (
            read_binary(header, _get(block, _TABLE), at, body)
            if kind
            else read_json(header, _get(block, _TABLE), at, body, scratch, scratch + _MAX_PROPERTIES + 8)
        )
        code = _get(header, H_CODE) if read else np.int64(0)
        if (code != _SEND and code != _SEND_V2 and code != _SEND_BATCH) or _get(header, H_FLAG) & _RESPONSE:
            stop = np.int64(_ODD)
            break
        stop = np.int64(_send(block, header, body, frame_end - body))
        if stop != _DONE:
            break
        p = frame_end
    _put(block, _AT, p)
    return stop


class SendFrames:
    """What the kernel must know of one broker: its topics, its hosts, the texts that it adds.

    Args:
        store_host: 8 bytes.
        properties: What the broker adds to the properties of a message, as text: before its unique key, and after.
        answer_fields: Fields that the broker adds to each answer, as JSON: `"MSG_REGION":"DefaultRegion"`.
        answer_end: The JSON of an answer after its opaque.
        unique_prefix: 20 characters, of ids that the broker makes.
        max_body_size: maxMessageSize.
        is_sync: A message that does not wait for the disk is odd.
        takes_batch_properties: Each message of a batch gets the batch's properties (`DispatchRules`).

    Attributes:
        block: Address for the kernel; good as long as this lives.
        answers: The memory for answers; `answered` bytes of it are used.
    """

    def __init__(
        self,
        *,
        store_host: bytes,
        properties: tuple[bytes, bytes],
        answer_fields: bytes,
        answer_end: bytes,
        unique_prefix: bytes,
        max_body_size: int,
        is_sync: bool,
        takes_batch_properties: bool,
        answer_bytes: int = 1 << 20,
    ) -> None:
        self._words = np.zeros(_BLOCK_WORDS, np.int64)
        self.words = self._words.data  # faster to index from Python
        self.block: int = self._words.ctypes.data
        answers = np.empty(answer_bytes, np.uint8)
        self.answers = answers.data
        self._topics: dict[str, int] = {}
        self._kept: list[npt.NDArray[np.generic]] = []
        texts, ends = _answer_texts(answer_fields, answer_end)
        suffix, cluster = properties
        for word, data in (
            (_ANSWERS, answers),
            (_BORN_HOST, np.zeros(_HOST, np.uint8)),
            (_STORE_HOST, np.frombuffer(store_host, np.uint8)),
            (_STORE_HOST_HEX, np.frombuffer(store_host.hex().upper().encode(), np.uint8)),
            (_SUFFIX, np.frombuffer(suffix + cluster, np.uint8)),
            (_CLUSTER, np.frombuffer(cluster, np.uint8)),
            (_UNIQUE_PREFIX, np.frombuffer(unique_prefix, np.uint8)),
            (_SCRATCH, np.empty(_SCRATCH_SIZE, np.uint8)),
            (_TEXTS, texts),
            (_TEXT_ENDS, ends),
            (_TABLE, np.concatenate([V1_TABLE, _ODD_TABLE])),
        ):
            self._point(word, data)
        self.words[_ANSWERS_END // 8] = self.words[_ANSWERS // 8] + answer_bytes
        self._born_host = self._kept[1]
        for word, value in (
            (_SUFFIX_SIZE, len(suffix)),
            (_CLUSTER_SIZE, len(cluster)),
            (_BATCH_SUFFIX_SIZE, len(suffix) + len(cluster)),
            (_MAX_BODY, max_body_size),
            (_IS_SYNC, is_sync),
            (_TAKES_BATCH_PROPERTIES, takes_batch_properties),
        ):
            self.words[word // 8] = value
        self.forget_topics()

    def _point(self, word: int, data: npt.NDArray[np.generic]) -> None:
        """Let a word of the block point to memory, which stays alive with this."""
        self._kept.append(data)
        self.words[word // 8] = data.ctypes.data

    # -- topics

    def forget_topics(self) -> None:
        """Empty the table."""
        self._topics.clear()
        self._of_topics: list[npt.NDArray[np.generic]] = []
        self._entries = np.zeros(_TOPIC_WORDS * 64, np.int64)
        self._make_slots(128)

    def has_topic(self, topic: str) -> bool:
        """Whether the table has a topic."""
        return topic in self._topics

    def add_topic(self, topic: str, numbers: npt.NDArray[np.int32]) -> None:
        """Let sends to a topic be plain.

        Args:
            topic: Up to 127 bytes.
            numbers: int32[queues], the number of each queue in the log's counters.
        """
        if topic in self._topics:
            return
        number = len(self._topics)
        if _TOPIC_WORDS * (number + 1) > self._entries.size:
            self._entries = np.concatenate([self._entries, np.zeros_like(self._entries)])
        name, numbers = np.frombuffer(topic.encode(), np.uint8), np.ascontiguousarray(numbers, np.int32)
        self._of_topics += [name, numbers]
        begin = _TOPIC_WORDS * number
        self._entries[begin : begin + _TOPIC_WORDS] = name.ctypes.data, name.size, numbers.size, numbers.ctypes.data
        self._topics[topic] = number
        if 2 * len(self._topics) > self._slots.size:
            self._make_slots(2 * self._slots.size)
        else:
            self._fill_slot(topic, number)
        self.words[_TOPICS // 8] = self._entries.ctypes.data

    def _make_slots(self, count: int) -> None:
        self._slots = np.zeros(count, np.int32)
        self.words[_SLOTS // 8], self.words[_SLOT_MASK // 8] = self._slots.ctypes.data, count - 1
        self.words[_TOPICS // 8] = self._entries.ctypes.data
        for topic, number in self._topics.items():
            self._fill_slot(topic, number)

    def _fill_slot(self, topic: str, number: int) -> None:
        name = np.frombuffer(topic.encode(), np.uint8)
        slot = _kernels.topic_slot(name.ctypes.data, name.size) & (self._slots.size - 1)
        while self._slots[slot]:
            slot = (slot + 1) & (self._slots.size - 1)
        self._slots[slot] = number + 1

    # -- a call

    def begin(self, born_host: bytes, now_ms: int, month_begin_ms: int) -> None:
        """Set whose frames come, and the time for ids."""
        self._born_host[:] = np.frombuffer(born_host, np.uint8)
        self.words[_MONTH_BEGIN // 8] = month_begin_ms
        self.words[_NOW // 8] = now_ms
        self.words[_ANSWERED // 8] = 0

    def take(self, begin: int, end: int, log: int, log_offset: int, room: int, now_ms: int, next_offsets: int) -> Stop:
        """Call the kernel.

        Args:
            begin, end: Addresses of what was received.
            log, log_offset, room: Where the next record goes: its address, its log offset, and bytes there.
            now_ms: The store time of the records.
            next_offsets: Address of int64[queues], the next queue offset by the queue's number.
        """
        words = self.words
        words[_LOG // 8], words[_LOG_OFFSET // 8], words[_LOG_END // 8] = log, log_offset, log + room
        words[_NOW // 8], words[_NEXT_OFFSETS // 8] = now_ms, next_offsets
        return Stop(_kernels.take_sends(self.block, begin, end))

    @property
    def at(self) -> int:
        """Address of the first frame that was not taken."""
        return self.words[_AT // 8]

    @property
    def frame_end(self) -> int:
        """Address after that frame, where it is whole."""
        return self.words[_FRAME_END // 8]

    @property
    def log_address(self) -> int:
        """Address after the last record."""
        return self.words[_LOG // 8]

    @property
    def records(self) -> int:
        """Records that the last call wrote."""
        return self.words[_RECORDS // 8]

    @property
    def answered(self) -> int:
        """Bytes of answers."""
        return self.words[_ANSWERED // 8]

    def take_answers(self) -> bytes:
        """The answers of the calls since the last time."""
        size, self.words[_ANSWERED // 8] = self.words[_ANSWERED // 8], 0
        return bytes(self.answers[:size])


_kernels = sys.modules[__name__]


def _answer_texts(fields: bytes, end: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The texts of an answer between its values, one after the other, and where each ends."""
    texts = (
        b'{"code":0,"extFields":{"msgId":"',
        b'","queueId":"',
        b'","queueOffset":"',
        b'","transactionId":"',
        b'",' + fields + b'},"flag":1,"language":"JAVA","opaque":',
        end,
    )
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return np.frombuffer(b"".join(texts), np.uint8), ends
