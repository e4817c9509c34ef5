"""The timer wheel (docs/formats/timer.md, RocketMQ's TimerWheel): a slot for each moment of two weeks."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.errors import CorruptStoreError
from reput.formats.field import Field, positions, struct_format
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("TIME", "q", 8, "the slot's time divided by the precision; the slot counts for this time alone"),
    Field("FIRSTPOS", "q", 8, "position of its first unit in the timer log; −1 none"),
    Field("LASTPOS", "q", 8, "position of its last unit"),
    Field("NUM", "i", 4, "messages; one that deletes another counts −1"),
    Field("MAGIC", "i", 4, "0"),
)
POSITIONS = positions(FIELDS)
_SLOT = struct.Struct(struct_format(FIELDS))

SLOT_SIZE = 32
#: Slots of the longest wait, 7 days of seconds (`TIMER_WHEEL_TTL_DAY`); the wheel has twice as many.
SLOTS_TOTAL = 7 * 86_400
SLOTS = 2 * SLOTS_TOTAL
WHEEL_SIZE = SLOTS * SLOT_SIZE
#: At least this many slots lie between the farthest wait and the oldest slot (`TIMER_BLANK_SLOTS`).
BLANK_SLOTS = 60


class Slot(NamedTuple):
    """The messages of one time: `time` is in ms divided by the precision, the positions are in the timer log."""

    time: int
    first_pos: int
    last_pos: int
    num: int


def encode_slot(slot: Slot) -> bytes:
    """The 32 bytes of a slot."""
    return _SLOT.pack(*slot, 0)


def decode_slot(buffer: Buffer, position: int = 0) -> Slot:
    """The slot at a position; raises CorruptStoreError (path '') if fewer than 32 bytes are left."""
    left = len(buffer) - position
    if left < SLOT_SIZE:
        raise CorruptStoreError("", position, f"a slot takes {SLOT_SIZE} bytes, {left} are left")
    return Slot._make(_SLOT.unpack_from(buffer, position)[:4])


def slot_index(time_ms: int, precision_ms: int) -> int:
    """The number of the slot of a time (`TimerWheel.getSlotIndex`)."""
    return time_ms // precision_ms % SLOTS
