"""The checkpoint file (docs/formats/checkpoint.md, RocketMQ's StoreCheckpoint)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.formats.field import Field, positions, struct_format
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("physicMsgTimestamp", "q", 8, "store time up to which the CommitLog is flushed"),
    Field("logicsMsgTimestamp", "q", 8, "store time of the last unit built in a ConsumeQueue"),
    Field("indexMsgTimestamp", "q", 8, "end time of the last full index file that was flushed"),
    Field("masterFlushedOffset", "q", 8, "replication, 5.x; else 0"),
    Field("confirmPhyOffset", "q", 8, "replication, 5.x; else 0"),
    Field("logicsPhysicalOffset", "q", 8, "commit log offset of the last unit on the disk, from 5.5.0 on; 0: unknown"),
)

CHECKPOINT_SIZE = 4096
#: Position of each field by its name.
POSITIONS = positions(FIELDS)
_STRUCT = struct.Struct(struct_format(FIELDS))
#: Bytes in use: less than a sector of any disk, so they are all old or all new after a power cut.
USED_SIZE = _STRUCT.size
_SAFETY_MARGIN_MS = 3000


class Checkpoint(NamedTuple):
    """Flushed positions of the files, as lower bounds; timestamps in ms since 1970 UTC."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The 4096 bytes of the file."""
    return _STRUCT.pack(*checkpoint).ljust(CHECKPOINT_SIZE, b"\x00")


def decode_checkpoint(data: Buffer) -> Checkpoint:
    """The checkpoint of RocketMQ 4.x (24 bytes in use), 5.x (40), or 5.5.0 and later (48).

    Missing bytes count as 0, as in Java's map of the file: a torn file gives an earlier bound, which is safe.
    """
    return Checkpoint._make(_STRUCT.unpack(bytes(data[: _STRUCT.size]).ljust(_STRUCT.size, b"\x00")))


def min_timestamp(checkpoint: Checkpoint) -> int:
    """Time before which CommitLog and ConsumeQueues are flushed: 3 s before the earlier timestamp, at least 0."""
    return max(0, min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - _SAFETY_MARGIN_MS)


def min_timestamp_index(checkpoint: Checkpoint) -> int:
    """Time before which the index is flushed, too."""
    return min(min_timestamp(checkpoint), checkpoint.index_msg_timestamp)
