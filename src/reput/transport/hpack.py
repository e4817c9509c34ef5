"""HPACK (RFC 7541): HeaderDecoder of a peer's header blocks, HeaderEncoder of those that answer calls of gRPC."""

from __future__ import annotations

import re
from collections import deque

from reput.formats.hpack import (
    END_SYMBOL,
    FIELD_OVERHEAD,
    HUFFMAN_CODES,
    MOST_PADDING,
    STATIC_FIELDS,
    TABLE_SIZE,
)
from reput.formats.http2 import ErrorCode
from reput.transport.http2_frames import Http2Error

#: Name and value of a field, and what it takes in the table. A field that no request may have has no name.
Entry = tuple[str, str, int]

#: The largest header list: names, values, and `FIELD_OVERHEAD` for each.
MOST_HEADERS = 16 << 10

_STATIC: tuple[Entry, ...] = tuple(
    (name, value, len(name) + len(value) + FIELD_OVERHEAD) for name, value in STATIC_FIELDS
)
#: Index of the first entry of the dynamic table.
_DYNAMIC = len(_STATIC) + 1
#: First bits of a field: of the table; a literal that goes into the table; a new size of the table. All others: a
#: literal that does not.
_INDEXED, _ADDED, _RESIZED = 0x80, 0x40, 0x20
#: Largest number in the first byte, by how many of its bits are for it.
_7_BITS, _6_BITS, _5_BITS, _4_BITS = 0x7F, 0x3F, 0x1F, 0x0F
#: Bits of a number after its first byte: what is longer is no number that a block can mean.
_NUMBER_BITS = 28
#: A field's name, and what no value has (RFC 9113, 8.2.1).
_NAME = re.compile(r":?[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_NO_VALUE = re.compile(r"[\0\r\n]").search


class HeaderDecoder:
    """Decoder of one peer's header blocks, with its dynamic table.

    The table has `TABLE_SIZE` bytes at the most: nobody is told of a larger one.
    """

    def __init__(self) -> None:
        self._table: deque[Entry] = deque()
        self._size, self._limit = 0, TABLE_SIZE

    def decode(self, block: bytes) -> list[Entry]:
        """The fields of a block.

        A field that is malformed has no name; the table stays right.

        Raises:
            Http2Error: COMPRESSION_ERROR, if it is no block; ENHANCE_YOUR_CALM, if the fields have more bytes than
                `MOST_HEADERS`.
        """
        fields: list[Entry] = []
        at, end, total = 0, len(block), 0
        try:
            while at < end:
                first = block[at]
                at += 1
                if first & _INDEXED:
                    index, at = _number(block, at, first, _7_BITS)
                    entry = self._entry(index)
                elif first & ~_5_BITS == _RESIZED:
                    if fields:
                        raise _broken("the table gets a new size after a field")
                    at = self._resize(block, at, first)
                    continue
                else:
                    entry, at = self._literal(block, at, first)
                total += entry[2]
                if total > MOST_HEADERS:
                    raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"more than {MOST_HEADERS} bytes of headers")
                fields.append(entry)
        except IndexError:
            raise _broken("it ends within a field") from None
        return fields

    def _entry(self, index: int) -> Entry:
        if 0 < index < _DYNAMIC:
            return _STATIC[index - 1]
        if not 0 <= index - _DYNAMIC < len(self._table):
            raise _broken(f"no field has index {index}")
        return self._table[index - _DYNAMIC]

    def _literal(self, block: bytes, at: int, first: int) -> tuple[Entry, int]:
        is_added = first & _ADDED
        index, at = _number(block, at, first, _6_BITS if is_added else _4_BITS)
        if index:
            name = self._entry(index)[0]
            size = len(name)
        else:
            name, at = _text(block, at)
            size = len(name)
            if not _NAME(name):
                name = ""
        value, at = _text(block, at)
        size += len(value) + FIELD_OVERHEAD
        if _NO_VALUE(value):
            name = ""
        entry = name, value, size
        if is_added:
            self._table.appendleft(entry)
            self._size += size
            if self._size > self._limit:
                self._evict()
        return entry, at

    def _resize(self, block: bytes, at: int, first: int) -> int:
        limit, at = _number(block, at, first, _5_BITS)
        if limit > TABLE_SIZE:
            raise _broken(f"a table of {limit} bytes: {TABLE_SIZE} are there")
        self._limit = limit
        self._evict()
        return at

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= self._table.pop()[2]


def _broken(why: str) -> Http2Error:
    return Http2Error(ErrorCode.COMPRESSION_ERROR, f"a header block: {why}")


def _number(block: bytes, at: int, first: int, most: int) -> tuple[int, int]:
    """(number that begins in the low bits of `first`, position after it)."""
    number = first & most
    if number < most:
        return number, at
    for shift in range(0, _NUMBER_BITS, 7):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise _broken("a number of too many bytes")


