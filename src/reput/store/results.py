"""Results of puts and pulls: RocketMQ's statuses, and the values that carry them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from reput.formats.hosts import decode_host
from reput.formats.message_id import encode_message_id


class PutMessageStatus(Enum):
    """RocketMQ's `PutMessageStatus` of messages that are stored; the two of slaves are a broker's.

    A put that returns a status was stored; a put that was not stored raises an error. MessageIllegalError stands for
    MESSAGE_ILLEGAL, StoreFullError and StoreStateError (closed) for SERVICE_NOT_AVAILABLE, StoreBusyError for
    OS_PAGE_CACHE_BUSY.
    """

    PUT_OK = "PUT_OK"
    #: Stored, but not known to be on the disk within `syncFlushTimeout`.
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    #: Stored, but not known to be on enough slaves within `slaveTimeout`.
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    #: Stored, and there are not enough slaves that could have it soon.
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class GetMessageStatus(Enum):
    """RocketMQ's `GetMessageStatus`."""

    FOUND = "FOUND"
    #: Units were looked at, and none passed the tag filter.
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    #: The records of the units are gone (retention), or the units are filler.
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    #: The offset is the queue offset of the next message: there is no message yet.
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class QueueInfo(NamedTuple):
    """One consume queue at one moment.

    Attributes:
        topic, queue_id: Which queue.
        min_offset: Queue offset of the first message that the log still has.
        max_offset: Queue offset of the next message to be dispatched.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class PutMessageResult(NamedTuple):
    """The answer to one put.

    Attributes:
        status: PUT_OK, or why the message is not known to be safe.
        commit_log_offset: Offset at which the record starts in the log, in bytes.
        queue_offset: Offset in the queue, in messages; 0 for prepared and rolled back messages, which have none.
        store_timestamp: Milliseconds, never less than the store timestamp of the record before it in the log.
        size: Bytes of the record.
        store_host: 8 or 20 bytes, for the message id.
    """

    status: PutMessageStatus
    commit_log_offset: int
    queue_offset: int
    store_timestamp: int
    size: int
    store_host: bytes

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id."""
        return encode_message_id(self.store_host, self.commit_log_offset)


class PutBatchResult(NamedTuple):
    """The answer to `put_batch`: one record for each message in log order, or one record for all (an inner batch).

    Attributes:
        status: PUT_OK, or why the messages are not known to be safe.
        msg_num: Number of messages, with the queue offsets from `queue_offset` on.
        commit_log_offsets: Offset at which each record starts in the log, in bytes.
        queue_offset: Queue offset of the first message.
        store_timestamp: Milliseconds, the same for all messages.
        end_offset: Commit log offset after the last record.
        store_host: 8 or 20 bytes, for the message ids.
    """

    status: PutMessageStatus
    msg_num: int
    commit_log_offsets: tuple[int, ...]
    queue_offset: int
    store_timestamp: int
    end_offset: int
    store_host: bytes

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message ids of the records, joined by commas."""
        return ",".join(encode_message_id(self.store_host, offset) for offset in self.commit_log_offsets)


def _shown(result: PutMessageResult | PutBatchResult) -> str:
    """The text of a result, with its host as host and port."""
    fields = result._asdict() | {"store_host": decode_host(result.store_host)}
    return f"{type(result).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class PutTableResult(NamedTuple):
    """The answer to `put_arrow`: rows in log order.

    Attributes:
        status: Status of the table as a whole.
        messages: Rows that were stored.
        commit_log_offset: Offset at which the first record starts.
        end_offset: Commit log offset after the last record.
    """

    status: PutMessageStatus
    messages: int
    commit_log_offset: int
    end_offset: int
