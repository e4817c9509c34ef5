"""MessageClientExt: a message as a consumer gets it, and the messages of a pull (`PullAPIWrapper`)."""

from __future__ import annotations

import logging
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reput.client.instance.namespaces import NO_NAMESPACE, Namespace
from reput.errors import CorruptRecordError
from reput.events import Event
from reput.formats.java import body_crc
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.message_batch import INNER_BATCH, unfold_record
from reput.formats.message_ext import MessageExt
from reput.formats.properties import KEYS, RETRY_TOPIC, TAGS, property_values, split_keys
from reput.formats.record_layout import Buffer, SysFlag, walk_records
from reput.remoting.queue_tables import QueueKey
from reput.remoting.subscription_data import SubscriptionData

logger = logging.getLogger("reput.client")

_SIZE = struct.Struct(">i")


class PulledProperties:
    """Tags and keys of all messages of a pull, decoded at the first use of one of them."""

    def __init__(self, texts: list[bytes]) -> None:
        """`texts`: The properties of each message."""
        self._texts = texts

    @cached_property
    def tags(self) -> list[str | None]:
        """None for a message without tags."""
        return property_values(self._texts, TAGS)

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """Of the property KEYS."""
        return [split_keys(text) if text else () for text in property_values(self._texts, KEYS)]


class MessageClientExt(MessageExt):
    """A stored message, whose fields are decoded at their first use.

    Attributes:
        queue: The queue of the pull: of a retry, the queue of the group's retry topic.
        body: The plain body; CorruptRecordError is raised if it was compressed and cannot be decompressed.
        topic: The topic it was sent to, also of a retry.
        reconsume_times: How often consumers have failed with it.
    """

    __slots__ = ("_namespace", "_pulled", "_row", "queue")

    _pulled: PulledProperties
    _row: int

    def __init__(
        self, buffer: Buffer, position: int, queue: QueueKey, namespace: Namespace = NO_NAMESPACE, row: int = 0
    ) -> None:
        """`row`: Its number in the pull, whose properties are the attribute `_pulled`, if it came in one."""
        self._buffer = buffer
        self._position = position
        self.queue = queue
        self._namespace = namespace
        self._row = row

    if not TYPE_CHECKING:
        tags = property(lambda self: self._pulled.tags[self._row])
        keys = property(lambda self: self._pulled.keys[self._row])

        def __getattr__(self, name: str) -> Any:
            if name == "_pulled":  # of a message that did not come in a pull
                begin, end = self._bounds[4:]
                self._row, self._pulled = 0, PulledProperties([bytes(self._buffer[begin:end])])
                return self._pulled
            value = super().__getattr__(name)
            if name == "body" and self._head[7] & SysFlag.COMPRESSED:
                del self.body  # a second use, after an error, would find it as it is stored
                value = self.body = self._decompressed(value)
            elif name == "topic":
                if value.startswith(RETRY_TOPIC_PREFIX):
                    value = self.properties.get(RETRY_TOPIC, value)
                value = self.topic = self._namespace.bare(value)
            return value

    def _decompressed(self, body: bytes) -> bytes:
        from reput.log.reads.compression import decompress  # here: most clients see plain bodies alone

        plain = decompress(body, self.sys_flag)
        if plain is None:
            raise CorruptRecordError("", self.commit_log_offset, "the body is compressed, and cannot be decompressed")
        return plain

    def _keep_tags_and_keys(self, tags: str | None, keys: tuple[str, ...]) -> None:
        """They are in the properties of the pull."""

    @property
    def message_id(self) -> str:
        """The id that the producer gave it, else the offset message id."""
        return self.unique_key or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id by which its broker finds it at once: address and commit log offset."""
        return super().message_id

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the record's bytes, not the whole pull's."""
        return MessageClientExt, (self.raw, 0, self.queue, self._namespace)


def decode_messages(
    body: bytes, queue: QueueKey, subscription: SubscriptionData | None, namespace: Namespace = NO_NAMESPACE
) -> list[MessageClientExt]:
    """The messages of a pull's body that a subscription wants: brokers filter by the hashes of tags alone.

    The queue's topic has the broker's name; messages show the program's.

    What is no whole record, or has a body with another CRC, is left out with a line in the log, as RocketMQ does.
    """
    messages = _messages(body, namespace.bare_queue(queue), namespace)
    if subscription is None or not subscription.tags:
        return messages
    return [message for message in messages if message.tags in subscription.tags]


def _messages(body: bytes, queue: QueueKey, namespace: Namespace) -> list[MessageClientExt]:
    found: list[MessageClientExt] = []
    texts: list[bytes] = []
    pulled = PulledProperties(texts)
    try:
        for position, offset, sys_flag, crc, stored, properties in walk_records(body):
            if body_crc(stored) != crc and stored:
                logger.error(Event("a message was left out: its body has another CRC", queue=queue, offset=offset))
            elif sys_flag & INNER_BATCH == INNER_BATCH:
                (size,) = _SIZE.unpack_from(body, position)
                records = unfold_record(body[position : position + size]) or ()
                found += [MessageClientExt(record, 0, queue, namespace) for record in records]
            else:
                message = MessageClientExt(body, position, queue, namespace, len(texts))
                message._pulled, message.queue_offset = pulled, offset
                if not sys_flag & SysFlag.COMPRESSED:
                    message.body = stored
                texts.append(properties)
                found.append(message)
    except CorruptRecordError as error:
        logger.error(Event("a pull ends with what is no message", queue=queue, error=error))
    return found
