import re

import pytest

from reput.errors import ConfigError
from reput.service.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, alter_attributes, parse_attributes


def test_attributes_are_added_changed_and_removed():
    made = alter_attributes(TOPIC_ATTRIBUTES, None, {"+queue.type": "BatchCQ", "+message.type": "FIFO"})
    assert made == {"queue.type": "BatchCQ", "message.type": "FIFO"}
    changed = alter_attributes(TOPIC_ATTRIBUTES, made, {"+message.type": "DELAY", "+reserve.time": "-1"})
    assert changed == {"queue.type": "BatchCQ", "message.type": "DELAY", "reserve.time": "-1"}
    removed = alter_attributes(TOPIC_ATTRIBUTES, changed, {"-message.type": ""})
    assert removed == {"queue.type": "BatchCQ", "reserve.time": "-1"}
    assert made == {"queue.type": "BatchCQ", "message.type": "FIFO"}


@pytest.mark.parametrize(
    ("known", "current", "changes", "remark"),
    [
        (TOPIC_ATTRIBUTES, None, {"x": "y"}, "kv string format wrong."),
        (TOPIC_ATTRIBUTES, None, {"-a": ""}, "only add attribute is supported while creating topic. key: a"),
        (TOPIC_ATTRIBUTES, {}, {"*message.type": "FIFO"}, "wrong format key: message.type"),
        (TOPIC_ATTRIBUTES, {}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        (
            TOPIC_ATTRIBUTES,
            {},
            {"+queue.type": "BatchCQ"},
            "attempt to update an unchangeable attribute. key: queue.type",
        ),
        (TOPIC_ATTRIBUTES, None, {"+x": "y"}, "unsupported key: x"),
        (TOPIC_ATTRIBUTES, None, {"+": "y"}, "kv string format wrong."),
        (TOPIC_ATTRIBUTES, None, {"+a-b": "y"}, "kv string format wrong."),
        (
            TOPIC_ATTRIBUTES,
            {"message.type": "FIFO"},
            {"+message.type": "DELAY", "-message.type": ""},
            "alter duplication key. key: message.type",
        ),
        (TOPIC_ATTRIBUTES, None, {"+cleanup.policy": "KEEP"}, "value is not in set: [COMPACTION, DELETE]"),
        (
            TOPIC_ATTRIBUTES,
            None,
            {"+message.type": "LITE"},
            "[DELAY, FIFO, MIXED, NORMAL, TRANSACTION, UNSPECIFIED] "
            "(there are no lite topics, which came after RocketMQ 5.3.3)",
        ),
        (
            TOPIC_ATTRIBUTES,
            {},
            {"+message.type": "PRIORITY"},
            "there are no messages with a priority, which came after",
        ),
        (TOPIC_ATTRIBUTES, None, {"+reserve.time": "-2"}, "value is not in range(-1, 9223372036854775807)"),
        (TOPIC_ATTRIBUTES, None, {"+reserve.time": "1_0"}, 'For input string: "1_0"'),
        (GROUP_ATTRIBUTES, None, {"+message.type": "FIFO"}, "unsupported key: message.type"),
    ],
)
def test_a_wrong_change_is_told_in_rocketmqs_words(known, current, changes, remark):
    with pytest.raises(ConfigError, match=re.escape(remark)):
        alter_attributes(known, current, changes)


def test_the_text_of_a_request_is_read():
    assert parse_attributes("") == {}
    assert parse_attributes("+a=1,+b=x=y,-c") == {"+a": "1", "+b": "x", "-c": ""}


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("a=1", "add/alter attribute format is wrong: a"),
        ("+a=", "add/alter attribute format is wrong: +a="),
        ("a", "delete attribute format is wrong: a"),
        ("+a=1,+a=2", "key duplication: +a"),
    ],
)
def test_a_wrong_text_is_refused(text, remark):
    with pytest.raises(ConfigError, match=re.escape(remark)):
        parse_attributes(text)
