"""`Message` objects -> record bytes, without a step of bytecode: what makes a single put fast.

Bytecode that checks a message, joins its properties and packs a record takes 4 us; a kernel that reads the objects
itself takes a tenth of that. It keeps the interpreter lock, so nothing can change a message meanwhile.

It encodes *plain* messages only, those that most are: every value of exactly the type that `Message` names, no born
host, no half of a transaction, nothing that RocketMQ would refuse. Of any other it says so and writes nothing, and the
caller goes the way of `formats.message`, which also knows the reason for a refusal.

How an object is laid out is CPython's own affair. Contents are asked for through its C API; only where the fields of a
`Message`, and the type of an object, stand is looked up here, in an example.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.message import Message
from reput.formats.message_batch import INNER_BATCH
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE, V1_MAX_TOPIC_SIZE, SysFlag
from reput.kernels.machine.c_functions import INT32, INT64, POINTER, VOID, c_function
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    copy,
    copy_short,
    load_i32_native,
    load_i64_native,
    store_i16,
    store_i32,
    store_i64,
    store_i64_native,
    store_u8,
)
from reput.kernels.records.property_crc import is_property_crc
from reput.kernels.records.property_names import (
    KEY_END,
    KEYS_SIZE,
    KEYS_WORD,
    NAME_END,
    PAIR_END,
    TAGS_SIZE,
    TAGS_WORD,
    UNIQ_KEY_SIZE,
    UNIQ_KEY_WORD,
)
from reput.kernels.records.record_encode import has_separator, is_reserved, put_record

_FIELDS = (
    *("topic", "body", "tags", "keys", "properties", "flag", "unique_key", "sys_flag", "born_timestamp", "born_host"),
    *("reconsume_times", "prepared_transaction_offset", "wait_store_msg_ok"),
)
_TYPES = (Message, str, bytes, int, tuple, list, dict)
#: The words that a kernel gets: addresses of the types and of two objects, what stands where, the store's limits.
(
    _MESSAGE, _STR, _BYTES, _INT, _TUPLE, _LIST, _DICT, _NONE, _TRUE, _TYPE_AT,
    _TOPIC, _BODY, _TAGS, _KEYS, _PROPERTIES, _FLAG, _UNIQUE_KEY, _SYS_FLAG, _BORN_TIMESTAMP, _BORN_HOST,
    _RECONSUME_TIMES, _PREPARED, _WAIT, _MAX_BODY_SIZE, _STORE_HOST, _STORE_HOST_SIZE, _SCRATCH,
) = range(0, 27 * 8, 8)  # fmt: skip
_WORDS = 27
#: Of the scratch memory: three values that C functions answer with, and the properties, with room for a name too many.
_OUT, _OUT_2, _OUT_3, _TEXT = 0, 8, 16, 24
_SCRATCH_SIZE = _TEXT + MAX_PROPERTIES_SIZE + 64

_MAX_PROPERTIES, _MIN_RECORD, _MAX_TOPIC = MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE, V1_MAX_TOPIC_SIZE
#: Set in the flags of prepared and rolled back messages, which have no place in a queue, and of inner batches.
_NOT_PLAIN = SysFlag.TRANSACTION_PREPARED | INNER_BATCH

_as_utf8 = c_function("PyUnicode_AsUTF8AndSize", POINTER, [POINTER, POINTER])
_clear_error = c_function("PyErr_Clear", VOID, [])
_bytes_size = c_function("PyBytes_Size", INT64, [POINTER])
_bytes = c_function("PyBytes_AsString", POINTER, [POINTER])
_as_int = c_function("PyLong_AsLongLongAndOverflow", INT64, [POINTER, POINTER])
_tuple_size = c_function("PyTuple_Size", INT64, [POINTER])
_tuple_item = c_function("PyTuple_GetItem", POINTER, [POINTER, INT64])
_list_size = c_function("PyList_Size", INT64, [POINTER])
_list_item = c_function("PyList_GetItem", POINTER, [POINTER, INT64])
_dict_next = c_function("PyDict_Next", INT32, [POINTER, POINTER, POINTER, POINTER])


class MessageEncoder:
    """Settings of one store for the kernels.

    Attributes:
        address: For the kernels; good as long as this lives.
    """

    def __init__(self, store_host: bytes, max_body_size: int) -> None:
        """`store_host`: 8 or 20 bytes, also the born host. `max_body_size`: maxMessageSize."""
        self._host = np.frombuffer(store_host, np.uint8)
        self._scratch = np.empty(_SCRATCH_SIZE, np.uint8)
        limits = (max_body_size, self._host.ctypes.data, self._host.size, self._scratch.ctypes.data)
        self._array = np.array([*map(id, _TYPES), id(None), id(True), *_positions(), *limits], np.int64)
        assert self._array.size == _WORDS
        self.address: int = self._array.ctypes.data


def _positions() -> list[int]:
    """Positions of the type and of each of `_FIELDS` in a `Message`, in bytes from its address."""
    values = [object() for _ in _FIELDS]
    example = Message(**dict(zip(_FIELDS, values, strict=True)))  # type: ignore[arg-type]
    words = list((ctypes.c_int64 * (Message.__basicsize__ // 8)).from_address(id(example)))
    return [8 * words.index(id(value)) for value in (Message, *values)]


@njit
def _is(words, thing, kind):  # type: ignore[no-untyped-def]
    """Whether there is an object, of exactly this type."""
    return thing != 0 and load_i64_native(thing + load_i64_native(words + _TYPE_AT)) == load_i64_native(words + kind)


@njit
def _field(words, message, field):  # type: ignore[no-untyped-def]
    return load_i64_native(message + load_i64_native(words + field))


@njit
def _is_none(words, thing):  # type: ignore[no-untyped-def]
    return thing == load_i64_native(words + _NONE)


@njit
def _text(words, thing):  # type: ignore[no-untyped-def]
    """Address and size of a text's UTF-8; size -1 for what is no text, or has none."""
    out = load_i64_native(words + _SCRATCH) + _OUT
    if not _is(words, thing, _STR):
        return 0, -1
    address = _as_utf8(thing, out)
    if address == 0:
        _clear_error()
        return 0, -1
    return address, load_i64_native(out)


