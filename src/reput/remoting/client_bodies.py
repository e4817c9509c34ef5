"""Bodies that clients send and take: heartbeats, members of a group, locks of queues.

Heartbeats come from clients of other languages, too, with other types: C++ writes enums as numbers and the version of a
subscription as text, Go tag hashes as text (docs/formats/remoting.md). All of them are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from reput.errors import RemotingCommandError
from reput.formats.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.remoting.body import decode_json
from reput.remoting.codes import ResponseCode

_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class SubscriptionBody:
    """One topic that a group consumes, as a client sends it."""

    topic: str
    sub_string: str = "*"
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """A client's consumer of one group."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: tuple[SubscriptionBody, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """A client's heartbeat: its groups of producers and of consumers."""

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """One queue of one broker."""

    topic: str
    broker_name: str
    queue_id: int
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LockBatchBody:
    """Queues that a client wants to lock, or to unlock, for its group (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


def decode_heartbeat(body: bytes) -> HeartbeatData:
    """A heartbeat of any client; raises RemotingCommandError (SYSTEM_ERROR) if it is none."""
    data = _object(decode_json(body), "the heartbeat")
    return HeartbeatData(
        _text(data, "clientID"),
        tuple(_text(one, "groupName") for one in _objects(data, "producerDataSet")),
        tuple(_consumer(one) for one in _objects(data, "consumerDataSet")),
        _number(data, "heartbeatFingerprint"),
        _flag(data, "withoutSub"),
    )


def _consumer(data: dict[str, Any]) -> ConsumerData:
    return ConsumerData(
        _text(data, "groupName"),
        _member(ConsumeType, data, "consumeType", ConsumeType.CONSUME_PASSIVELY),
        _member(MessageModel, data, "messageModel", MessageModel.CLUSTERING),
        _member(ConsumeFromWhere, data, "consumeFromWhere", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        tuple(decode_subscription(one) for one in _objects(data, "subscriptionDataSet")),
        _flag(data, "unitMode"),
    )


def decode_subscription(data: dict[str, Any]) -> SubscriptionBody:
    """A subscription from its plain value; errors as of `decode_heartbeat`."""
    return SubscriptionBody(
        _text(data, "topic"),
        _text(data, "subString", "*"),
        _number(data, "subVersion"),
        _text(data, "expressionType", "TAG"),
        _flag(data, "classFilterMode"),
    )


def _refuse(what: str, expected: str, found: object) -> RemotingCommandError:
    shown = "" if isinstance(found, dict | list | tuple) else f" {str(found)[:60]!r}"
    remark = f"{what}: expected {expected}, found {type(found).__name__}{shown}"
    return RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(what, "an object", value)
    return value


def _objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    values = data.get(name) or ()
    if not isinstance(values, list | tuple):
        raise _refuse(name, "a list", values)
    return [_object(value, name) for value in values]


def _text(data: dict[str, Any], name: str, default: str | None = None) -> str:
    value = data.get(name)
    if default is not None and not value:
        return default
    if not isinstance(value, str):
        raise _refuse(name, "a text", value)
    return value


def _number(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if value is None:
        return 0
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        number = INT64_MAX + 1
    if not INT64_MIN <= number <= INT64_MAX:
        raise _refuse(name, "a whole number of 64 bits", value)
    return number


def _flag(data: dict[str, Any], name: str) -> bool:
    value = data.get(name)
    return value is True or (isinstance(value, str | int) and str(value).lower() in ("true", "1"))


def _member(kind: type[_E], data: dict[str, Any], name: str, default: _E) -> _E:
    value = data.get(name)
    if value is None:
        return default
    for ordinal, member in enumerate(kind):
        if value in (member.value, ordinal):
            return member
    raise _refuse(name, " or ".join(member.name for member in kind), value)
