"""SendResult: where a message was stored."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from reput.remoting.queue_tables import QueueKey


class SendStatus(StrEnum):
    """Safety of a stored message (`SendStatus`); each status means that it is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(NamedTuple):
    """A broker's answer to a send.

    Attributes:
        status: How safe the message is.
        message_id: The message's id, 32 hexadecimal digits that the producer made (UNIQ_KEY).
        queue: The queue of the message: topic, broker name and queue id.
        queue_offset: Its place in the queue, counted in messages; of a delayed message, in the topic in which it waits.
        offset_message_id: The id by which its broker finds it at once: address and commit log offset.
        transaction_id: Of a message in a transaction.
        recall_handle: Takes a delayed message back (RocketMQ 5.4); None for one whose delay is a level.
        region_id: The broker's region, as traces have it.
        is_traced: Whether the broker lets clients trace messages.
    """

    status: SendStatus
    message_id: str
    queue: QueueKey
    queue_offset: int
    offset_message_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str = "DefaultRegion"
    is_traced: bool = True

    @property
    def queue_id(self) -> int:
        """The number of the queue."""
        return self.queue.queue_id
