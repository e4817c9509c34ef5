"""CRC of a whole record, which RocketMQ 5 writes after its properties with `enabledAppendPropCRC`.

The record's last 20 bytes are the name `__CRC32#`, 0x01, ten digits, 0x02. The digits are the CRC-32 of all
earlier bytes with its top bit cleared, the least significant digit first (docs/formats/commit-log.md,
`MessageDecoder.createCrc32`).
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from reput.formats.record_layout import Buffer, pack_record

PROPERTY_CRC32 = "__CRC32#"
PROPERTY_CRC_DIGITS = 10
#: `CommitLog.CRC32_RESERVED_LEN`.
PROPERTY_CRC_SIZE = len(PROPERTY_CRC32) + 1 + PROPERTY_CRC_DIGITS + 1
_HEAD, _SEPARATOR = f"{PROPERTY_CRC32}\x01".encode(), 2
_CRC = re.compile(rb"__CRC32#\x01[0-9]{10}\x02")


def without_property_crc(properties: bytes) -> bytes:
    """Properties as they were sent, without what a scan would take for the CRC of the record that they come into."""
    end = len(properties)
    while end >= PROPERTY_CRC_SIZE:  # matched where it begins: a search through all of them for each would be quadratic
        begin = end - PROPERTY_CRC_SIZE
        if not _CRC.match(properties, begin, end) or (begin and properties[begin - 1] != _SEPARATOR):
            break
        end = begin
    return properties[:end]


def encode_property_crc(record: Buffer) -> bytes:
    """The 20 bytes at the end of a record, from all bytes before them."""
    digits = str(zlib.crc32(record) & 0x7FFFFFFF)[::-1].ljust(10, "0")
    return _HEAD + digits.encode() + b"\x02"


def pack_record_with_crc(*fields: Any) -> bytes:
    """`pack_record` for properties whose last 20 bytes are reserved for the CRC."""
    record = pack_record(*fields)[:-PROPERTY_CRC_SIZE]
    return record + encode_property_crc(record)
