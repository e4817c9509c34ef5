"""The 46-byte unit of a BatchConsumeQueue (docs/formats/batch-consume-queue.md, RocketMQ's BatchConsumeQueue)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.errors import CorruptConsumeQueueError
from reput.formats.field import Field, positions, struct_format
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("PHYSICALOFFSET", "q", 8, "CommitLog offset of the record", "commit_log_offset"),
    Field("SIZE", "i", 4, "TOTALSIZE of the record; 0 or less: unused", "size"),
    Field("TAGSCODE", "q", 8, "hash of the tags, sign extended; 0 without tags", "tags_code"),
    Field("STORETIMESTAMP", "q", 8, "STORETIMESTAMP of the record, ms since 1970 UTC", "store_timestamp"),
    Field("MSGBASEOFFSET", "q", 8, "queue offset of the record's first message", "base_offset"),
    Field("BATCHSIZE", "h", 2, "messages in the record; 0 or less: unused", "message_count"),
    Field("COMPACTEDOFFSET", "i", 4, "-1, for compaction", "compacted_offset"),
    Field("RESERVED", "i", 4, "0", "reserved"),
)

#: Positions from the start of a unit.
PHYSICAL_OFFSET, SIZE, TAGS_CODE, STORE_TIMESTAMP, BASE_OFFSET, MESSAGE_COUNT, COMPACTED_OFFSET, RESERVED = positions(
    FIELDS
).values()

BATCH_UNIT = struct.Struct(struct_format(FIELDS))
BATCH_UNIT_SIZE = BATCH_UNIT.size
DEFAULT_FILE_SIZE = 13_800_000
NO_COMPACTED_OFFSET = -1
#: Largest value of `MESSAGE_COUNT`.
MAX_MESSAGE_COUNT = 0x7FFF


class BatchUnit(NamedTuple):
    """One record of a batch queue, with the queue offsets [base_offset, base_offset + message_count)."""

    commit_log_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    message_count: int
    compacted_offset: int = NO_COMPACTED_OFFSET
    reserved: int = 0

    @property
    def next_offset(self) -> int:
        """Queue offset after the record's last message."""
        return self.base_offset + self.message_count

    @property
    def is_in_use(self) -> bool:
        """Whether the unit names a record (the test of `BatchConsumeQueue.recover`)."""
        return self.commit_log_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.message_count > 0


def place_holder(next_offset: int) -> BatchUnit:
    """The only unit of a queue whose units are lost, and whose next message gets a queue offset of at least 1.

    It names no record, and stands before the begin of every log that has lost messages of the queue.
    """
    return BatchUnit(0, 1, 0, 0, next_offset - 1, 1)


def encode_batch_unit(unit: BatchUnit) -> bytes:
    """The 46 bytes of a unit."""
    return BATCH_UNIT.pack(*unit)


def decode_batch_unit(buffer: Buffer, position: int = 0) -> BatchUnit:
    """The unit at a position; raises CorruptConsumeQueueError (path '') if fewer than 46 bytes are left."""
    left = len(buffer) - position
    if left < BATCH_UNIT_SIZE:
        raise CorruptConsumeQueueError("", position, f"a unit takes {BATCH_UNIT_SIZE} bytes, {left} are left")
    return BatchUnit._make(BATCH_UNIT.unpack_from(buffer, position))
