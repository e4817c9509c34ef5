"""Headers of POP (`PopMessageProcessor` and its fellows). Times are in ms since 1970 UTC, how long in ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reput.remoting.header import Int32, Int64


class PopKey(NamedTuple):
    """A queue of the topic that holds messages, as a group pops it."""

    topic: str
    group: str
    queue_id: int


@dataclass(slots=True)  # not frozen, as a broker makes one a request (see `PullMessageRequestHeader`)
class PopMessageRequestHeader:
    """Messages for a group (POP_MESSAGE).

    `queue_id`: -1 for all; `init_mode`: where a group without offset begins, 0 at the first message, else at the last;
    `exp_type`, `exp`: a filter; `attempt_id`: the same text in order gives the same messages again.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(slots=True)
class PopMessageResponseHeader:
    """Result of a pop: the texts are as of `reput.remoting.extra_info`; `rest_num`: messages left in the queues."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(slots=True)
class AckMessageRequestHeader:
    """A message is consumed (ACK_MESSAGE): `topic` is the one that holds it, `extra_info` its handle."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


@dataclass(slots=True)
class ChangeInvisibleTimeRequestHeader:
    """A message is to stay invisible for so long from now on (CHANGE_MESSAGE_INVISIBLETIME)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


@dataclass(slots=True)
class ChangeInvisibleTimeResponseHeader:
    """Words of the message's new handle."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0


@dataclass(slots=True)
class PeekMessageRequestHeader:
    """Messages that a pop would give, and that stay (PEEK_MESSAGE)."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@dataclass(slots=True)
class NotificationRequestHeader:
    """Whether there is a message for a group (NOTIFICATION); `poll_time`: how long the answer may wait for one."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(slots=True)
class NotificationResponseHeader:
    """Whether there is a message, or too many requests wait."""

    has_msg: bool
    polling_full: bool = False


@dataclass(slots=True)
class PollingInfoRequestHeader:
    """The pops that wait are to be counted (POLLING_INFO)."""

    consumer_group: str
    topic: str
    queue_id: Int32


@dataclass(slots=True)
class PollingInfoResponseHeader:
    """Number of pops of exactly this queue id that wait."""

    polling_num: Int32
