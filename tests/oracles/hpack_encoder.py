"""PeerEncoder: header blocks as any peer might write them (RFC 7541), for tests of the decoder."""

from __future__ import annotations

import random
from collections.abc import Iterable

from reput.formats.hpack import FIELD_OVERHEAD, HUFFMAN_CODES, MOST_PADDING, STATIC_FIELDS, TABLE_SIZE

_CODES = {symbol: format(code, f"0{bits}b") for symbol, code, bits in HUFFMAN_CODES}


def encode_huffman(data: bytes) -> bytes:
    """Huffman's code of a text."""
    bits = "".join(_CODES[byte] for byte in data)
    bits += "1" * (-len(bits) % (MOST_PADDING + 1))
    return int(bits or "0", 2).to_bytes(len(bits) // 8)


def encode_number(number: int, first: int, most: int) -> bytes:
    """A number in the low bits of a byte, and in what follows."""
    if number < most:
        return bytes([first | number])
    out, number = [first | most], number - most
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


class PeerEncoder:
    """Encoder that chooses among all ways to write a field, by chance.

    Attributes:
        size: Of its table.
    """

    def __init__(self, draws: random.Random, *, always_adds: bool = False) -> None:
        self.size = 0
        self._draws, self._always_adds = draws, always_adds
        self._table: list[tuple[str, str]] = []
        self._limit = TABLE_SIZE

    def encode(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """A block."""
        out = b""
        if not self._always_adds and self._draws.random() < 0.2:
            self._limit = self._draws.choice([0, 50, 300, TABLE_SIZE])
            self._evict()
            out += encode_number(self._limit, 0x20, 0x1F)
        return out + b"".join(self._field(*each) for each in fields)

    def _field(self, name: str, value: str) -> bytes:
        every = [*STATIC_FIELDS, *self._table]
        if (name, value) in every and self._draws.random() < 0.8:
            return encode_number(every.index((name, value)) + 1, 0x80, 0x7F)
        adds = self._always_adds or self._draws.random() < 0.5
        first, most = (0x40, 0x3F) if adds else (self._draws.choice([0, 0x10]), 0x0F)
        names = [each for each, _ in every]
        if name in names and self._draws.random() < 0.8:
            out = encode_number(names.index(name) + 1, first, most)
        else:
            out = bytes([first]) + self._text(name)
        if adds:
            self._table.insert(0, (name, value))
            self.size += len(name) + len(value) + FIELD_OVERHEAD
            self._evict()
        return out + self._text(value)

    def _text(self, text: str) -> bytes:
        data = text.encode("latin-1")
        if self._draws.random() < 0.5:
            data = encode_huffman(data)
            return encode_number(len(data), 0x80, 0x7F) + data
        return encode_number(len(data), 0, 0x7F) + data

    def _evict(self) -> None:
        while self.size > self._limit:
            name, value = self._table.pop()
            self.size -= len(name) + len(value) + FIELD_OVERHEAD
