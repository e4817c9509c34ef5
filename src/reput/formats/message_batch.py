"""A producer's batch: several messages in one body (docs/formats/commit-log.md, RocketMQ's MessageDecoder)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from reput.errors import MessageIllegalError
from reput.formats.java import INT32_MAX, INT64_MAX
from reput.formats.message import RETRY_TOPIC_PREFIX, Message, check_head, encode_properties_of, refuse_wrong_types
from reput.formats.properties import DELAY, NAME_VALUE_SEPARATOR, OF_BROKERS, PROPERTY_SEPARATOR
from reput.formats.record_layout import (
    FLAG,
    QUEUE_OFFSET,
    SYS_FLAG,
    TOTAL_SIZE,
    Buffer,
    SysFlag,
    unpack_record,
)

#: Size, magic code, body CRC, flag and body length of one message of a batch; magic code and CRC are 0 and not read.
_ITEM = struct.Struct(">iiiii")
#: Smallest size of a message in a batch, so the fewest log bytes for one queue offset.
MIN_ITEM_SIZE = _ITEM.size + 2
#: Positions in an item: flag, size of the body, and the body; after it come the size of the properties, and these.
ITEM_FLAG, ITEM_BODY_LENGTH, ITEM_BODY = 12, 16, _ITEM.size
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")

_OF_BROKERS = tuple(name.encode() + NAME_VALUE_SEPARATOR for name in sorted(OF_BROKERS))

INNER_BATCH = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
"""SYSFLAG of a record whose body is a producer's batch."""


class BatchItem(NamedTuple):
    """One message of a producer's batch: its flag, its body, and its properties as text."""

    flag: int
    body: bytes
    properties: bytes


@dataclass(slots=True)
class MessageExtBatch(Message):
    """A batch as a producer sends it: a message whose body holds the messages (`encode_batch`).

    Topic, sys flag, times, hosts and reconsume times apply to all of them. `of` makes a batch of messages.
    """

    @classmethod
    def of(cls, messages: Sequence[Message], *, unique_key: str | None = None) -> Self:
        """The batch that RocketMQ's client makes of messages (`MessageBatch.generateFromList`).

        unique_key: the id of the whole batch, as the client sets it; see `MessageStore.put_batch`.

        Raises:
            MessageIllegalError: No message, or no list; messages of several topics, of a retry topic, delayed, with a
                sys flag, or of which only some wait for the store; a message that RocketMQ would refuse.
        """
        try:
            first, body = check_same(messages), encode_batch(messages)
        except (TypeError, AttributeError):
            refuse_wrong_types(messages)
            raise
        return cls(
            first.topic,
            body,
            unique_key=unique_key,
            born_timestamp=first.born_timestamp,
            born_host=first.born_host,
            wait_store_msg_ok=first.wait_store_msg_ok,
        )


def check_same(messages: Sequence[Message]) -> Message:
    """The first message, whose topic and the like are a batch's; errors as of `MessageExtBatch.of`."""
    if not messages:
        raise MessageIllegalError("a batch needs at least one message")
    first = messages[0]
    if first.topic.startswith(RETRY_TOPIC_PREFIX):
        raise MessageIllegalError(f"topic {first.topic!r}: a retry topic takes no batches; put them one by one")
    for i, message in enumerate(messages):
        reason = None
        if message.topic != first.topic:
            reason = f"topic {message.topic!r}, but a batch is for one topic, {first.topic!r}"
        elif message.wait_store_msg_ok != first.wait_store_msg_ok:
            reason = "wait_store_msg_ok differs from message 0"
        elif message.sys_flag:
            reason = f"sys_flag {hex(message.sys_flag)}, but a batch has one for all; set it in a MessageExtBatch"
        elif message.properties and DELAY in message.properties:
            reason = "it has a delay level, which a batch cannot have; put it by itself"
        if reason is not None:
            raise MessageIllegalError(f"message {i}: {reason}")
    return first


def encode_batch(messages: Sequence[Message]) -> bytes:
    """The body of a batch (`MessageDecoder.encodeMessages`): flag, body and properties of each message.

    Raises MessageIllegalError for a message that RocketMQ would refuse, with its number.
    """
    return b"".join(encode_items(messages, [""] * len(messages)))


