"""The epoch file of controller mode, `epochFileCheckpoint` (docs/formats/epoch-file.md, RocketMQ's EpochFileCache)."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import NamedTuple

from reput.errors import CorruptMetadataError
from reput.formats.java import INT32_MAX, INT64_MAX

EPOCH_FILE = "epochFileCheckpoint"
_MOST_DIGITS = len(str(INT64_MAX))


class Epoch(NamedTuple):
    """The time of one master; `start_offset` is the commit log offset of its first byte."""

    epoch: int
    start_offset: int


def decode_epochs(data: bytes) -> tuple[Epoch, ...]:
    """The epochs, oldest first (`CheckpointFile.read`); CorruptMetadataError says what is wrong with the file."""
    count, _, rest = data.partition(b"\n")
    checksum, _, rest = rest.partition(b"\n")
    epochs = tuple(_epoch(line) for line in rest.split())
    if _number(count, "number of epochs") != len(epochs):
        raise _damaged(f"{len(epochs)} epochs, but the first line says {_shown(count)}")
    expected, found = _number(checksum, "checksum"), zlib.crc32(rest) & INT32_MAX
    if expected not in (0, found):
        raise _damaged(f"checksum {found}, but the second line says {expected}")
    for one, following in pairwise(epochs):
        if following.epoch <= one.epoch or following.start_offset < one.start_offset:
            raise _damaged(f"epoch {following.epoch}-{following.start_offset} after {one.epoch}-{one.start_offset}")
    return epochs


def _epoch(line: bytes) -> Epoch:
    epoch, _, start = line.partition(b"-")
    return Epoch(_number(epoch, "epoch"), _number(start, "offset"))


def _number(text: bytes, what: str) -> int:
    text = text.rstrip(b"\r")
    if not text.isdigit() or len(text) > _MOST_DIGITS:
        raise _damaged(f"{_shown(text)!r} is no {what}")
    return int(text)


def _shown(text: bytes) -> str:
    return text[:_MOST_DIGITS].decode("ascii", "replace").strip()


def _damaged(reason: str) -> CorruptMetadataError:
    return CorruptMetadataError("", 0, reason)
