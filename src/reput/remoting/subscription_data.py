"""Subscription of a consumer to a topic (`SubscriptionData`, `FilterAPI`)."""

from __future__ import annotations

from dataclasses import dataclass

from reput.errors import SubscriptionError
from reput.formats.java import string_hash

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
#: Characters of an expression, as many as the properties of a message have: the tags take each pull 10 ms then.
_MOST_TEXT = 32_767
#: What Java's String.trim takes off.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A subscription to one topic.

    tags, codes: the wanted tags and their hashes; both empty if all messages are wanted. sub_version: the greater
    one is the later one; clients count in ms or ns.
    """

    topic: str
    sub_string: str = SUB_ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


def is_tag_type(expression_type: str | None) -> bool:
    """Whether tags are meant (`ExpressionType.isTagType`)."""
    return expression_type in (None, "", TAG)


def is_tag_to_select(tag: str) -> bool:
    """Whether a subscription can name a tag; consumers get messages with another one among all messages only."""
    return "||" not in tag and tag == tag.strip(_JAVA_BLANKS) and tag != SUB_ALL


def build_subscription_data(
    topic: str, sub_string: str | None, expression_type: str | None = None, *, sub_version: int = 0
) -> SubscriptionData:
    """The subscription that an expression means (`FilterAPI.build`).

    Args:
        topic: The topic.
        sub_string: With TAG: tags separated by `||`; `*`, an empty text or None for all messages. Else an expression,
            which is not looked into.
        expression_type: TAG, also for None; SQL92.
        sub_version: The subscription's version; RocketMQ takes the time in ms.

    Raises:
        SubscriptionError: Nothing but separators, or no expression of another type than TAG; or it is too long.
    """
    if sub_string is not None and len(sub_string) > _MOST_TEXT:
        raise SubscriptionError(f"an expression of {len(sub_string)} characters: at most {_MOST_TEXT}")
    if not is_tag_type(expression_type):
        if not sub_string:
            raise SubscriptionError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(topic, sub_string, sub_version=sub_version, expression_type=expression_type or TAG)
    if not sub_string or sub_string == SUB_ALL:
        return SubscriptionData(topic, sub_version=sub_version)
    parts = sub_string.split("||")
    if not any(parts):
        raise SubscriptionError("subString split error")
    tags = frozenset(filter(None, (part.strip(_JAVA_BLANKS) for part in parts)))
    return SubscriptionData(topic, sub_string, tags, frozenset(map(string_hash, tags)), sub_version)
