"""Event: what a line of a program's log says, a message and fields. LineBound: how many lines there may be."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Any

#: Seconds in each of which the lines of one kind are bounded.
EVERY_S = 10.0
#: Kinds that are remembered; more of them are forgotten all at once.
_MOST_KINDS = 10_000
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


class LineBound:
    """Bounds how many lines of one kind a log gets in ten seconds. Who logs hands over the time, in seconds."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, tuple[float, int]] = {}  # by kind: the end of its ten seconds, and lines in them

    def has_room(self, kind: Hashable, most: int, now: float) -> bool:
        """Whether there were fewer than `most` lines of a kind."""
        end, lines = self._lines.get(kind, (now, 0))
        return now >= end or lines < most

    def count(self, kind: Hashable, now: float) -> None:
        """Count a line of a kind."""
        if len(self._lines) >= _MOST_KINDS:
            self._lines.clear()
        end, lines = self._lines.get(kind, (now, 0))
        self._lines[kind] = (now + EVERY_S, 1) if now >= end else (end, lines + 1)


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
