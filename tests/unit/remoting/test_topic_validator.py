import pytest

from reput.remoting.topic_validator import (
    NOT_ALLOWED_SEND_TOPICS,
    dlq_topic_of,
    is_legal_group,
    is_system_group,
    retry_topic_of,
    validate_topic,
)

BLANK = "The specified topic is blank."
ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
LONG = "The specified topic is longer than topic max length."


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", BLANK),
        (" \t", BLANK),
        ("a b", ILLEGAL),
        ("a.b", ILLEGAL),
        ("订单", ILLEGAL),
        ("a" * 128 + "!", ILLEGAL),
        ("a" * 128, LONG),
        ("%RETRY%" + "a" * 121, LONG),
        ("a" * 127, None),
        ("%RETRY%a-Z_0|9", None),
    ],
)
def test_a_wrong_name_is_told_in_rocketmqs_words(topic, remark):
    assert validate_topic(topic) == remark


@pytest.mark.parametrize(
    ("group", "legal"), [("g", True), ("g" * 255, True), ("g" * 256, False), ("", False), ("a.b", False)]
)
def test_a_group_is_made_only_of_a_legal_name(group, legal):
    assert is_legal_group(group) is legal


def test_the_names_that_are_a_brokers_own():
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in NOT_ALLOWED_SEND_TOPICS
    assert "TBW102" not in NOT_ALLOWED_SEND_TOPICS
    assert is_system_group("CID_RMQ_SYS_anything")
    assert not is_system_group("CID_ONSAPI_PULL")
    assert (retry_topic_of("g"), dlq_topic_of("g")) == ("%RETRY%g", "%DLQ%g")
