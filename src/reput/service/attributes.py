"""Attributes of topics and groups, and how a request changes them (`AttributeUtil`, `AttributeParser`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reput.errors import ConfigError
from reput.formats.java import INT64_MAX
from reput.formats.metadata import TopicMessageType
from reput.formats.properties import LITE_TOPIC, NOT_HERE, PRIORITY


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its values, None for whole numbers from -1 on; whether it may change after the creation."""

    values: frozenset[str] | None
    is_changeable: bool


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(frozenset({"BatchCQ", "SimpleCQ"}), False),
    "cleanup.policy": Attribute(frozenset({"DELETE", "COMPACTION"}), False),
    "message.type": Attribute(frozenset(TopicMessageType), True),
    "reserve.time": Attribute(None, True),
}
#: Values of `message.type` that came after 5.3.3, and what is not here.
_LATER_MESSAGE_TYPES = {"LITE": NOT_HERE[LITE_TOPIC], "PRIORITY": NOT_HERE[PRIORITY]}
#: 5.3.3 knows none.
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {}


def parse_attributes(text: str) -> dict[str, str]:
    """The changes that a text asks for, `+name=value,-name`; names keep their signs.

    Raises:
        ConfigError: RocketMQ would refuse the text.
    """
    changes: dict[str, str] = {}
    for one in text.split(",") if text else []:
        name, equals, rest = one.partition("=")
        value = rest.partition("=")[0]
        if equals and ("+" not in name or not value):
            raise ConfigError(f"add/alter attribute format is wrong: {one if '+' in name else name}")
        if not equals and "-" not in name:
            raise ConfigError(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise ConfigError(f"key duplication: {name}")
        changes[name] = value
    return changes


def alter_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Attributes after a request (`AttributeUtil.alterCurrentAttributes`).

    Args:
        known: The attributes that there are.
        current: The attributes as they are; None for a topic or a group that is made now.
        changes: Values by names with a sign: `+name` adds or changes, `-name` removes.

    Raises:
        ConfigError: With RocketMQ's remark; nothing is to be changed.
    """
    altered = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        if not name or "+" in name or "-" in name:
            raise ConfigError("kv string format wrong.")
        if name in seen:
            raise ConfigError(f"alter duplication key. key: {name}")
        seen.add(name)
        if current is None and sign != "+":
            raise ConfigError(f"only add attribute is supported while creating topic. key: {name}")
        if sign not in ("+", "-"):
            raise ConfigError(f"wrong format key: {name}")
        if sign == "-" and name not in altered:
            raise ConfigError(f"attempt to delete a nonexistent key: {name}")
        attribute = known.get(name)
        if attribute is None:
            raise ConfigError(f"unsupported key: {name}")
        if current is not None and not attribute.is_changeable:
            raise ConfigError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "+":
            _check_value(attribute, value)
            altered[name] = value
        else:
            del altered[name]
    return altered


def _check_value(attribute: Attribute, value: str) -> None:
    if attribute.values is not None:
        if value not in attribute.values:
            remark = f"value is not in set: [{', '.join(sorted(attribute.values))}]"
            if value in _LATER_MESSAGE_TYPES:
                remark += f" (there are no {_LATER_MESSAGE_TYPES[value]}, which came after RocketMQ 5.3.3)"
            raise ConfigError(remark)
        return
    if re.fullmatch(r"[+-]?[0-9]{1,19}", value) is None:
        raise ConfigError(f'For input string: "{value}"')
    if not -1 <= int(value) <= INT64_MAX:
        raise ConfigError(f"value is not in range(-1, {INT64_MAX})")
