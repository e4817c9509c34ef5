"""The 52-byte unit of the timer log (docs/formats/timer.md, RocketMQ's TimerLog): one message that waits."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from reput.errors import CorruptStoreError
from reput.formats.field import Field, positions, struct_format
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("SIZE", "i", 4, "52"),
    Field("PREVPOS", "q", 8, "position of the slot's unit before this one in the timer log; −1: it is the first"),
    Field("MAGIC", "i", 4, "bits: 1 always, 2 to be put back when due, 4 deletes another message"),
    Field("CURRWRITETIME", "q", 8, "when it was written, rounded down to the precision"),
    Field("DELAYEDTIME", "i", 4, "ms from CURRWRITETIME to the time of its slot"),
    Field("OFFSETPY", "q", 8, "CommitLog offset of the message's record in rmq_sys_wheel_timer"),
    Field("SIZEPY", "i", 4, "size of that record"),
    Field("HASHCODE", "i", 4, "Java's hash of the real topic"),
    Field("RESERVED", "q", 8, "0"),
)
POSITIONS = positions(FIELDS)
_UNIT = struct.Struct(struct_format(FIELDS))

#: Messages with a time wait in its queue 0.
TIMER_TOPIC = "rmq_sys_wheel_timer"
UNIT_SIZE = 52
DEFAULT_FILE_SIZE = 100 << 20
#: What ends a file in which no further unit has room: int32 bytes that are left, int64 0, int32 magic.
_BLANK = struct.Struct(">iqi")
_BLANK_MAGIC = 0xCBD43194 - (1 << 32)
BLANK_SIZE = _BLANK.size
#: The position of no unit.
NO_POSITION = -1


class Magic(IntEnum):
    """Bits that say what is to be done with the message when its slot is due."""

    DEFAULT = 1
    ROLL = 2
    DELETE = 4


class TimerUnit(NamedTuple):
    """One message in a slot of the wheel: times in ms since 1970 UTC, `delay_ms` from `write_time` to the slot's."""

    prev_pos: int
    magic: int
    write_time: int
    delay_ms: int
    commit_log_offset: int
    size: int
    topic_hash: int

    @property
    def time(self) -> int:
        """The time of its slot, in ms."""
        return self.write_time + self.delay_ms


def encode_timer_unit(unit: TimerUnit) -> bytes:
    """The 52 bytes of a unit."""
    return _UNIT.pack(UNIT_SIZE, *unit, 0)


def is_timer_unit(size: int, magic: int) -> bool:
    """Whether these two fields are a unit's (`TimerMessageStore.isMagicOK`)."""
    return size == UNIT_SIZE and 0 <= magic <= 0xF


def decode_timer_unit(buffer: Buffer, position: int = 0) -> TimerUnit:
    """The unit at a position; raises CorruptStoreError (path '') if there is none."""
    left = len(buffer) - position
    if left < UNIT_SIZE:
        raise CorruptStoreError("", position, f"a unit takes {UNIT_SIZE} bytes, {left} are left")
    size, prev_pos, magic, *others, _ = _UNIT.unpack_from(buffer, position)
    if not is_timer_unit(size, magic):
        raise CorruptStoreError("", position, f"expected a unit of {UNIT_SIZE} bytes, found {size}, magic {magic}")
    return TimerUnit(prev_pos, magic, *others)


def encode_timer_blank(left: int) -> bytes:
    """The 16 bytes that end a file of which `left` bytes are left."""
    return _BLANK.pack(left, 0, _BLANK_MAGIC)


def has_room_for_unit(file_size: int, position: int) -> bool:
    """Whether a unit and the file's end fit behind a position of a file (`TimerLog.append`)."""
    return file_size - position >= UNIT_SIZE + BLANK_SIZE


def units_of_file(file_size: int) -> int:
    """The most units of a file (`TimerLog.getOffsetForLastUnit` + 1)."""
    return (file_size - BLANK_SIZE) // UNIT_SIZE
