"""Message: what a producer puts, and RocketMQ's checks of it."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from reput.errors import MessageIllegalError
from reput.formats.hosts import encode_host
from reput.formats.paths import topic_folder_name
from reput.formats.properties import (
    INNER_BASE,
    INNER_NUM,
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    WAIT,
    check_property,
    check_text_of_property,
)
from reput.formats.property_crc import PROPERTY_CRC32
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, Buffer

MAX_TOPIC_SIZE = 127
MAX_RETRY_TOPIC_SIZE = 255
RETRY_TOPIC_PREFIX = "%RETRY%"
DLQ_TOPIC_PREFIX = "%DLQ%"

#: What names of topics and groups of a broker are made of.
TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%|_-")
_RESERVED = {
    TAGS: "tags=",
    KEYS: "keys=",
    UNIQ_KEY: "unique_key=",
    WAIT: "wait_store_msg_ok=",
    INNER_NUM: "the batch to put_batch",
    INNER_BASE: "the batch to put_batch",
}
_RESERVED_NAMES = frozenset(_RESERVED)
_NUMBERS = {"flag": 32, "sys_flag": 32, "reconsume_times": 32, "prepared_transaction_offset": 64, "born_timestamp": 64}
_NUMBERS_STRUCT = struct.Struct(">iiiqq")
_SEPARATORS = NAME_VALUE_SEPARATOR + PROPERTY_SEPARATOR


@dataclass(slots=True)
class Message:
    """A message to be stored.

    tags, unique_key: an empty text counts as none. keys: None counts as none. born_timestamp: ms since 1970 UTC, None
    = now; born_host: "ip:port", None = the store's host. properties: without TAGS, KEYS, UNIQ_KEY and WAIT, which have
    fields of their own, and without INNER_NUM and INNER_BASE, which `MessageStore.put_batch` sets.
    The store itself adds no UNIQ_KEY (as in DefaultMessageStore).
    """

    topic: str
    body: Buffer
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    unique_key: str | None = None
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_msg_ok: bool = True


def check_message(message: Message, *, max_message_size: int) -> None:
    """Raises MessageIllegalError with the reason if RocketMQ would refuse the message, or lose a part of it.

    max_message_size: largest size of a body in bytes (maxMessageSize). A writer that needs the encoded properties
    anyway calls check_head and encode_properties_of instead: together they check the same.
    """
    check_head(message, max_message_size=max_message_size)
    encode_properties_of(message)


def refuse_wrong_types(messages: object) -> None:
    """Raises MessageIllegalError for a value of a wrong type, after a put failed with one of Python's errors.

    Returns if all types are right. A put itself does not check types: that would take too much time.
    """
    if isinstance(messages, Message | str | bytes) or not isinstance(messages, Sequence):
        raise MessageIllegalError(f"expected a list of messages, not {type(messages).__name__}")
    for i, message in enumerate(messages):
        if not isinstance(message, Message):
            raise MessageIllegalError(f"message {i} is {_no_message(message)}")
        check_message(message, max_message_size=sys.maxsize)


def _no_message(value: object) -> str:
    made = "; make one of its topic, body, tags, keys and properties" if hasattr(value, "queue_offset") else ""
    return f"no reput.Message, but {type(value).__name__}{made}"


def check_head(message: Message, *, max_message_size: int) -> None:
    """Check topic, body, numbers and born host; raises MessageIllegalError (see check_message)."""
    topic = message.topic
    if not isinstance(topic, str):
        raise MessageIllegalError(f"the topic must be text, not {type(topic).__name__}")
    check_topic(topic)
    body = message.body
    if not isinstance(body, bytes):
        _check_body_type(body)
    if len(body) > max_message_size:
        reason = f"the body takes {len(body)} bytes; maxMessageSize allows {max_message_size}"
        raise MessageIllegalError(reason)
    try:
        _NUMBERS_STRUCT.pack(
            message.flag,
            message.sys_flag,
            message.reconsume_times,
            message.prepared_transaction_offset,
            0 if message.born_timestamp is None else message.born_timestamp,
        )
    except struct.error:
        _refuse_numbers(message)
    if message.born_host is not None:
        if not isinstance(message.born_host, str):
            raise MessageIllegalError(f"born_host must be text, not {type(message.born_host).__name__}")
        encode_host(message.born_host)


@lru_cache(maxsize=65_536)
def check_topic(topic: str) -> None:
    """Raises MessageIllegalError unless a store takes messages of the topic; reads have no such limits.

    Sizes as in HookUtils.checkBeforePutMessage: 127 bytes, %RETRY% topics 255; here %DLQ% topics, too: a group with
    a retry topic has dead letters. RocketMQ's store takes any characters;
    here the topic must also be the name of a folder, and not lead out of the store.
    """
    if not topic:
        raise MessageIllegalError("the topic is empty")
    try:
        data = topic.encode()
    except UnicodeEncodeError:
        raise MessageIllegalError(f"topic {topic!r} is no Unicode text") from None
    limit = MAX_RETRY_TOPIC_SIZE if topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)) else MAX_TOPIC_SIZE
    if len(data) > limit:
        raise MessageIllegalError(f"topic {topic!r} takes {len(data)} bytes; {limit} are allowed")
    if topic_folder_name(data) is None:
        raise MessageIllegalError(f"topic {topic!r} cannot be the name of a folder, which its queues are in")


def check_topic_characters(topic: str) -> None:
    """Raises MessageIllegalError unless a broker makes the topic (`TopicValidator.validateTopic`).

    It makes retry topics of POP by itself, with a plus in their names (`enableRetryTopicV2`).
    """
    plus = {"+"} if topic.startswith(RETRY_TOPIC_PREFIX) else set()
    illegal = sorted(set(topic) - TOPIC_CHARACTERS - plus)
    if illegal:
        reason = f"topic {topic!r} holds {illegal[0]!r}; allowed are letters a-z A-Z, digits, %, |, _ and -"
        raise MessageIllegalError(reason)


def encode_properties_of(message: Message, reserved: int = 0, unique_key: str | None = None) -> bytes:
    """Properties text of a message, in the order of encode_properties, with `reserved` zero bytes after it.

    unique_key: that of a message that has none.

    `__CRC32#`, the CRC of the record that the properties were read from, is left out. Raises MessageIllegalError for
    names, values, tags, keys or a unique key that the text cannot represent, for reserved names, and for a text of more
    than 32767 bytes. Each put calls it, so the text is built first; only a text with more separators than its pairs
    need is searched for the wrong value.
    """
    text = ""
    pairs = 0
    keys: Any = message.keys
    properties = message.properties
    try:
        own_key: Any = message.unique_key  # what the types say is checked here
        if not own_key:
            if own_key is not None and own_key != "":
                _refuse_properties(message)
            own_key = unique_key
        if own_key:
            text = "UNIQ_KEY\x01" + own_key + "\x02"
            pairs = 1
        tags: Any = message.tags
        if tags:
            text += "TAGS\x01" + tags + "\x02"
            pairs += 1
        elif tags is not None and tags != "":
            _refuse_properties(message)
        if keys:
            joined = " ".join(keys)
            if not _is_list(keys) or "" in keys or joined.count(" ") != len(keys) - 1:
                _refuse_properties(message)
            text += "KEYS\x01" + joined + "\x02"
            pairs += 1
        elif keys != () and keys is not None and not _is_list(keys):
            _refuse_properties(message)
        if properties:
            if not _RESERVED_NAMES.isdisjoint(properties) or "" in properties or "" in properties.values():
                _refuse_properties(message)
            if PROPERTY_CRC32 in properties:
                properties = {name: value for name, value in properties.items() if name != PROPERTY_CRC32}
            for name, value in properties.items():
                text += name + "\x01" + value + "\x02"
            pairs += len(properties)
        elif properties is not None and not isinstance(properties, Mapping):
            _refuse_properties(message)
        if message.wait_store_msg_ok is not True:
            if message.wait_store_msg_ok is not False:
                _refuse_properties(message)
            text += "WAIT\x01false\x02"
            pairs += 1
        data = text.encode()
    except (TypeError, AttributeError, ValueError):  # of a lone surrogate, too
        _refuse_properties(message)
    if len(data) - len(data.translate(None, _SEPARATORS)) != 2 * pairs:
        _refuse_properties(message)
    size = len(data) + reserved
    if size > MAX_PROPERTIES_SIZE:
        raise MessageIllegalError(f"the properties take {size} bytes; {MAX_PROPERTIES_SIZE} are allowed")
    return data + bytes(reserved) if reserved else data


def _is_list(keys: object) -> bool:
    return isinstance(keys, Sequence) and not isinstance(keys, str | bytes)


def _check_body_type(body: object) -> None:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise MessageIllegalError(f"the body must be bytes, not {type(body).__name__}")
    if isinstance(body, memoryview) and (body.ndim != 1 or body.itemsize != 1 or not body.contiguous):
        raise MessageIllegalError("the body is a memoryview that is not one row of bytes; pass body.tobytes()")


def _refuse_numbers(message: Message) -> NoReturn:
    """Raises MessageIllegalError for the first number that its field of the record cannot hold."""
    for name, bits in _NUMBERS.items():
        value = getattr(message, name)
        if value is None and name == "born_timestamp":
            continue
        if not isinstance(value, int):
            raise MessageIllegalError(f"{name} must be a whole number, not {type(value).__name__}")
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise MessageIllegalError(f"{name} {value} does not fit {bits} bits")
    raise MessageIllegalError("a number of the message does not fit its field")


def _refuse_properties(message: Message) -> NoReturn:
    """Raises MessageIllegalError for the first text of the message that its properties cannot represent."""
    if not isinstance(message, Message):  # a stored one has nearly all of the fields
        raise MessageIllegalError(f"this is {_no_message(message)}")
    for name in ("unique_key", "tags"):
        value = getattr(message, name)
        if value is not None and not (isinstance(value, str) and not value):
            check_text_of_property(name, value)
    given_keys: Any = message.keys
    keys = () if given_keys is None else given_keys
    if not _is_list(keys):
        raise MessageIllegalError(f"keys must be a list of texts, not {type(keys).__name__}")
    for key in keys:
        check_text_of_property("keys: a key", key)
        if " " in key:
            raise MessageIllegalError(f"key {key!r} holds a blank, which separates keys; pass the keys one by one")
    if message.properties is not None and not isinstance(message.properties, Mapping):
        raise MessageIllegalError(f"properties must be a mapping, not {type(message.properties).__name__}")
    for name, value in (message.properties or {}).items():
        if name in _RESERVED:
            raise MessageIllegalError(f"property {name!r} is RocketMQ's own; pass {_RESERVED[name]}")
        check_property(name, value)
    wait: Any = message.wait_store_msg_ok
    if not isinstance(wait, bool):
        raise MessageIllegalError(f"wait_store_msg_ok must be True or False, not {wait!r:.100}")
    raise MessageIllegalError("the properties cannot be written as text")
