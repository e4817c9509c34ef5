"""Headers of requests that the broker sends to clients, and of those by which an operator makes it do so."""

from __future__ import annotations

from dataclasses import dataclass

from reput.remoting.header import Int32, Int64


@dataclass(frozen=True, slots=True)
class ReplyMessageRequestHeader:
    """A reply for the client that asked (PUSH_REPLY_MESSAGE_TO_CLIENT, broker to client).

    Hosts are "address:port", times ms since 1970 UTC; the others are as of the send that brought the reply.
    """

    producer_group: str
    topic: str
    default_topic: str | None
    default_topic_queue_nums: Int32 | None
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


@dataclass(frozen=True, slots=True)
class ResetOffsetRequestHeader:
    """Offsets of a group in a topic to reset (INVOKE_BROKER_TO_RESET_OFFSET; RESET_CONSUMER_CLIENT_OFFSET to clients).

    `timestamp`: store time in ms, below 0 the ends of the queues; `queue_id`: below 0 all queues; `offset`: of that
    queue, in place of the time, unless it is -1. `is_force`: also forward, if the clients do it.
    """

    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


@dataclass(frozen=True, slots=True)
class GetConsumerStatusRequestHeader:
    """Request for clients' offsets (INVOKE_BROKER_TO_GET_CONSUMER_STATUS; to clients GET_CONSUMER_STATUS_FROM_CLIENT).

    `client_addr`: a client's id; all clients of the group if it is blank.
    """

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True)
class GetConsumerRunningInfoRequestHeader:
    """Request for a consumer's state (GET_CONSUMER_RUNNING_INFO, an operator's, and handed on to the client)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(frozen=True, slots=True)
class ConsumeMessageDirectlyResultRequestHeader:
    """A message for one consumer (CONSUME_MESSAGE_DIRECTLY, an operator's, and handed on to the client).

    `msg_id`: an offset message id.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
