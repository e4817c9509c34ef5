"""Bounds of what gRPC clients may send, from both sides, with the texts of Apache's proxy."""

from __future__ import annotations

from typing import Any

import pytest

from reput.formats.properties import CHECK_IMMUNITY_TIME_IN_SECONDS, TIMER_DELIVER_MS, TRAN_MSG
from reput.remoting.grpc.grpc_codes import Code, GrpcMessageType
from reput.remoting.grpc.grpc_parts import Duration, GrpcMessage, GrpcResource, SystemProperties, Timestamp, timestamp
from reput.service.grpc.message_checks import (
    check_invisible_time,
    check_type,
    checked_group,
    checked_properties,
    checked_topic,
)
from reput.service.grpc.statuses import RefusedCallError

NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3_600_000


def properties_of(body: bytes = b"x", user: dict[str, str] | None = None, **system: Any) -> dict[str, str]:
    given = SystemProperties(**{"message_id": "id", **system})
    return checked_properties("t", GrpcMessage(GrpcResource(name="t"), user or {}, given, body), "1.2.3.4:5", NOW_MS)


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY, "message body cannot be empty"),
        ({"body": bytes((4 << 20) + 1)}, Code.MESSAGE_BODY_TOO_LARGE, "message body cannot exceed the max 4194304"),
        (
            {"user": {str(number): "" for number in range(129)}},
            Code.MESSAGE_PROPERTIES_TOO_LARGE, "too many user properties, max is 128",
        ),
        ({"user": {"DELAY": "1"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "property is used by system: DELAY"),
        (
            {"user": {"a\x01": ""}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "the key of property cannot contain control character",
        ),
        (
            {"user": {"a": "\x9f"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "the value of property cannot contain control character",
        ),
        ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace"),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'"),
        ({"tag": "a\x02"}, Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character"),
        ({"keys": ["\t "]}, Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace"),
        ({"keys": ["a\n"]}, Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character"),
        (
            {"user": {"a": "b" * 16_380}, "keys": ["1234"]}, Code.MESSAGE_PROPERTIES_TOO_LARGE,
            "the total size of user property is too large, max is 16384",
        ),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty"),
        ({"message_id": "a\x01b\x02"}, Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character"),
        (
            {"message_type": 4, "orphaned_transaction_recovery_duration": Duration(3601)}, Code.BAD_REQUEST,
            "the max transaction recovery time of message is too large, max is 3600",
        ),
        (
            {"delivery_timestamp": timestamp(NOW_MS + DAY_MS + 1)}, Code.ILLEGAL_DELIVERY_TIME,
            "the max delay time of message is too large, max is 86400000",
        ),
        ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace"),
        ({"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP, "message group exceed the max size 64"),
        ({"message_group": "é" * 32}, Code.ILLEGAL_MESSAGE_GROUP, "message group exceed the max size 64"),
        ({"lite_topic": "l"}, Code.UNSUPPORTED, "lite topics are not supported"),
        ({"priority": 0}, Code.UNSUPPORTED, "messages with a priority are not supported"),
        ({"trace_context": "\x01"}, Code.BAD_REQUEST, "TRACE_CONTEXT cannot contain control character"),
        ({"born_host": "h\x02"}, Code.BAD_REQUEST, "__BORNHOST cannot contain control character"),
    ],
)  # fmt: skip
def test_a_message_that_is_refused(message: dict[str, Any], code: Code, text: str) -> None:
    with pytest.raises(RefusedCallError) as raised:
        properties_of(**message)
    assert (raised.value.code, str(raised.value)) == (code, text)


@pytest.mark.parametrize(
    "message",
    [
        {"body": bytes(4 << 20)},
        {"user": {str(number): "" for number in range(128)}},
        {"user": {"a": "b" * 16_379}, "keys": ["1234"]},
        {"message_type": 4, "orphaned_transaction_recovery_duration": Duration(3600)},
        {"delivery_timestamp": timestamp(NOW_MS + DAY_MS)},
        {"message_group": "g" * 63},
        {"keys": ["", "a b"]},
        {"born_timestamp": Timestamp((1 << 63) - 1, -(1 << 31))},
    ],
)
def test_a_message_at_the_bound_is_taken(message: dict[str, Any]) -> None:
    assert properties_of(**message)


def test_times_and_transactions_are_properties() -> None:
    found = properties_of(
        message_type=GrpcMessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(7, 999),
        delivery_timestamp=timestamp(NOW_MS), delivery_attempt=2,
    )  # fmt: skip
    assert (found[TRAN_MSG], found[CHECK_IMMUNITY_TIME_IN_SECONDS], found[TIMER_DELIVER_MS]) == (
        "true", "7", str(NOW_MS),
    )  # fmt: skip
    assert (found["RECONSUME_TIME"], found["__BORNHOST"], found["PGROUP"]) == ("2", "1.2.3.4:5", "t")
    assert found["BORN_TIMESTAMP"] == str(NOW_MS), "else a half message would be too old to be asked for"
    assert properties_of(born_timestamp=Timestamp(7))["BORN_TIMESTAMP"] == "7000"
    assert properties_of(delivery_timestamp=Timestamp(-(1 << 63)))[TIMER_DELIVER_MS] == "0"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "The specified topic is blank"),
        ("\n ", "The specified topic is blank"),
        ("a" * 128, "The specified topic is longer than topic max length 127."),
        ("a b", "The specified topic[a b] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("é", "The specified topic[é] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("TBW102", "cannot access system topic"),
        ("SCHEDULE_TOPIC_XXXX", "cannot access system topic"),
        ("rmq_sys_x", "cannot access system topic"),
    ],
)
def test_a_topic_that_is_refused(name: str, text: str) -> None:
    with pytest.raises(RefusedCallError) as raised:
        checked_topic(GrpcResource(name=name))
    assert (raised.value.code, str(raised.value)) == (Code.ILLEGAL_TOPIC, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "the specified group is blank"),
        ("a" * 256, "the specified group is longer than group max length 255."),
        ("a b", "the specified group[a b] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("CID_RMQ_SYS_x", "cannot use system consumer group"),
    ],
)
def test_a_group_that_is_refused(name: str, text: str) -> None:
    with pytest.raises(RefusedCallError) as raised:
        checked_group(GrpcResource(name=name))
    assert (raised.value.code, str(raised.value)) == (Code.ILLEGAL_CONSUMER_GROUP, text)


def test_names_at_the_bound_are_taken() -> None:
    assert checked_topic(GrpcResource(name="a" * 127)) == "a" * 127
    assert checked_group(GrpcResource(name="%|_-" + "a" * 251)) == "%|_-" + "a" * 251
    for absent in (checked_topic, checked_group):
        with pytest.raises(RefusedCallError, match="blank"):
            absent(None)


def test_an_invisible_time_has_bounds() -> None:
    check_invisible_time(10_000, 10_000)
    check_invisible_time(12 * 3_600_000, 0)
    for ms, text in ((9_999, "too small. min is 10000"), (12 * 3_600_000 + 1, "too large. max is 43200000")):
        with pytest.raises(RefusedCallError, match=text):
            check_invisible_time(ms, 10_000)


def test_a_topic_of_no_kind_takes_no_message() -> None:
    with pytest.raises(RefusedCallError, match="the expected type is UNSPECIFIED, but actual type is NORMAL"):
        check_type("UNSPECIFIED", {})
