"""The file config/timercheck (docs/formats/timer.md, RocketMQ's TimerCheckpoint): how far the timers are."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.formats.field import Field, positions, struct_format
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("lastReadTimeMs", "q", 8, "the messages of all slots before this time were delivered"),
    Field("lastTimerLogFlushPos", "q", 8, "up to which position the timer log is flushed, at least"),
    Field("lastTimerQueueOffset", "q", 8, "queue offset of the next message that gets a unit"),
    Field("masterTimerQueueOffset", "q", 8, "... as the master has it"),
    Field("stateVersion", "q", 8, "of the data version"),
    Field("timestamp", "q", 8, "when it changed last"),
    Field("counter", "q", 8, "number of changes"),
)
POSITIONS = positions(FIELDS)
_STRUCT = struct.Struct(struct_format(FIELDS))

FILE_SIZE = 4096


class TimerCheckpoint(NamedTuple):
    """Progress of the timers: lower bounds. Times in ms since 1970 UTC."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The 56 bytes in use, as in the file and in the answer to GET_TIMER_CHECK_POINT."""
    return _STRUCT.pack(*checkpoint)


def decode_timer_checkpoint(data: Buffer) -> TimerCheckpoint:
    """The checkpoint of a file's bytes; missing ones count as 0, as in Java's map: an earlier bound, which is safe."""
    return TimerCheckpoint._make(_STRUCT.unpack(bytes(data[: _STRUCT.size]).ljust(_STRUCT.size, b"\x00")))
