"""Bodies of requests about popped messages, and of those that share queues."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reput.errors import RemotingCommandError
from reput.formats.consumers import MessageModel, MessageRequestMode
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.remoting.body import decode_json
from reput.remoting.client_bodies import MessageQueue
from reput.remoting.codes import ResponseCode
from reput.remoting.extra_info import NORMAL, RETRY, RETRY_V2, ExtraInfo

#: Bytes of a set of bits: an answer has 32 messages at most, over as many offsets as a filter passes.
_MOST_BITS = 8 * 1024
#: Messages of one pop: a check point counts them in a byte.
_MOST_ACKS = 255


class BatchAck(NamedTuple):
    """Messages of one queue and one pop that are consumed.

    `topic`: the one that was popped; `retry`: which topic holds the messages, `NORMAL`, `RETRY` or `RETRY_V2`.
    """

    topic: str
    retry: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    offsets: tuple[int, ...]

    def info(self, broker_name: str) -> ExtraInfo:
        """The words of the messages' handles."""
        return ExtraInfo(self.start_offset, self.pop_time, self.invisible_time, self.revive_qid, broker_name)


def decode_batch_acks(body: bytes) -> tuple[str, list[BatchAck]]:
    """The broker's name and the acks of BATCH_ACK_MESSAGE; none without a body.

    Raises RemotingCommandError (SYSTEM_ERROR) for a body of another form.
    """
    if not body:
        return "", []
    data = decode_json(body)
    if not isinstance(data, dict):
        raise _refuse("the body", data)
    acks, broker_name = data.get("acks") or [], data.get("brokerName") or ""
    if not isinstance(acks, list | tuple) or not isinstance(broker_name, str):
        raise _refuse("acks", acks)
    return broker_name, [_batch_ack(one) for one in acks]


def _batch_ack(data: Any) -> BatchAck:
    if not isinstance(data, dict):
        raise _refuse("an ack", data)

    def text(*names: str) -> str:
        value = next((data[name] for name in names if name in data), None)
        if not isinstance(value, str):
            raise _refuse(names[-1], value)
        return value

    def number(*names: str) -> int:
        value = next((data[name] for name in names if name in data), None)
        if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
            raise _refuse(names[-1], value)
        return value

    retry, start = text("r", "retry"), number("so", "startOffset")
    if retry not in (NORMAL, RETRY, RETRY_V2):
        raise _refuse("retry", retry)
    try:
        bits = base64.b64decode(text("b", "bitSet"), validate=True)
    except (binascii.Error, ValueError):
        raise _refuse("bitSet", data.get("b")) from None
    if len(bits) > _MOST_BITS:
        raise _refuse("bitSet", f"{len(bits)} bytes")
    if (count := int.from_bytes(bits, "little").bit_count()) > _MOST_ACKS:
        raise _refuse("bitSet", f"{count} messages")
    offsets = tuple(
        start + 8 * number + bit for number, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1
    )
    return BatchAck(
        text("t", "topic"), retry, text("c", "consumerGroup"), number("q", "queueId"), start, number("pt", "popTime"),
        number("it", "invisibleTime"), number("rq", "reviveQueueId"), offsets,
    )  # fmt: skip


def _refuse(what: str, found: object) -> RemotingCommandError:
    return RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"{what} of the body is {str(found)[:60]!r}")


@dataclass(frozen=True, slots=True)
class QueryAssignmentRequestBody:
    """Request for the queues of a member (QUERY_ASSIGNMENT)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageQueueAssignment:
    """A queue of a member, and how it gets the messages; queue id -1 for all queues of a broker."""

    message_queue: MessageQueue
    mode: MessageRequestMode
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryAssignmentResponseBody:
    """The queues of a member; None if the member is to keep those that it has."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
