"""Header, slots and entries of an IndexFile (docs/formats/index-file.md, RocketMQ's IndexFile and IndexHeader)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.errors import CorruptIndexFileError
from reput.formats.field import Field, positions, struct_format
from reput.formats.java import index_hash
from reput.formats.record_layout import Buffer

HEADER_FIELDS: tuple[Field, ...] = (
    Field("BEGINTIMESTAMP", "q", 8, "store time of the first message; in a new file after a full one that one's end"),
    Field("ENDTIMESTAMP", "q", 8, "store time of the last message"),
    Field("BEGINPHYOFFSET", "q", 8, "CommitLog offset of the first message"),
    Field("ENDPHYOFFSET", "q", 8, "CommitLog offset of the last message"),
    Field("HASHSLOTCOUNT", "i", 4, "slots in use"),
    Field("INDEXCOUNT", "i", 4, "number of the next entry; 0 on disk until the first put"),
)
ENTRY_FIELDS: tuple[Field, ...] = (
    Field("KEYHASH", "i", 4, "hash of `topic#key`, 0 or more"),
    Field("PHYOFFSET", "q", 8, "CommitLog offset of the message"),
    Field("TIMEDIFF", "i", 4, "whole seconds from BEGINTIMESTAMP to the store time"),
    Field("SLOTVALUE", "i", 4, "number of the entry before this one in the slot's chain, 0 = none"),
)

#: Position of each field of the header by its name.
HEADER_POSITIONS = positions(HEADER_FIELDS)
#: Positions from the start of an entry.
KEY_HASH, PHY_OFFSET, TIME_DIFF, SLOT_VALUE = positions(ENTRY_FIELDS).values()

HEADER = struct.Struct(struct_format(HEADER_FIELDS))
ENTRY = struct.Struct(struct_format(ENTRY_FIELDS))
HEADER_SIZE = HEADER.size
SLOT_SIZE = 4
ENTRY_SIZE = ENTRY.size
#: A key is hashed after its topic and this; tags that are indexed, after their type and this, too.
TOPIC_END, TAG_TYPE = "#", "T"
DEFAULT_HASH_SLOT_NUM = 5_000_000
DEFAULT_INDEX_NUM = 20_000_000


class IndexHeader(NamedTuple):
    """Header of an index file; times in ms since 1970 UTC."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 0

    @property
    def entry_count(self) -> int:
        """Number of entries in the file: index_count is one more, since entry 0 is never used."""
        return max(self.index_count, 1) - 1


class IndexEntry(NamedTuple):
    """One key of one message; time_diff in seconds after the header's begin_timestamp."""

    key_hash: int
    phy_offset: int
    time_diff: int
    slot_value: int


def encode_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header."""
    return HEADER.pack(*header)


def decode_header(buffer: Buffer) -> IndexHeader:
    """The header at the start; raises CorruptIndexFileError (path '') if there are fewer than 40 bytes."""
    if len(buffer) < HEADER_SIZE:
        raise CorruptIndexFileError("", 0, f"a header takes {HEADER_SIZE} bytes, {len(buffer)} are there")
    return IndexHeader._make(HEADER.unpack_from(buffer))


def encode_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes of an entry."""
    return ENTRY.pack(*entry)


def decode_entry(buffer: Buffer, position: int = 0) -> IndexEntry:
    """The entry at a position; raises CorruptIndexFileError (path '') if fewer than 20 bytes are left."""
    left = len(buffer) - position
    if left < ENTRY_SIZE:
        raise CorruptIndexFileError("", position, f"an entry takes {ENTRY_SIZE} bytes, {left} are left")
    return IndexEntry._make(ENTRY.unpack_from(buffer, position))


def file_size(slots: int, entries: int) -> int:
    """Bytes of a file with this number of slots and of entries (entry 0, never used, included)."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


def slot_position(slot: int) -> int:
    """Position of a slot's int32 in the file; slot = key_hash modulo the number of slots."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_position(slots: int, i: int) -> int:
    """Position of entry i (from 1 on) in a file with this number of slots."""
    return HEADER_SIZE + slots * SLOT_SIZE + i * ENTRY_SIZE


def key_hash(topic: str, key: str) -> int:
    """Hash of a key of a topic, 0 to 2**31 - 1 (IndexFile.indexKeyHashMethod over `topic#key`)."""
    return index_hash(f"{topic}{TOPIC_END}{key}")
