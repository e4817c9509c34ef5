"""The unit of a consume queue extension (docs/formats/consume-queue-ext.md, RocketMQ's ConsumeQueueExt.CqExtUnit).

The tags code of a consume queue unit may be an *address*: the offset of an ext unit in its queue's extension files,
plus -2**63. Ext units vary in size, so their offset does not follow from the queue offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.errors import CorruptConsumeQueueError
from reput.formats.field import Field, positions, struct_format
from reput.formats.java import INT32_MIN, INT64_MIN
from reput.formats.record_layout import Buffer

FIELDS: tuple[Field, ...] = (
    Field("SIZE", "h", 2, "bytes of the unit: 20 and the bit map; 0 unused, -1 the file ends here"),
    Field("TAGSCODE", "q", 8, "what the consume queue unit would hold: hash of the tags, or the deliver time"),
    Field("STORETIMESTAMP", "q", 8, "store time of the record in ms"),
    Field("BITMAPSIZE", "h", 2, "bytes of the bit map, 0 for none"),
    Field("BITMAP", None, None, "consumers whose SQL filter the message passes (a Bloom filter)"),
)

#: Positions from the start of a unit.
SIZE, TAGS_CODE, STORE_TIMESTAMP, BIT_MAP_SIZE, BIT_MAP = positions(FIELDS).values()

HEAD_FIELDS = FIELDS[:-1]
HEAD = struct.Struct(struct_format(HEAD_FIELDS))
MIN_UNIT_SIZE = HEAD.size
MAX_UNIT_SIZE = 0x7FFF
DEFAULT_FILE_SIZE = 50_331_648

#: A file's last unit leaves this much room for END_MARK, which says that the units go on in the next file.
END_BLANK_SIZE = 4
END_MARK = b"\xff\xff"

#: The largest tags code that is an address: no hash of tags is that low (`ConsumeQueueExt.MAX_ADDR`).
MAX_ADDRESS = INT32_MIN - 1
_FIRST_ADDRESS = INT64_MIN


class ExtHead(NamedTuple):
    """Fields of an ext unit before its bit map."""

    size: int
    tags_code: int
    store_timestamp: int
    bit_map_size: int


class ExtUnit(NamedTuple):
    """Part of a queue beside a message's unit: tags code, store timestamp in ms, bit map (b"" for none)."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes

    @property
    def size(self) -> int:
        """Size of the unit in bytes."""
        return MIN_UNIT_SIZE + len(self.bit_map)


def is_ext_address(tags_code: int) -> bool:
    """Whether the tags code of a consume queue unit is the address of an ext unit (`ConsumeQueueExt.isExtAddr`)."""
    return tags_code <= MAX_ADDRESS


def encode_address(offset: int) -> int:
    """Tags code for an ext unit at an offset in bytes of the extension (`ConsumeQueueExt.decorate`)."""
    return offset + _FIRST_ADDRESS


def decode_address(address: int) -> int:
    """Offset in bytes of the extension for an address (`ConsumeQueueExt.unDecorate`)."""
    return address - _FIRST_ADDRESS


def encode_ext_unit(tags_code: int, store_timestamp: int, bit_map: bytes = b"") -> bytes:
    """The bytes of a unit; the bit map has at most 32 747 bytes."""
    return HEAD.pack(MIN_UNIT_SIZE + len(bit_map), tags_code, store_timestamp, len(bit_map)) + bit_map


def decode_ext_unit(buffer: Buffer, position: int = 0) -> ExtUnit | None:
    """The unit at a position; None if the file is not in use, or ends (SIZE is 0 or less).

    Raises CorruptConsumeQueueError (path '') for a unit that does not fit into the buffer or contradicts itself.
    """
    left = len(buffer) - position
    size = int.from_bytes(bytes(buffer[position : position + 2]), "big", signed=True) if left >= 2 else 0
    if size <= 0:
        return None
    if MIN_UNIT_SIZE <= size <= left:
        head = ExtHead._make(HEAD.unpack_from(buffer, position))
        if head.bit_map_size == size - MIN_UNIT_SIZE:
            bit_map = bytes(buffer[position + BIT_MAP : position + size])
            return ExtUnit(head.tags_code, head.store_timestamp, bit_map)
    raise CorruptConsumeQueueError(
        "", position, f"an ext unit of {size} bytes, {left} are left, or its bit map differs"
    )
