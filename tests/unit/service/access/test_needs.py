"""What requests need that name a topic in which messages of all topics wait."""

from __future__ import annotations

import json

import pytest

from reput.formats.access import Action, ResourceType
from reput.remoting.codes import RequestCode
from reput.service.access.needs import needs_of
from reput.service.access.policies import Need

CLUSTER = "DefaultCluster"
OF_ALL_TOPICS = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "%DLQ%SCHEDULE_CONSUMER",
)  # fmt: skip


@pytest.mark.parametrize("topic", OF_ALL_TOPICS)
@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.SEND_MESSAGE, "topic"),
        (RequestCode.SEND_MESSAGE_V2, "b"),
        (RequestCode.PULL_MESSAGE, "topic"),
        (RequestCode.POP_MESSAGE, "topic"),
        (RequestCode.QUERY_MESSAGE, "topic"),
    ],
)
def test_super_users_alone_send_to_and_consume_what_holds_messages_of_all_topics(
    topic: str, code: int, field: str
) -> None:
    assert needs_of(code, {field: topic, "consumerGroup": "g"}, b"", CLUSTER) is None
    assert needs_of(code, {field: "orders", "consumerGroup": "g"}, b"", CLUSTER)


def test_a_heartbeat_subscribes_to_none_of_them() -> None:
    body = {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": OF_ALL_TOPICS[1]}]}]}
    assert needs_of(RequestCode.HEART_BEAT, {}, json.dumps(body).encode(), CLUSTER) is None


def test_whoever_may_look_sees_their_offsets() -> None:
    found = needs_of(RequestCode.GET_MAX_OFFSET, {"topic": OF_ALL_TOPICS[0]}, b"", CLUSTER)
    assert found == [Need(ResourceType.TOPIC, OF_ALL_TOPICS[0], (Action.GET,))]


@pytest.mark.parametrize("mark", "_+")
def test_a_message_of_its_retry_topic_that_a_group_sends_back_is_of_the_topic_that_it_popped(mark: str) -> None:
    def needs(origin: str) -> list[Need] | None:
        return needs_of(RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g", "originTopic": origin}, b"", CLUSTER)

    group = Need(ResourceType.GROUP, "g", (Action.SUB,))
    assert needs(f"%RETRY%g{mark}orders") == [group, Need(ResourceType.TOPIC, "orders", (Action.SUB,))]
    assert needs("%RETRY%g") == [group]
    others = [group, Need(ResourceType.GROUP, f"h{mark}orders", (Action.SUB,))]
    assert needs(f"%RETRY%h{mark}orders") == others
    assert needs(f"%RETRY%g{mark}") == [group, Need(ResourceType.GROUP, f"g{mark}", (Action.SUB,))]


def test_the_short_name_of_a_sends_field_goes_before_the_long_one_where_the_code_has_it() -> None:
    fields, needs = {"b": "short", "topic": "long"}, {}
    for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        needs[code] = [need.name for need in needs_of(code, fields, b"", CLUSTER) or ()]
    assert list(needs.values()) == [["long"], ["short"], ["short"]]
    assert needs_of(RequestCode.SEND_MESSAGE_V2, {"topic": "orders"}, b"", CLUSTER) == [
        Need(ResourceType.TOPIC, "orders", (Action.PUB,))
    ]
