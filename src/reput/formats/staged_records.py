"""Staged records: written by a task of Spark's sink, appended by the commit (docs/formats/sink-commit.md).

A file is a series of frames. Each frame has whole records without a location (QUEUEOFFSET, PHYSICALOFFSET,
STORETIMESTAMP and a reserved property CRC are zero), and tables with which the append fills these fields without
reading the records.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from reput.errors import StoreFormatError

MAGIC = b"RPST"
_HEAD = struct.Struct("<4siqiI")
HEAD_SIZE = _HEAD.size


class FrameHead(NamedTuple):
    """Header of a frame.

    Attributes:
        rows: Number of its records.
        records_size: Bytes of the records.
        keys_size: Bytes of the queues' names.
        tables_crc: CRC-32 of the tables.
    """

    rows: int
    records_size: int
    keys_size: int
    tables_crc: int

    @property
    def tables_size(self) -> int:
        """Bytes of the tables: names, int32[rows + 1] of positions, int32[rows] of queues."""
        return self.keys_size + 4 * (self.rows + 1) + 4 * self.rows


def encode_frame_head(
    queue_keys: Sequence[tuple[str, int]], positions: bytes, queues: bytes, records_size: int
) -> bytes:
    """Header and tables of a frame; its records follow.

    Args:
        queue_keys: (topic, queue id) by the number in `queues`.
        positions: int32[rows + 1], little-endian: start of each record in the frame's records, and end of the last.
        queues: int32[rows], little-endian: the queue of each record.
        records_size: bytes of the records.
    """
    keys = json.dumps([list(key) for key in queue_keys]).encode()
    tables = keys + positions + queues
    return _HEAD.pack(MAGIC, len(queues) // 4, records_size, len(keys), zlib.crc32(tables)) + tables


def decode_frame_head(data: bytes, path: str) -> FrameHead:
    """Header of a frame. Raises StoreFormatError for bytes that are no frame."""
    if len(data) != HEAD_SIZE or data[:4] != MAGIC:
        raise StoreFormatError(f"{path}: expected the {HEAD_SIZE} bytes of a frame of staged records, found {data!r}")
    return FrameHead(*_HEAD.unpack(data)[1:])


def decode_tables(head: FrameHead, tables: bytes, path: str) -> tuple[list[tuple[str, int]], bytes, bytes]:
    """(queue keys, positions, queues) as in `encode_frame_head`. Raises StoreFormatError for other bytes."""
    if len(tables) != head.tables_size or zlib.crc32(tables) != head.tables_crc:
        raise StoreFormatError(
            f"{path}: the tables of a frame of {head.rows} staged records are not what was written: expected "
            f"{head.tables_size} bytes of CRC {head.tables_crc:#x}, found {len(tables)} of {zlib.crc32(tables):#x}"
        )
    keys = [(topic, queue_id) for topic, queue_id in json.loads(tables[: head.keys_size])]
    queues_at = head.keys_size + 4 * (head.rows + 1)
    return keys, tables[head.keys_size : queues_at], tables[queues_at:]
