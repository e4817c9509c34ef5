"""RecallHandle: what a producer recalls a message with a time with (`RecallMessageHandle`)."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

HANDLE_VERSION = "v1"


class RecallHandle(NamedTuple):
    """Handle to recall a message with (`RecallMessageHandle.HandleV1`); time_text: ms, as it was sent."""

    topic: str
    broker_name: str
    time_text: str
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """The text of a handle."""
    return base64.urlsafe_b64encode(" ".join((HANDLE_VERSION, *handle)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle | None:
    """The handle of a text; None if it is none."""
    try:
        words = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return RecallHandle(*words[1:5]) if len(words) >= 5 and words[0] == HANDLE_VERSION else None
