"""Headers of requests about consumers, their offsets and the offsets of queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reput.remoting.header import Int32, Int64


@dataclass(frozen=True, slots=True)
class QueryConsumerOffsetRequestHeader:
    """The offset of a group in a queue (QUERY_CONSUMER_OFFSET)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True)
class QueryConsumerOffsetResponseHeader:
    """The next queue offset of a group."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class UpdateConsumerOffsetRequestHeader:
    """The next queue offset of a group is this one (UPDATE_CONSUMER_OFFSET)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@dataclass(frozen=True, slots=True)
class SearchOffsetRequestHeader:
    """The queue offset for a store time in ms (SEARCH_OFFSET_BY_TIMESTAMP). `boundary_type`: LOWER or UPPER."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOffsetResponseHeader:
    """A queue offset that was found by time."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class GetMaxOffsetRequestHeader:
    """The queue offset of the next message (GET_MAX_OFFSET); no version of RocketMQ's broker looks at `committed`."""

    topic: str
    queue_id: Int32
    committed: bool = True


@dataclass(frozen=True, slots=True)
class GetMaxOffsetResponseHeader:
    """The queue offset of the next message."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class GetMinOffsetRequestHeader:
    """The first queue offset that is still there (GET_MIN_OFFSET)."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True)
class GetMinOffsetResponseHeader:
    """The first queue offset that is still there."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class GetEarliestMsgStoretimeRequestHeader:
    """The store time of the first message of a queue (GET_EARLIEST_MSG_STORETIME)."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True)
class GetEarliestMsgStoretimeResponseHeader:
    """A store time in ms; -1 if there is no message."""

    timestamp: Int64


@dataclass(frozen=True, slots=True)
class GetConsumerListByGroupRequestHeader:
    """The client ids of a group (GET_CONSUMER_LIST_BY_GROUP)."""

    consumer_group: str


@dataclass(frozen=True, slots=True)
class UnregisterClientRequestHeader:
    """A client leaves a group of producers or of consumers (UNREGISTER_CLIENT)."""

    WIRE_NAMES: ClassVar[dict[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True)
class NotifyConsumerIdsChangedRequestHeader:
    """The members of a group have changed (NOTIFY_CONSUMER_IDS_CHANGED, broker to client)."""

    consumer_group: str
