"""Heartbeats of clients of all languages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reput.errors import RemotingCommandError
from reput.formats.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from reput.remoting.body import decode_body
from reput.remoting.client_bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    MessageQueue,
    SubscriptionBody,
    decode_heartbeat,
)
from tests.support.frames import recorded_frames


def heartbeat(**members: Any) -> HeartbeatData:
    return decode_heartbeat(json.dumps({"clientID": "me", **members}).encode())


def subscription(**members: Any) -> SubscriptionBody:
    beat = heartbeat(consumerDataSet=[{"groupName": "g", "subscriptionDataSet": [{"topic": "t", **members}]}])
    return beat.consumers[0].subscriptions[0]


def beats() -> dict[str, HeartbeatData]:
    return {one.name: decode_heartbeat(one.body) for one in recorded_frames() if one.header["code"] == 34}


def test_the_heartbeats_of_all_clients_are_understood() -> None:
    found = {name.partition(" from ")[2]: beat for name, beat in beats().items()}
    assert len(found) == 6
    assert found["C++ client (PyPI rocketmq 0.4.4)"] == HeartbeatData(
        "6270-127.0.0.1@DEFAULT",
        ("PID_cpp",),
        (
            ConsumerData(
                "CID_cpp", ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                (
                    SubscriptionBody("%RETRY%CID_cpp", sub_version=1795230766623),
                    SubscriptionBody("T1", sub_version=1795230766623),
                ),
            ),
        ),
    )  # fmt: skip
    (go,) = found["rocketmq-client-go v2"].consumers
    assert go.subscriptions[0] == SubscriptionBody("T1", "TagA || TagB", 1795231419959282801)
    (lite,) = found["Java client 5.3.3"].consumers
    assert lite.consume_type is ConsumeType.CONSUME_ACTIVELY
    (node,) = found["Node ali-ons"].consumers
    assert node.subscriptions == (SubscriptionBody("T1", "*", 1795230747406),)


def test_an_enum_is_a_name_or_a_number() -> None:
    for value in ("CONSUME_POP", 2):
        (one,) = heartbeat(consumerDataSet=[{"groupName": "g", "consumeType": value}]).consumers
        assert one.consume_type is ConsumeType.CONSUME_POP


def test_a_version_may_be_a_text_and_tags_are_not_looked_at() -> None:
    assert subscription(subVersion="17", codeSet=["x"], tagsSet=7).sub_version == 17


def test_what_is_missing_or_null_has_its_default() -> None:
    assert heartbeat() == HeartbeatData("me")
    assert (
        heartbeat(producerDataSet=None, consumerDataSet=None, withoutSub=None, heartbeatFingerprint=None) == heartbeat()
    )
    assert subscription(subString=None, expressionType="", subVersion=None) == SubscriptionBody("t")


@pytest.mark.parametrize(
    ("value", "flag"), [(True, True), ("TRUE", True), (1, True), ("1", True), (0, False), ([], False)]
)
def test_a_flag_in_a_body_is_what_fastjson_takes_for_one(value: object, flag: bool) -> None:
    assert heartbeat(withoutSub=value).without_sub is flag


@pytest.mark.parametrize(
    "members",
    [
        {"clientID": None},
        {"clientID": 7},
        {"clientID": ["x"]},
        {"producerDataSet": 7},
        {"producerDataSet": ["x"]},
        {"producerDataSet": [{}]},
        {"consumerDataSet": [{"groupName": "g", "consumeType": "RUN"}]},
        {"consumerDataSet": [{"groupName": "g", "consumeType": 3}]},
        {"consumerDataSet": [{"groupName": "g", "messageModel": []}]},
        {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [7]}]},
        {"heartbeatFingerprint": "x"},
        {"heartbeatFingerprint": 1 << 63},
        {"heartbeatFingerprint": -(1 << 63) - 1},
        {"heartbeatFingerprint": float("inf")},
        {"heartbeatFingerprint": float("nan")},
        {"heartbeatFingerprint": [1]},
    ],
)
def test_what_is_no_heartbeat_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(RemotingCommandError, match="expected"):
        heartbeat(**members)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{}", b"\xff"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RemotingCommandError):
        decode_heartbeat(body)


@pytest.mark.parametrize("name", ["subString", "expressionType"])
def test_a_text_of_a_subscription_is_a_text(name: str) -> None:
    with pytest.raises(RemotingCommandError, match=f"{name}: expected a text, found list$"):
        subscription(**{name: [["x"] * 1000]})


def test_locks_of_all_clients_are_understood() -> None:
    bodies = [decode_body(LockBatchBody, one.body) for one in recorded_frames() if one.header["code"] in (41, 42)]
    assert len(bodies) == 5
    assert {body.consumer_group for body in bodies} == {"CID_ord", "GID_ord"}
    assert bodies[0].mq_set == (MessageQueue("T1", "broker-a", 1),)
