"""Java's numbers, hashes and CRC, on which bytes on disk depend."""

from __future__ import annotations

import struct
import zlib

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_UINT32 = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number over the UTF-16 units of the text (two above U+FFFF)."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & _UINT32
    return value - 0x100000000 if value > INT32_MAX else value


def index_hash(text: str) -> int:
    """IndexFile.indexKeyHashMethod: the absolute value of string_hash, 0 to 2**31 - 1.

    Java's Math.abs(-2**31) stays negative; RocketMQ replaces it by 0.
    """
    value = string_hash(text)
    return 0 if value == INT32_MIN else abs(value)


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """UtilAll.crc32: CRC-32 of the body with the top bit cleared; 0 for an empty body."""
    return zlib.crc32(body) & 0x7FFFFFFF


def parse_long(text: str) -> int:
    """A number as Java's Long.parseLong takes it; -1 for another text."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= len(str(INT64_MAX))):
        return -1
    value = int(digits.lstrip("0") or "0") * (-1 if text[0] == "-" else 1)
    return value if INT64_MIN <= value <= INT64_MAX else -1