@njit
def _whole(words, thing, bits):  # type: ignore[no-untyped-def]
    """(whether it is a whole number of `bits` bits, its value)."""
    out = load_i64_native(words + _SCRATCH) + _OUT
    if not _is(words, thing, _INT):
        return False, 0
    value = _as_int(thing, out)
    bound = np.int64(1) << np.int64(31)
    return load_i32_native(out) == 0 and (bits == 64 or -bound <= value < bound), value


@njit
def _put(words, thing, target, limit, forbidden, last):  # type: ignore[no-untyped-def]
    """Write a text and the byte `last`; returns where the next goes, 0 for one that cannot be written."""
    text, size = _text(words, thing)
    if size <= 0 or target + size >= limit or has_separator(text, size, forbidden):
        return 0
    copy_short(target, text, size)
    store_u8(target + size, last)
    return target + size + 1


@njit
def _put_keys(words, keys, target, limit):  # type: ignore[no-untyped-def]
    is_tuple = _is(words, keys, _TUPLE)
    if not is_tuple and not _is(words, keys, _LIST):
        return 0
    count = _tuple_size(keys) if is_tuple else _list_size(keys)
    if count == 0:
        return target
    store_i32(target, KEYS_WORD)
    store_u8(target + KEYS_SIZE, NAME_END)
    target += KEYS_SIZE + 1
    for i in range(count):
        key = _tuple_item(keys, i) if is_tuple else _list_item(keys, i)
        target = _put(words, key, target, limit, KEY_END, KEY_END if i + 1 < count else PAIR_END)
        if target == 0:
            return 0
    return target


@njit
def _put_map(words, properties, target, limit):  # type: ignore[no-untyped-def]
    if _is_none(words, properties):
        return target
    if not _is(words, properties, _DICT):
        return 0
    out = load_i64_native(words + _SCRATCH)
    position, name, value = out + _OUT, out + _OUT_2, out + _OUT_3
    following = np.int64(0)
    while True:
        store_i64_native(position, following)
        if _dict_next(properties, position, name, value) == 0:
            return target
        following = load_i64_native(position)
        begin = target
        target = _put(words, load_i64_native(name), begin, limit, NAME_END, NAME_END)
        size = target - 1 - begin
        if target == 0 or is_reserved(begin, size) or is_property_crc(begin, size):
            return 0
        target = _put(words, load_i64_native(value), target, limit, NAME_END, PAIR_END)
        if target == 0:
            return 0


@njit
def _put_properties(words, message, target):  # type: ignore[no-untyped-def]
    """Write the properties text; returns where it ends, 0 if the message is not plain."""
    limit = target + _MAX_PROPERTIES
    unique_key, tags = _field(words, message, _UNIQUE_KEY), _field(words, message, _TAGS)
    if not _is_none(words, unique_key):
        store_i64(target, UNIQ_KEY_WORD)
        store_u8(target + UNIQ_KEY_SIZE, NAME_END)
        target = _put(words, unique_key, target + UNIQ_KEY_SIZE + 1, limit, NAME_END, PAIR_END)
    if target != 0 and not _is_none(words, tags):
        store_i32(target, TAGS_WORD)
        store_u8(target + TAGS_SIZE, NAME_END)
        target = _put(words, tags, target + TAGS_SIZE + 1, limit, NAME_END, PAIR_END)
    if target != 0:
        target = _put_keys(words, _field(words, message, _KEYS), target, limit)
    if target != 0:
        target = _put_map(words, _field(words, message, _PROPERTIES), target, limit)
    return target


