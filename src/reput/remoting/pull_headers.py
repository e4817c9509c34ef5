"""Headers of pulls and of queries for messages."""

from __future__ import annotations

from dataclasses import dataclass

from reput.remoting.header import Int32, Int64


@dataclass(slots=True)  # not frozen: a broker makes one a pull, and a frozen one takes 2.5 us, four times as long
class PullMessageRequestHeader:
    """Messages of one queue (PULL_MESSAGE, LITE_PULL_MESSAGE).

    `sys_flag`: bits of `PullSysFlag`; `suspend_timeout_millis`: how long a broker without a message may wait for one.
    The last three numbers are needed if `sys_flag` or an empty queue makes RocketMQ look at them.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 | None = None
    suspend_timeout_millis: Int64 | None = None
    sub_version: Int64 | None = None
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


@dataclass(slots=True)
class PullMessageResponseHeader:
    """Offsets of a queue, in every answer to a pull that looked at it."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


@dataclass(frozen=True, slots=True)
class QueryMessageRequestHeader:
    """Messages with a key (QUERY_MESSAGE); times are store times in ms."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


@dataclass(frozen=True, slots=True)
class QueryMessageResponseHeader:
    """End of the index at a query's answer: store time (ms) and commit log offset."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@dataclass(frozen=True, slots=True)
class ViewMessageRequestHeader:
    """The message at a commit log offset (VIEW_MESSAGE_BY_ID)."""

    offset: Int64
    topic: str | None = None
