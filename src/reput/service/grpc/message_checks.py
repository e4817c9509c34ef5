"""Checks of what gRPC clients send, and the properties of a message (`SendMessageActivity`, `GrpcValidator`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from reput.errors import SubscriptionError
from reput.formats.metadata import TopicMessageType
from reput.formats.properties import (
    BORN_TIMESTAMP,
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    KEY_SEPARATOR,
    KEYS,
    PGROUP,
    RECONSUME_TIME,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    UNIQ_KEY,
)
from reput.remoting.grpc.grpc_codes import Code, FilterType, GrpcMessageType
from reput.remoting.grpc.grpc_parts import FilterExpression, GrpcMessage, GrpcResource, SystemProperties, to_ms
from reput.remoting.subscription_data import SQL92, TAG, SubscriptionData, build_subscription_data
from reput.remoting.topic_validator import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, is_system_group
from reput.service.grpc.statuses import RefusedCallError

#: Keys of Apache's proxy, by their defaults: maxMessageSize, maxUserPropertySize, userPropertyMaxNum,
#: maxMessageGroupSize, maxDelayTimeMills, maxTransactionRecoverySecond.
MAX_MESSAGE_SIZE = 4 << 20
_MAX_USER_PROPERTY_SIZE, _USER_PROPERTY_MAX_NUM, _MAX_MESSAGE_GROUP_SIZE = 16 << 10, 128, 64
_MAX_DELAY_TIME_MS, _MAX_TRANSACTION_RECOVERY_S = 24 * 3_600_000, 3600
#: minInvisibleTimeMillsForRecv, maxInvisibleTimeMills.
MIN_INVISIBLE_TIME_MS, MAX_INVISIBLE_TIME_MS = 10_000, 12 * 3_600_000
_MAX_TOPIC, _MAX_GROUP = 127, 255

BORN_HOST, TRACE_CONTEXT = "__BORNHOST", "TRACE_CONTEXT"
DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
#: Properties that no user may set, and that are not shown as a user's (`MessageConst.STRING_HASH_SET`).
SYSTEM_PROPERTIES = frozenset(
    "TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET "
    "BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES "
    "CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO "
    "INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE "
    "INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS "
    "TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC "
    "DLQ_ORIGIN_MESSAGE_ID __CRC32#".split()
)

_is_legal = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII).fullmatch
_has_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
_LEGAL = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def _refuse(code: Code, message: str) -> NoReturn:
    raise RefusedCallError(code, message)


# -- names


def checked_topic(topic: GrpcResource | None) -> str:
    """The name of a topic; raises RefusedCallError for one that clients may not name."""
    name = "" if topic is None else topic.name
    if not name or name.isspace():
        _refuse(Code.ILLEGAL_TOPIC, "The specified topic is blank")
    if len(name) > _MAX_TOPIC:
        _refuse(Code.ILLEGAL_TOPIC, f"The specified topic is longer than topic max length {_MAX_TOPIC}.")
    if not _is_legal(name):
        _refuse(Code.ILLEGAL_TOPIC, f"The specified topic[{name}] {_LEGAL}")
    if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
        _refuse(Code.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def checked_group(group: GrpcResource | None) -> str:
    """The name of a group; raises RefusedCallError for one that clients may not name."""
    name = "" if group is None else group.name
    if not name or name.isspace():
        _refuse(Code.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if len(name) > _MAX_GROUP:
        _refuse(Code.ILLEGAL_CONSUMER_GROUP, f"the specified group is longer than group max length {_MAX_GROUP}.")
    if not _is_legal(name):
        _refuse(Code.ILLEGAL_CONSUMER_GROUP, f"the specified group[{name}] {_LEGAL}")
    if is_system_group(name):
        _refuse(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name


def unknown_topic(topic: str) -> RefusedCallError:
    """The error of a call for a topic that is not there."""
    return RefusedCallError(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}")


def check_invisible_time(ms: int, least: int) -> None:
    """Raise RefusedCallError for an invisible time out of its bounds."""
    if ms < least:
        _refuse(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}")
    if ms > MAX_INVISIBLE_TIME_MS:
        _refuse(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {MAX_INVISIBLE_TIME_MS}")


def checked_subscription(topic: str, expression: FilterExpression | None) -> SubscriptionData:
    """The subscription that an expression means; raises RefusedCallError."""
    wanted = expression or FilterExpression()
    try:
        return build_subscription_data(topic, wanted.expression, SQL92 if wanted.type == FilterType.SQL else TAG)
    except SubscriptionError as error:
        raise RefusedCallError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


# -- messages


def checked_properties(topic: str, message: GrpcMessage, peer: str, now_ms: int) -> dict[str, str]:
    """The properties of a message that is sent; raises RefusedCallError.

    peer: "host:port" of the client, the born host unless the message has one.
    """
    system = message.system_properties or SystemProperties()
    if not message.body:
        _refuse(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(message.body) > MAX_MESSAGE_SIZE:
        _refuse(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {MAX_MESSAGE_SIZE}")
    size = _check_user_properties(message.user_properties)
    properties = dict(message.user_properties)
    if system.tag:
        _check_text(system.tag, Code.ILLEGAL_MESSAGE_TAG, "tag")
        if "|" in system.tag:
            _refuse(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
        properties[TAGS] = system.tag
        size += len(system.tag.encode())
    for key in system.keys:
        _check_text(key, Code.ILLEGAL_MESSAGE_KEY, "key")
        size += len(key.encode())
    if system.keys:
        properties[KEYS] = KEY_SEPARATOR.join(system.keys)
    if size > _MAX_USER_PROPERTY_SIZE:
        text = f"the total size of user property is too large, max is {_MAX_USER_PROPERTY_SIZE}"
        _refuse(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    if not system.message_id or system.message_id.isspace():
        _refuse(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if _has_control(system.message_id):
        _refuse(Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
    properties[UNIQ_KEY] = system.message_id
    _add_times(properties, system, now_ms)
    properties[RECONSUME_TIME], properties[PGROUP] = str(system.delivery_attempt or 0), topic
    if system.message_group:
        _check_group_of_message(system.message_group)
        properties[SHARDING_KEY] = system.message_group
    if system.lite_topic:
        _refuse(Code.UNSUPPORTED, "lite topics are not supported")
    if system.priority is not None:
        _refuse(Code.UNSUPPORTED, "messages with a priority are not supported")
    for name, value in ((TRACE_CONTEXT, system.trace_context), (BORN_HOST, system.born_host or peer)):
        if value:
            if _has_control(value):
                _refuse(Code.BAD_REQUEST, f"{name} cannot contain control character")
            properties[name] = value
    born_ms = now_ms if system.born_timestamp is None else to_ms(system.born_timestamp)
    properties[BORN_TIMESTAMP] = str(born_ms)
    return properties


def _check_user_properties(properties: Mapping[str, str]) -> int:
    """Size of the names and values of a user's properties; raises RefusedCallError."""
    if len(properties) > _USER_PROPERTY_MAX_NUM:
        _refuse(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {_USER_PROPERTY_MAX_NUM}")
    size = 0
    for name, value in properties.items():
        if name in SYSTEM_PROPERTIES:
            _refuse(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        for what, text in (("key", name), ("value", value)):
            if _has_control(text):
                message = f"the {what} of property cannot contain control character"
                _refuse(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, message)
        size += len(name.encode()) + len(value.encode())
    return size


def _add_times(properties: dict[str, str], system: SystemProperties, now_ms: int) -> None:
    if system.message_type == GrpcMessageType.TRANSACTION:
        properties[TRAN_MSG] = "true"
        recovery = system.orphaned_transaction_recovery_duration
        if recovery is not None:
            if recovery.seconds > _MAX_TRANSACTION_RECOVERY_S:
                most = _MAX_TRANSACTION_RECOVERY_S
                text = f"the max transaction recovery time of message is too large, max is {most}"
                _refuse(Code.BAD_REQUEST, text)
            properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(recovery.seconds)
    if system.delivery_timestamp is not None:
        at_ms = to_ms(system.delivery_timestamp)
        if at_ms - now_ms > _MAX_DELAY_TIME_MS:
            text = f"the max delay time of message is too large, max is {_MAX_DELAY_TIME_MS}"
            _refuse(Code.ILLEGAL_DELIVERY_TIME, text)
        properties[TIMER_DELIVER_MS] = str(max(at_ms, 0))


def _check_group_of_message(group: str) -> None:
    _check_text(group, Code.ILLEGAL_MESSAGE_GROUP, "message group")
    if len(group.encode()) >= _MAX_MESSAGE_GROUP_SIZE:
        _refuse(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {_MAX_MESSAGE_GROUP_SIZE}")


def _check_text(text: str, code: Code, what: str) -> None:
    if text.isspace():
        _refuse(code, f"{what} cannot be the char sequence of whitespace")
    if _has_control(text):
        _refuse(code, f"{what} cannot contain control character")


def check_type(expected: str, properties: Mapping[str, str]) -> None:
    """Raise RefusedCallError unless a topic takes messages of this kind (`TopicMessageTypeValidator`)."""
    if properties.get(TRAN_MSG) == "true":
        actual = TopicMessageType.TRANSACTION
    elif TIMER_DELIVER_MS in properties:
        actual = TopicMessageType.DELAY
    else:
        actual = TopicMessageType.FIFO if SHARDING_KEY in properties else TopicMessageType.NORMAL
    if expected not in (actual, TopicMessageType.MIXED):
        _refuse(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
        )