@njit
def _encode(  # type: ignore[no-untyped-def]
    words, message, topic_object, target, room, queue_id, queue_offset, commit_log_offset, timestamp
):
    """The record of a `Message`, with this topic, at `target`; returns its size, 0: not plain; -1: no room."""
    topic, topic_size = _text(words, topic_object)
    if topic_size <= 0 or topic_size > _MAX_TOPIC:
        return 0
    body = _field(words, message, _BODY)
    if not _is(words, body, _BYTES):
        return 0
    body_size = _bytes_size(body)
    born = _field(words, message, _BORN_TIMESTAMP)
    is_flag, flag = _whole(words, _field(words, message, _FLAG), 32)
    is_sys_flag, sys_flag = _whole(words, _field(words, message, _SYS_FLAG), 32)
    is_reconsume_times, reconsume_times = _whole(words, _field(words, message, _RECONSUME_TIMES), 32)
    is_prepared, prepared = _whole(words, _field(words, message, _PREPARED), 64)
    is_born, born_timestamp = (True, timestamp) if _is_none(words, born) else _whole(words, born, 64)
    if (
        not (is_flag and is_sys_flag and is_reconsume_times and is_prepared and is_born)
        or body_size > load_i64_native(words + _MAX_BODY_SIZE)
        or sys_flag & _NOT_PLAIN
        or not _is_none(words, _field(words, message, _BORN_HOST))
        or _field(words, message, _WAIT) != load_i64_native(words + _TRUE)
    ):
        return 0
    text = load_i64_native(words + _SCRATCH) + _TEXT
    text_end = _put_properties(words, message, text)
    if text_end == 0:
        return 0
    host, host_size = load_i64_native(words + _STORE_HOST), load_i64_native(words + _STORE_HOST_SIZE)
    text_size = text_end - text
    size = _MIN_RECORD + 2 * (host_size - HOST_V4_SIZE) + body_size + topic_size + text_size
    if size > room:
        return -1
    properties = put_record(
        target, 0, queue_id, flag, queue_offset, commit_log_offset, sys_flag, born_timestamp, host, host_size,
        timestamp, host, host_size, reconsume_times, prepared, _bytes(body), body_size, topic, topic_size, False,
    )  # fmt: skip
    store_i16(properties, text_size)
    copy(properties + 2, text, text_size)
    store_i32(target, size)  # last: a process that is killed in between leaves no record, rather than half of one
    return size


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)", reads_objects=True, short=True)
def encode_message(  # type: ignore[no-untyped-def]
    words, message, target, room, queue_id, queue_offset, commit_log_offset, timestamp
):
    """Write the record of one message, complete, to `target`, if it takes at most `room` bytes.

    Args:
        words: `MessageEncoder.address`.
        message: `id` of the message, any object.
        target: Address.
        room: Bytes.
        queue_id, queue_offset, commit_log_offset: The record's place.
        timestamp: Its store time in ms; the born time too if the message has none.

    Returns:
        int64, the record's size; 0 or less: nothing was written, for it is not plain, or there is no room.
    """
    if not _is(words, message, _MESSAGE):
        return 0
    topic = _field(words, message, _TOPIC)
    return _encode(words, message, topic, target, room, queue_id, queue_offset, commit_log_offset, timestamp)


@kernel("int64(int64, int64, int64, int32[::1], int64, int64, int64, int64, int32[::1])", reads_objects=True)
def encode_messages(  # type: ignore[no-untyped-def]
    words, messages, topics, queue_ids, begin, timestamp, out, capacity, positions
):
    """Write the records of the messages of a tuple, from `begin` on, without their places, while `capacity` suffices.

    Args:
        words: `MessageEncoder.address`.
        messages: `id` of the tuple.
        topics: `id` of a list with the topic of each message. The caller has looked up queues by them, and a record
            must not name another topic, even if its message is changed meanwhile.
        queue_ids: int32[messages].
        begin: The first message to write.
        timestamp: The born time in ms of those that have none.
        out: Address of the first record.
        capacity: Bytes there.
        positions: int32[messages - begin + 1] at least: where each record starts in `out`, and the last ends.

    Returns:
        int64, the first message that was not written: there is no room, or it is not plain.
    """
    position = np.int64(0)
    positions[0] = 0
    for i in range(begin, queue_ids.size):
        message = _tuple_item(messages, i)
        if not _is(words, message, _MESSAGE):
            return i
        size = _encode(
            words, message, _list_item(topics, i), out + position, capacity - position, queue_ids[i], 0, 0, timestamp
        )
        if size <= 0:
            return i
        position += size
        positions[i - begin + 1] = position
    return queue_ids.size