def encode_items(messages: Sequence[Message], unique_keys: Sequence[str]) -> list[bytes]:
    """The parts of a batch's body, one for each message; errors as of `encode_batch`.

    unique_keys: the ids of messages without one of their own; empty for none.
    """
    items = []
    for i, (message, unique_key) in enumerate(zip(messages, unique_keys, strict=True)):
        try:
            check_head(message, max_message_size=INT32_MAX)
            properties = encode_properties_of(message, unique_key=unique_key)
        except MessageIllegalError as error:
            raise MessageIllegalError(f"message {i}: {error}") from error
        items.append(_encode_item(message.flag, message.body, properties))
    return items


def _encode_item(flag: int, body: Buffer, properties: bytes) -> bytes:
    size = _ITEM.size + len(body) + _INT16.size + len(properties)
    return b"".join((_ITEM.pack(size, 0, 0, flag, len(body)), body, _INT16.pack(len(properties)), properties))


def decode_batch(body: bytes) -> list[BatchItem] | None:
    """The messages of a producer's batch (`MessageDecoder.decodeMessages`); None if the bytes are no whole batch."""
    items = []
    position = 0
    while position < len(body):
        if position + _ITEM.size > len(body):
            return None
        size, _, _, flag, body_size = _ITEM.unpack_from(body, position)
        body_end = position + _ITEM.size + body_size
        if body_size < 0 or body_end + _INT16.size > len(body):
            return None
        (properties_size,) = _INT16.unpack_from(body, body_end)
        properties = body_end + _INT16.size
        end = properties + properties_size
        if properties_size < 0 or end > len(body) or end - position != size:
            return None
        items.append(BatchItem(flag, body[position + _ITEM.size : body_end], body[properties:end]))
        position = end
    return items or None


def items_end(body: Buffer, count: int) -> int:
    """Position at which the first `count` messages of a batch's body end."""
    position = 0
    for _ in range(count):
        (size,) = _INT32.unpack_from(body, position)
        position += size
    return position


def sent_batch(body: bytes) -> bytes:
    """The body of a batch as a client sends it, its messages without the properties that only brokers write.

    What is no batch stays as it is.
    """
    if not any(name in body for name in _OF_BROKERS):
        return body
    items = decode_batch(body)
    if items is None:
        return body
    return b"".join([_encode_item(flag, one, _sent_properties(properties)) for flag, one, properties in items])


def _sent_properties(properties: bytes) -> bytes:
    return PROPERTY_SEPARATOR.join(
        [pair for pair in properties.split(PROPERTY_SEPARATOR) if not pair.startswith(_OF_BROKERS)]
    )


def unfold_record(record: bytes, body: bytes | None = None, *, max_bytes: int | None = None) -> list[bytes] | None:
    """The records to show in place of one: an inner batch as a record for each message, a body decompressed.

    Each record is what a store would have written for the message alone: it has its own queue offset, flag, body and
    properties, and all other fields of the record. The bits of SYSFLAG that no longer hold are cleared.

    Args:
        record: A whole record.
        body: The record's body, decompressed; None: the body as stored.
        max_bytes: The largest total size of the records, beside their messages.

    Returns None for a batch that cannot be unfolded.
    """
    (_, _, _, _, flag, queue_offset, _, sys_flag, *_), bounds = unpack_record(record, 0)
    body_begin, body_end, _, topic_end, properties_begin, _ = bounds
    if body is None:
        body = record[body_begin:body_end]
    else:
        sys_flag &= ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
    items: list[BatchItem] | None = [BatchItem(flag, body, record[properties_begin:])]
    if sys_flag & INNER_BATCH == INNER_BATCH:
        items = decode_batch(body)
        sys_flag &= ~INNER_BATCH
    if items is None or queue_offset > INT64_MAX - len(items):
        return None
    head, topic = bytearray(record[: body_begin - _INT32.size]), record[body_end:topic_end]
    if max_bytes is not None and len(items) * (len(head) + len(topic)) > max_bytes:
        return None
    _INT32.pack_into(head, SYS_FLAG, sys_flag)
    shown = []
    for i, (flag, body, properties) in enumerate(items):
        parts = (_INT32.pack(len(body)), body, topic, _INT16.pack(len(properties)), properties)
        _INT32.pack_into(head, TOTAL_SIZE, len(head) + sum(map(len, parts)))
        _INT32.pack_into(head, FLAG, flag)
        _INT64.pack_into(head, QUEUE_OFFSET, queue_offset + i)
        shown.append(b"".join((head, *parts)))
    return shown
