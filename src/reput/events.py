"""Event: what a line of a program's log says, a message and fields."""

from __future__ import annotations

import json
import re
from typing import Any

_MOST_TEXT = 1000
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # ASCII that can be seen, without quote, equals sign and backslash


class Event:
    """Takes the place of a text in calls of `logging`; as text `message name=value ...`.

    Args:
        message: What has happened, always the same text: lines of one message are counted together.
        fields: Values by name, never a secret nor the contents of messages. Long texts are cut.
    """

    __slots__ = ("fields", "message")

    def __init__(self, message: str, **fields: Any) -> None:
        self.message = message
        self.fields = {name: _short(value) for name, value in fields.items()}

    def __str__(self) -> str:
        return " ".join((self.message, encode_fields(self.fields))).rstrip()


def encode_fields(fields: dict[str, Any]) -> str:
    """Fields as logfmt: `name=value name="a value"`, on one line whatever the values hold."""
    return " ".join(f"{name}={_text(value)}" for name, value in fields.items())


def _short(value: Any) -> Any:
    """A value that JSON has, of bounded length."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
