"""Subscriptions of a consumer, and where a new group begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from reput.client.instance.namespaces import NO_NAMESPACE, Namespace
from reput.errors import ConfigError
from reput.formats.consumers import ConsumeFromWhere
from reput.formats.message import check_topic, check_topic_characters
from reput.remoting.subscription_data import SQL92, TAG, SubscriptionData, build_subscription_data

#: Where a group that has no offsets yet begins: behind the last message, at the first, or at a time with its zone.
ConsumeFrom = Literal["last", "first"] | datetime


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """Selection of messages of a topic by a consumer (`MessageSelector`).

    Raises ConfigError for an expression that is no text, or is of another type.
    """

    expression: str
    expression_type: str = TAG

    def __post_init__(self) -> None:
        if not _is_text(self.expression) or self.expression_type not in (TAG, SQL92):
            raise ConfigError(f"{self}: expected a text, of the type {TAG!r} or {SQL92!r}")

    @classmethod
    def by_tag(cls, expression: str) -> MessageSelector:
        """Messages with one of the tags: `paid || shipped`; `*` for all."""
        return cls(expression)

    @classmethod
    def by_sql(cls, expression: str) -> MessageSelector:
        """Messages with such properties, `amount > 100`, from brokers with enablePropertyFilter."""
        return cls(expression, SQL92)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def build_subscriptions(
    topics: Mapping[str, str | MessageSelector], version_ms: int, namespace: Namespace = NO_NAMESPACE
) -> dict[str, SubscriptionData]:
    """Subscriptions by topic, by its name at the brokers; texts are tags.

    Raises:
        ConfigError: No topic, or no tags by topic.
        MessageIllegalError: A topic has a name that no broker takes.
        SubscriptionError: An expression is none.
    """
    _check_types(topics)
    if not topics:
        raise ConfigError('no topic to consume: give them with their tags, topics={"orders": "*"}')
    found = {}
    for name, wanted in topics.items():
        topic = namespace.wrap(name)
        check_topic(topic)
        check_topic_characters(topic)
        selector = wanted if isinstance(wanted, MessageSelector) else MessageSelector(wanted)
        found[topic] = build_subscription_data(
            topic, selector.expression, selector.expression_type, sub_version=version_ms
        )
    return found


def _check_types(topics: object) -> None:
    """Raises ConfigError for what are no tags by topic."""
    if not isinstance(topics, Mapping):
        raise ConfigError(f'topics: expected tags by topic, as {{"orders": "*"}}, not {topics!r}')
    for topic, wanted in topics.items():
        if not isinstance(topic, str) or not isinstance(wanted, str | MessageSelector):
            found = f"{{{topic!r}: {wanted!r}}}"
            raise ConfigError(f'topics: expected tags by topic, as {{"orders": "a || b"}}, not {found}')


_WHERE = {"first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET}


def consume_from_where(begin: Any) -> ConsumeFromWhere:
    """RocketMQ's word for where a group begins; raises ConfigError for what is none."""
    if isinstance(begin, datetime):
        if begin.tzinfo is None:
            raise ConfigError(f"consume_from: {begin!r} has no time zone")
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    for name, where in _WHERE.items():
        if isinstance(begin, str) and begin == name:  # an array is equal to nothing, and to no one thing unequal
            return where
    raise ConfigError(f"consume_from: {begin!r} is none of 'last', 'first' and a datetime")
