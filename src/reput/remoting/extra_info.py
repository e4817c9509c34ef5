"""Texts of POP on the wire: handles of messages, and the offsets of an answer (`ExtraInfoUtil`).

A handle names one message of one pop: `0 1795386593472 60000 0 0 broker-a 3 17`. docs/formats/pop.md has its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reput.errors import RemotingCommandError
from reput.formats.java import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.codes import ResponseCode

#: The revive queue of a pop in order, which has none.
ORDER_REVIVE_QID = 999
#: What kind of topic holds a message: the one that was asked for, or its retry topic by either of two names.
NORMAL, RETRY, RETRY_V2 = "0", "1", "2"
_WORDS = 6


class ExtraInfo(NamedTuple):
    """The words of a handle that a broker needs; times in ms.

    Attributes:
        ck_queue_offset: The start offset of the check point.
        pop_time, invisible_time: Of the pop.
        revive_qid: The revive queue of the check point, or `ORDER_REVIVE_QID`.
        broker_name: Of the broker that popped.
    """

    ck_queue_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    broker_name: str

    @property
    def revive_time(self) -> int:
        """Time when the message is visible again if nobody acks it: ms since 1970 UTC."""
        return self.pop_time + self.invisible_time

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_qid == ORDER_REVIVE_QID


def decode_extra_info(text: str) -> ExtraInfo:
    """The words of a handle; six are enough.

    Raises RemotingCommandError (SYSTEM_ERROR) if they are fewer, or not of their kinds.
    """
    words = text.split(" ", _WORDS)
    if len(words) < _WORDS:
        remark = f"java.lang.IllegalArgumentException: getBrokerName fail, extraInfoStrs length {len(words)}"
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)
    start, pop_time, invisible, revive_qid, _, broker, *_ = words
    return ExtraInfo(
        _number(start), _number(pop_time), _number(invisible), _number(revive_qid, INT32_MIN, INT32_MAX), broker
    )


def _number(word: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    plain = word[1:] if word[:1] == "-" else word
    if plain.isascii() and plain.isdigit() and len(plain) <= 19 and low <= (value := int(word)) <= high:
        return value
    remark = f'java.lang.NumberFormatException: For input string: "{word[:40]}"'
    raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)


def build_extra_info(info: ExtraInfo, topic: str, queue_id: int, queue_offset: int) -> str:
    """The handle of a message, all eight words; `topic`: the one that holds the message."""
    return (
        f"{info.ck_queue_offset} {info.pop_time} {info.invisible_time} {info.revive_qid} {retry_kind(topic)} "
        f"{info.broker_name} {queue_id} {queue_offset}"
    )


def retry_kind(topic: str) -> str:
    """Kind of the topic that holds a message (`ExtraInfoUtil.getRetry`)."""
    if not topic.startswith(RETRY_TOPIC_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY


def build_start_offset_info(topic: str, queue_id: int, start_offset: int) -> str:
    """Offset at which a read of a queue began, as text; an answer joins its queues' texts by `;`."""
    return f"{retry_kind(topic)} {queue_id} {start_offset}"


def build_msg_offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """The offsets of the messages of a queue; an answer joins the texts of its queues by `;`."""
    return f"{retry_kind(topic)} {queue_id} {','.join(map(str, offsets))}"


def build_order_count_info(topic: str, queue_id: int, offsets: Sequence[int], counts: Mapping[int, int]) -> str:
    """Counts of earlier deliveries of a queue's messages, as text: `0 qo1%7 2;0 1 0`.

    Args:
        topic, queue_id: The queue that holds them.
        offsets: The messages.
        counts: By offset, how often; a message that is new is not in it.
    """
    kind = retry_kind(topic)
    parts = [f"{kind} qo{queue_id}%{offset} {counts[offset]}" for offset in offsets if counts.get(offset, 0) > 0]
    least = min((counts.get(offset, 0) for offset in offsets), default=0)
    return ";".join([*parts, f"{kind} {queue_id} {least}"])
