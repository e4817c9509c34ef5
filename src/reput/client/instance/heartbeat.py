"""Heartbeats as a client writes them (docs/formats/remoting.md, `HeartbeatData`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reput.formats.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from reput.remoting.body import encode_body
from reput.remoting.subscription_data import SubscriptionData


@dataclass(frozen=True, slots=True)
class ConsumerRegistration:
    """A consumer of one group, as heartbeats tell it."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: tuple[SubscriptionData, ...]


def encode_heartbeat(
    client_id: str, producer_groups: Sequence[str] = (), consumers: Sequence[ConsumerRegistration] = ()
) -> bytes:
    """The body of HEART_BEAT."""
    return encode_body(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producer_groups],
            "consumerDataSet": [_consumer(one) for one in consumers],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
    )


def _consumer(one: ConsumerRegistration) -> dict[str, Any]:
    return {
        "groupName": one.group,
        "consumeType": one.consume_type.value,
        "messageModel": one.message_model.value,
        "consumeFromWhere": one.consume_from_where.value,
        "subscriptionDataSet": [subscription_members(each) for each in one.subscriptions],
        "unitMode": False,
    }


def subscription_members(one: SubscriptionData) -> dict[str, Any]:
    """A subscription as a JSON object: brokers filter by the hashes in it."""
    return {
        "topic": one.topic,
        "subString": one.sub_string,
        "subVersion": one.sub_version,
        "expressionType": one.expression_type,
        "tagsSet": sorted(one.tags),
        "codeSet": sorted(one.codes),
        "classFilterMode": one.class_filter_mode,
    }