def _text(block: bytes, at: int) -> tuple[str, int]:
    """(text, position after it)."""
    first = block[at]
    size, at = _number(block, at + 1, first, _7_BITS)
    end = at + size
    if end > len(block):
        raise IndexError
    raw = block[at:end]
    return (decode_huffman(raw) if first & 0x80 else raw.decode("latin-1")), end


# -- Huffman's code: a byte leads from one node of the code's tree to another one, and gives symbols.

_Row = list[tuple[int, str]]
_DEAD = -1


def _tree() -> tuple[list[list[int]], frozenset[int]]:
    """(the two followers of each node, a symbol as its complement; nodes at which a text may end)."""
    nodes = [[0, 0]]
    for symbol, code, bits in HUFFMAN_CODES:
        node = 0
        for shift in range(bits - 1, 0, -1):
            bit = code >> shift & 1
            if not nodes[node][bit]:
                nodes.append([0, 0])
                nodes[node][bit] = len(nodes) - 1
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol
    ends = [0]
    for _ in range(MOST_PADDING):
        ends.append(nodes[ends[-1]][1])
    return nodes, frozenset(ends)


_NODES, _ENDS = _tree()
#: By node, once a text has come by: 2 KB each, half a MiB in all.
_rows: list[_Row | None] = [None] * len(_NODES)


def _row(node: int) -> _Row:
    row: _Row = []
    for byte in range(256):
        at, symbols = node, bytearray()
        for shift in range(7, -1, -1):
            at = _NODES[at][byte >> shift & 1]
            if at == ~END_SYMBOL:
                at = _DEAD
                break
            if at < 0:
                symbols.append(~at)
                at = 0
        row.append((at, symbols.decode("latin-1")))
    _rows[node] = row
    return row


def decode_huffman(data: bytes) -> str:
    """The text of a Huffman code; Http2Error if it is none."""
    node, texts, rows = 0, [], _rows
    for byte in data:
        node, text = (rows[node] or _row(node))[byte]
        if node == _DEAD:
            raise _broken("a Huffman code with the symbol for the end")
        texts.append(text)
    if node not in _ENDS:
        raise _broken("a Huffman code without the right padding")
    return "".join(texts)


# -- answers


def encode_field(name: str, value: str) -> bytes:
    """A field that does not go into the table, its texts as they are."""
    return b"\0" + _encode_text(name) + _encode_text(value)


def _encode_text(text: str) -> bytes:
    data = text.encode("latin-1")
    return _encode_number(len(data), 0, _7_BITS) + data


def _encode_number(number: int, first: int, most: int) -> bytes:
    if number < most:
        return bytes((first | number,))
    out = bytearray((first | most,))
    number -= most
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_STATUS_200 = bytes((_INDEXED | STATIC_FIELDS.index((":status", "200")) + 1,))
_STATUS = STATIC_FIELDS.index((":status", "200")) + 1
#: Fields of almost each answer, at its beginning and at its end.
_TYPE, _OK = ("content-type", "application/grpc"), ("grpc-status", "0")


class HeaderEncoder:
    """Encoder of the header blocks of answers.

    The two fields of almost each answer go into the peer's table, if it has room for both: then they are a byte each.
    """

    def __init__(self) -> None:
        self._is_indexed = True
        self._size_update = b""
        self._indexes: dict[tuple[str, str], int] = {}
        self._added = 0

    def set_table_size(self, size: int) -> None:
        """Note the size of the peer's table (SETTINGS_HEADER_TABLE_SIZE)."""
        if size < TABLE_SIZE:  # nothing was evicted yet; from now on nothing is there
            self._is_indexed = False
            self._indexes.clear()
            self._size_update = bytes((_RESIZED,))

    def begin(self) -> bytes:
        """The block at the beginning of an answer."""
        return self._take_update() + _STATUS_200 + self._field(_TYPE)

    def end(self, status: int, text: str) -> bytes:
        """The block at the end of an answer."""
        if not status:
            return self._take_update() + self._field(_OK)
        fields = encode_field("grpc-status", str(status))
        return self._take_update() + fields + encode_field("grpc-message", encode_message(text))

    def http_status(self, status: int) -> bytes:
        """The block of an answer to what is no call of gRPC."""
        return self._take_update() + _encode_number(_STATUS, 0, _4_BITS) + _encode_text(str(status))

    def _take_update(self) -> bytes:
        update, self._size_update = self._size_update, b""
        return update

    def _field(self, field: tuple[str, str]) -> bytes:
        if not self._is_indexed:
            return encode_field(*field)
        number = self._indexes.get(field)
        if number is None:
            self._added += 1
            self._indexes[field] = self._added
            return bytes((_ADDED,)) + _encode_text(field[0]) + _encode_text(field[1])
        return _encode_number(_DYNAMIC + self._added - number, _INDEXED, _7_BITS)


#: Characters of a text that need not be more, as grpc-message has it.
_MOST_TEXT = 1000


def encode_message(text: str) -> str:
    """A text for people as grpc-message has it: what is not printable ASCII as %XX; a long one is cut."""
    data = text[:_MOST_TEXT].encode(errors="replace")
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != ord("%") else f"%{byte:02X}" for byte in data)
