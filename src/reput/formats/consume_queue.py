"""The 20-byte unit of a ConsumeQueue (docs/formats/consume-queue.md, RocketMQ's ConsumeQueue)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.errors import CorruptConsumeQueueError
from reput.formats.field import Field, positions, struct_format
from reput.formats.java import INT32_MAX
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("PHYSICALOFFSET", "q", 8, "CommitLog offset of the record; filler 0"),
    Field("SIZE", "i", 4, "TOTALSIZE of the record; filler 2147483647; 0 or less: unused"),
    Field("TAGSCODE", "q", 8, "hash of the tags, sign extended; 0 without tags; for delayed messages the deliver time"),
)

#: Positions from the start of a unit.
PHYSICAL_OFFSET, SIZE, TAGS_CODE = positions(FIELDS).values()

UNIT = struct.Struct(struct_format(FIELDS))
UNIT_SIZE = UNIT.size
DEFAULT_FILE_SIZE = 6_000_000

#: Delayed messages wait in this topic; the TAGSCODE of their unit is the time of delivery, in milliseconds
#: (`CommitLog.checkMessageAndReturnSize`, `TopicValidator.RMQ_SYS_SCHEDULE_TOPIC`).
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


class Unit(NamedTuple):
    """One message of a queue: its CommitLog offset, the size of its record in bytes, and its tags code."""

    commit_log_offset: int
    size: int
    tags_code: int


FILLER = Unit(0, INT32_MAX, 0)
"""Unit before the first message of a queue whose first queue offset is not 0 (ConsumeQueue.fillPreBlank)."""


def encode_unit(commit_log_offset: int, size: int, tags_code: int) -> bytes:
    """The 20 bytes of a unit."""
    return UNIT.pack(commit_log_offset, size, tags_code)


def decode_unit(buffer: Buffer, position: int = 0) -> Unit:
    """The unit at a position; raises CorruptConsumeQueueError (path '') if fewer than 20 bytes are left."""
    left = len(buffer) - position
    if left < UNIT_SIZE:
        raise CorruptConsumeQueueError("", position, f"a unit takes {UNIT_SIZE} bytes, {left} are left")
    return Unit._make(UNIT.unpack_from(buffer, position))
