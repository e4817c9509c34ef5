"""HPACK, the header blocks of HTTP/2: the static table, and the code of texts (RFC 7541, appendices A and B)."""

from __future__ import annotations

from typing import NamedTuple

#: What a field takes in the dynamic table, and in the size of a header list, beside its name and value.
FIELD_OVERHEAD = 32
#: Size of the dynamic table, if no SETTINGS frame says another one.
TABLE_SIZE = 4096

_NAMES = (
    ":authority :method :method :path :path :scheme :scheme :status :status :status :status :status :status :status "
    "accept-charset accept-encoding accept-language accept-ranges accept access-control-allow-origin age allow "
    "authorization cache-control content-disposition content-encoding content-language content-length "
    "content-location content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards "
    "proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie "
    "strict-transport-security transfer-encoding user-agent vary via www-authenticate"
).split()
_VALUES = {
    2: "GET", 3: "POST", 4: "/", 5: "/index.html", 6: "http", 7: "https", 8: "200", 9: "204", 10: "206", 11: "304",
    12: "400", 13: "404", 14: "500", 16: "gzip, deflate",
}  # fmt: skip
#: The fields of the static table; the first one has index 1.
STATIC_FIELDS = tuple((name, _VALUES.get(index, "")) for index, name in enumerate(_NAMES, 1))

#: The code is canonical: codes of one length follow each other, in the order of the symbols. So lengths are enough.
_SYMBOLS_BY_BITS = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
    21: b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
    22: b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
    23: b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf"
    b"\xc5\xe7\xef",
    24: b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
    25: b"\xc7\xcf\xea\xeb",
    26: b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    27: b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    28: b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
    b"\x7f\xdc\xf9",
    30: b"\n\r\x16",
}
#: Symbol of 30 ones, the last code: no text has it, and its beginning fills up the last byte of a text.
END_SYMBOL = 256
#: Longest filling, in bits.
MOST_PADDING = 7


class HuffmanCode(NamedTuple):
    """Code of one symbol: a byte of a text, or `END_SYMBOL`."""

    symbol: int
    code: int
    bits: int


def _codes() -> tuple[HuffmanCode, ...]:
    codes: list[HuffmanCode] = []
    code, before = 0, 0
    for bits, symbols in _SYMBOLS_BY_BITS.items():
        code <<= bits - before
        before = bits
        for symbol in symbols:
            codes.append(HuffmanCode(symbol, code, bits))
            code += 1
    codes.append(HuffmanCode(END_SYMBOL, code, before))
    return tuple(codes)


#: From the shortest code to the longest one.
HUFFMAN_CODES = _codes()
