"""Frames of the remoting protocol: those that real programs sent, and some made by hand."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_GOLDEN = Path(__file__).parents[1] / "golden/remoting/frames.json"


class Recorded(NamedTuple):
    """One frame of `frames.json`: what it is, its bytes, and the header that another program read from it."""

    name: str
    serialize: str
    header: dict[str, Any]
    frame: bytes

    @property
    def body(self) -> bytes:
        """The bytes after the header."""
        (word,) = struct.unpack_from(">I", self.frame, 4)
        return self.frame[8 + (word & 0xFFFFFF) :]

    @property
    def is_written_as_java_does(self) -> bool:
        """Whether the sender is Java, or the frame was built by its rules; Node says that it is Java."""
        return not any(client in self.name for client in ("Node", "C++", "client-go"))


@cache
def recorded_frames() -> tuple[Recorded, ...]:
    """All of them."""
    vectors = json.loads(_GOLDEN.read_text(encoding="utf-8"))["vectors"]
    return tuple(Recorded(one["name"], one["serialize"], one["header"], bytes.fromhex(one["hex"])) for one in vectors)


def frame_of(header: bytes, body: bytes = b"", *, kind: int = 0) -> bytes:
    """A frame with any bytes as its header; `kind` 0: JSON, 1: ROCKETMQ."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def binary_header(
    code: int = 10,
    *,
    language: int = 0,
    remark: bytes = b"",
    entries: bytes = b"",
    remark_size: int | None = None,
    ext_size: int | None = None,
) -> bytes:
    """A ROCKETMQ header; both sizes can be other than what follows."""
    head = struct.pack(">hBhii", code, language, 407, 7, 0)
    remark_word = struct.pack(">i", len(remark) if remark_size is None else remark_size)
    return head + remark_word + remark + struct.pack(">i", len(entries) if ext_size is None else ext_size) + entries


def entry(name: bytes, value: bytes, *, name_size: int | None = None, value_size: int | None = None) -> bytes:
    """One field of a ROCKETMQ header; both sizes can be other than what follows."""
    head = struct.pack(">h", len(name) if name_size is None else name_size)
    return head + name + struct.pack(">i", len(value) if value_size is None else value_size) + value
