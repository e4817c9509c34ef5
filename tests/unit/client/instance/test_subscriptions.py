"""Arguments of consumers and producers that are none: told when the object is made, in the words of the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import pytest

import reput.client.sync as sync
from reput.client import MessageSelector, Producer, PullConsumer, PushConsumer
from reput.errors import ConfigError, MessageIllegalError, ReputError, SubscriptionError

NAMESRV = "127.0.0.1:9876"
CONSUMERS: list[Callable[..., object]] = [
    PullConsumer,
    sync.PullConsumer,
    partial(PushConsumer, on_message=print),
    partial(sync.PushConsumer, on_message=print),
]
CLIENTS = [*CONSUMERS, Producer, sync.Producer]


@pytest.mark.parametrize("make", CONSUMERS)
@pytest.mark.parametrize(
    ("topics", "kind", "text"),
    [
        ("orders", ConfigError, """topics: expected tags by topic, as {"orders": "*"}, not 'orders'"""),
        (["orders"], ConfigError, """topics: expected tags by topic, as {"orders": "*"}, not ['orders']"""),
        (
            {"orders": ["a", "b"]},
            ConfigError,
            """topics: expected tags by topic, as {"orders": "a || b"}, not {'orders': ['a', 'b']}""",
        ),
        ({1: "*"}, ConfigError, """topics: expected tags by topic, as {"orders": "a || b"}, not {1: '*'}"""),
        ({}, ConfigError, """no topic to consume: give them with their tags, topics={"orders": "*"}"""),
        ({"has blank": "*"}, MessageIllegalError, "topic 'has blank' holds ' '"),
        ({"": "*"}, MessageIllegalError, "the topic is empty"),
        ({"orders": "||"}, SubscriptionError, "subString split error"),
    ],
)
def test_topics_that_are_none_are_refused(
    make: Callable[..., object], topics: Any, kind: type[ReputError], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        make(NAMESRV, group="g", topics=topics)


@pytest.mark.parametrize("make", CONSUMERS)
def test_topics_with_tags_and_selectors_are_taken(make: Callable[..., object]) -> None:
    make(NAMESRV, group="g", topics={"orders": "a || b", "%RETRY%g+t": "*", "paid": MessageSelector.by_sql("a > 1")})


@pytest.mark.parametrize("make", CONSUMERS)
@pytest.mark.parametrize(
    ("begin", "text"),
    [
        ("begin", "consume_from: 'begin' is none of 'last', 'first' and a datetime"),
        (0, "consume_from: 0 is none of 'last', 'first' and a datetime"),
        (datetime(2026, 1, 2), "consume_from: datetime.datetime(2026, 1, 2, 0, 0) has no time zone"),
    ],
)
def test_a_begin_that_is_none_is_refused(make: Callable[..., object], begin: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        make(NAMESRV, group="g", topics={"orders": "*"}, consume_from=begin)


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("group", ["has blank", "", "g" * 256, "größe", None, 3])
def test_a_group_that_is_none_is_refused(make: Callable[..., object], group: Any) -> None:
    topics = {"topics": {"orders": "*"}} if make in CONSUMERS else {}
    text = f"group {group!r}: expected a text of 1 to 255 letters a-z A-Z, digits, %, |, _ and -"
    with pytest.raises(ConfigError, match=re.escape(text)):
        make(NAMESRV, group=group, **topics)
    make(NAMESRV, group="%Ab|9_-", **topics)
