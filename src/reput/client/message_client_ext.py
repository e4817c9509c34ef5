"""MessageClientExt: a message as a consumer gets it, and the messages of a pull (`PullAPIWrapper`)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reput.client.namespaces import NO_NAMESPACE, Namespace
from reput.errors import CorruptRecordError
from reput.events import Event
from reput.formats.java import body_crc
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.message_batch import INNER_BATCH, unfold_record
from reput.formats.message_ext import MessageExt
from reput.formats.record_layout import Bounds, Buffer, Head, SysFlag, unpack_record
from reput.remoting.queue_tables import QueueKey
from reput.service.subscription_data import SubscriptionData

logger = logging.getLogger("reput.client")

RETRY_TOPIC = "RETRY_TOPIC"
_SIZE = struct.Struct(">i")


class MessageClientExt(MessageExt):
    """A stored message, whose fields are decoded at their first use.

    Attributes:
        queue: Where it was pulled from: of a retry, the queue of the group's retry topic.
        body: The plain body; CorruptRecordError is raised where it was compressed and cannot be decompressed.
        topic: The topic it was sent to, also of a retry.
        reconsume_times: How often consumers have failed with it.
    """

    __slots__ = ("_namespace", "queue")

    def __init__(
        self,
        buffer: Buffer,
        position: int,
        queue: QueueKey,
        namespace: Namespace = NO_NAMESPACE,
        unpacked: tuple[Head, Bounds] | None = None,
    ) -> None:
        """`unpacked`: What `unpack_record` says of the record, where somebody has asked."""
        super().__init__(buffer, position)
        self.queue = queue
        self._namespace = namespace
        if unpacked is not None:
            self._head, self._bounds = unpacked

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            value = super().__getattr__(name)
            if name == "body" and self._head[7] & SysFlag.COMPRESSED:
                value = self.body = self._decompressed(value)
            elif name == "topic":
                if value.startswith(RETRY_TOPIC_PREFIX):
                    value = self.properties.get(RETRY_TOPIC, value)
                value = self.topic = self._namespace.bare(value)
            return value

    def _decompressed(self, body: bytes) -> bytes:
        from reput.log.compression import decompress  # here: most clients see plain bodies alone

        plain = decompress(body, self.sys_flag)
        if plain is None:
            del self.body
            raise CorruptRecordError("", self.commit_log_offset, "the body is compressed, and cannot be decompressed")
        return plain

    @property
    def message_id(self) -> str:
        """The id that the producer gave it, else the offset message id."""
        return self.unique_key or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id by which its broker finds it at once: address and commit log offset."""
        return super().message_id

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the record's bytes, not those of the whole pull."""
        return MessageClientExt, (self.raw, 0, self.queue, self._namespace)


def decode_messages(
    body: Buffer, queue: QueueKey, subscription: SubscriptionData | None, namespace: Namespace = NO_NAMESPACE
) -> list[MessageClientExt]:
    """The messages of a pull's body that a subscription wants: brokers filter by the hashes of tags alone.

    The queue's topic has the broker's name; messages show the program's.

    What is no whole record, or has a body with another CRC, is left out with a line in the log, as RocketMQ does.
    """
    found = []
    tags = subscription.tags if subscription is not None else None
    for message in _messages(body, namespace.bare_queue(queue), namespace):
        if not tags or message.tags in tags:
            found.append(message)
    return found


def _messages(body: Buffer, queue: QueueKey, namespace: Namespace) -> Iterator[MessageClientExt]:
    position = 0
    while position < len(body):
        try:
            head, bounds = unpacked = unpack_record(body, position)
        except CorruptRecordError as error:
            logger.error(Event("a pull ends with what is no message", queue=queue, error=error))
            return
        if body_crc(memoryview(body)[bounds[0] : bounds[1]]) != head[2] and bounds[0] < bounds[1]:
            logger.error(Event("a message was left out: its body has another CRC", queue=queue, offset=head[5]))
        elif head[7] & INNER_BATCH == INNER_BATCH:
            for record in unfold_record(bytes(body[position : position + head[0]])) or ():
                yield MessageClientExt(record, 0, queue, namespace)
        else:
            yield MessageClientExt(body, position, queue, namespace, unpacked)
        position += head[0]
