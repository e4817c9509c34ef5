"""Op messages: which half messages of transactions have ended (`TransactionalMessageBridge`, `OpBatch` of RocketMQ)."""

from __future__ import annotations

from collections.abc import Iterable

from reput.formats.java import parse_long
from reput.formats.properties import TAGS, WAIT

_REMOVE_TAG = "d"
#: Properties of an op message, in the order of Apache's.
OP_PROPERTIES = {WAIT: "true", TAGS: _REMOVE_TAG}


def op_offsets(body: bytes, tags: str | None) -> list[int]:
    """The queue offsets of half messages that an op message ends: "5,6," of 5.x, "5" of 4.9; none of another tag."""
    if tags != _REMOVE_TAG:
        return []
    return [parse_long(text) for text in body.decode("utf-8", "replace").split(",") if text]


def op_body(offsets: Iterable[int]) -> bytes:
    """The body of an op message (`TransactionalMessageServiceImpl.getOpMessage`)."""
    return "".join(f"{offset}," for offset in offsets).encode()
