"""Headers of remoting frames in their JSON form, read by kernels into the words of `remoting_header`."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.kernels.machine.memory import (
    load_i32,
    load_u8,
    load_u64_native,
    store_i64_native,
    store_u8,
    trailing_zeros,
)
from reput.kernels.wire.remoting_header import (
    ABSENT,
    F_PROPERTIES,
    H_CODE,
    H_FLAG,
    H_OPAQUE,
    H_VERSION,
    field_of,
    has_letters,
    is_int32,
    read_number,
    set_field,
)

_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE = 0x22, 0x5C, 0x3A, 0x2C, 0x7B, 0x7D
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES = _ONES * np.uint64(_QUOTE), _ONES * np.uint64(_BACKSLASH)


def _word(text: bytes) -> np.int64:
    """Eight bytes as one number, to compare names with."""
    return np.int64(int.from_bytes(text.ljust(8, b"\0")[:8], "big", signed=True))


_OPAQ, _FLAG, _VERS, _VERSION_SIZE = 0x6F706171, 0x666C6167, 0x76657273, len(b"version")
_CODE_START, _EXT_FIELDS = _word(b'{"code":'), _word(b"extField")


@njit
def starts_with(p, end, word, size):  # type: ignore[no-untyped-def]
    """Whether the next `size` (1 to 8) bytes are a `_word`; they may end the buffer."""
    if end - p < size:
        return False
    for i in range(size):  # noqa: SIM110 (a kernel has no generators)
        if np.int64(load_u8(p + i)) != (word >> np.int64(56 - 8 * i)) & np.int64(0xFF):
            return False
    return True


@njit
def _zero_bytes(word):  # type: ignore[no-untyped-def]
    """The high bit of each byte of a word that is 0; exact up to the first one, which is all that its readers ask."""
    return (word - _ONES) & ~word & _HIGHS


@njit
def _special(word):  # type: ignore[no-untyped-def]
    """The high bit of the first byte of a word that is a quote or a backslash; 0: none is."""
    return _zero_bytes(word ^ _QUOTES) | _zero_bytes(word ^ _BACKSLASHES)


@njit
def _string_end(p, end):  # type: ignore[no-untyped-def]
    """After an opening quote: (address of the closing one, whether a backslash comes before it); 0: there is none."""
    escaped = False
    while p < end:
        if p + 8 <= end:
            found = _special(load_u64_native(p))
            if found == np.uint64(0):
                p += 8
                continue
            p += trailing_zeros(found) >> 3
        c = load_u8(p)
        if c == _QUOTE:
            return p, escaped
        if c == _BACKSLASH:
            escaped = True
            p += 2
        else:
            p += 1
    return 0, escaped


@njit
def _hex(c):  # type: ignore[no-untyped-def]
    if 48 <= c <= 57:
        return np.int64(c) - 48
    c |= 32
    if 97 <= c <= 102:
        return np.int64(c) - 87
    return np.int64(-1)


@njit
def unescape(p, end, target, limit):  # type: ignore[no-untyped-def]
    """Write a JSON string as UTF-8 to `target`; returns its size, -1 if it is odd: surrogates, or too long."""
    t = target
    while p < end:
        if t + 4 > limit:
            return np.int64(-1)
        if p + 8 <= end and t + 8 <= limit:
            word = load_u64_native(p)
            plain = trailing_zeros(_zero_bytes(word ^ _BACKSLASHES)) >> 3
            store_i64_native(t, np.int64(word))  # what comes after the plain bytes is written again
            p += plain
            t += plain
            if plain:
                continue
        c = load_u8(p)
        if c != _BACKSLASH:
            store_u8(t, c)
            p += 1
            t += 1
            continue
        if p + 1 >= end:
            return np.int64(-1)
        c = load_u8(p + 1)
        p += 2
        if c == 0x75:  # u
            if p + 4 > end:
                return np.int64(-1)
            a, b, d, e = _hex(load_u8(p)), _hex(load_u8(p + 1)), _hex(load_u8(p + 2)), _hex(load_u8(p + 3))
            if a < 0 or b < 0 or d < 0 or e < 0:
                return np.int64(-1)
            code = (a << 12) | (b << 8) | (d << 4) | e
            p += 4
            if code < 0x80:
                store_u8(t, code)
                t += 1
            elif code < 0x800:
                store_u8(t, 0xC0 | (code >> 6))
                store_u8(t + 1, 0x80 | (code & 63))
                t += 2
            elif 0xD800 <= code < 0xE000:
                return np.int64(-1)
            else:
                store_u8(t, 0xE0 | (code >> 12))
                store_u8(t + 1, 0x80 | ((code >> 6) & 63))
                store_u8(t + 2, 0x80 | (code & 63))
                t += 3
            continue
        if c == 0x6E:
            c = np.uint8(10)
        elif c == 0x74:
            c = np.uint8(9)
        elif c == 0x72:
            c = np.uint8(13)
        elif c == 0x62:
            c = np.uint8(8)
        elif c == 0x66:
            c = np.uint8(12)
        elif c != _QUOTE and c != _BACKSLASH and c != 0x2F:
            return np.int64(-1)
        store_u8(t, c)
        t += 1
    return np.int64(t - target)


@njit
def _literal_end(p, end):  # type: ignore[no-untyped-def]
    """After a number, true, false or null: (the address, what it is: 1 a number, 2 true or false, 3 null); 0: odd."""
    begin = p
    while p < end and load_u8(p) != _COMMA and load_u8(p) != _CLOSE:
        p += 1
        if p - begin > 20:
            return np.int64(0), 0
    size = p - begin
    good, _ = read_number(begin, size)
    if good:
        return p, 1
    first = load_u8(begin) if size else np.uint8(0)
    if (size == 4 and load_i32(begin) == 0x74727565) or (
        size == 5 and first == 0x66 and load_i32(begin + 1) == 0x616C7365
    ):
        return p, 2
    if size == 4 and load_i32(begin) == 0x6E756C6C:
        return p, 3
    return np.int64(0), 0


@njit
def _read_ext(header, table, p, end, are_letters, scratch, scratch_end):  # type: ignore[no-untyped-def]
    """Read the object of fields after its brace; returns the address after it, 0 if it is odd."""
    if p < end and load_u8(p) == _CLOSE:
        return p + 1
    while p < end:
        if load_u8(p) != _QUOTE:
            return np.int64(0)
        name = p + 1
        if p + 3 < end and load_u8(p + 2) == _QUOTE and load_u8(name) != _QUOTE and load_u8(name) != _BACKSLASH:
            q, escaped = p + 2, False  # the names of SEND_MESSAGE_V2 are letters
        else:
            q, escaped = _string_end(name, end)
        if q == 0 or escaped or q + 2 >= end or load_u8(q + 1) != _COLON:
            return np.int64(0)
        field = field_of(table, name, q - name, are_letters) if q > name else np.int64(-1)
        p = q + 2
        if load_u8(p) == _QUOTE:
            value = p + 1
            q, escaped = _string_end(value, end)
            if q == 0 or (escaped and field != F_PROPERTIES):
                return np.int64(0)
            size = q - value
            p = q + 1
            if escaped:
                size = unescape(value, q, scratch, scratch_end)
                if size < 0:
                    return np.int64(0)
                value = scratch
            if field >= 0:
                set_field(header, field, value, size)
        else:
            value = p
            p, kind = _literal_end(p, end)
            if p == 0:
                return np.int64(0)
            if field >= 0:
                set_field(header, field, value, np.int64(ABSENT) if kind == 3 else p - value)
        if p >= end:
            return np.int64(0)
        c = load_u8(p)
        p += 1
        if c == _CLOSE:
            return p
        if c != _COMMA:
            return np.int64(0)
    return np.int64(0)


@njit
def read_json(header, table, p, end, scratch, scratch_end):  # type: ignore[no-untyped-def]
    """Read the header in [p, end); False if it is odd. Escaped properties are written to the scratch."""
    store_i64_native(header + H_OPAQUE, 0)
    store_i64_native(header + H_FLAG, 0)
    store_i64_native(header + H_VERSION, 0)
    # {"code": begins the header of every client.
    if not starts_with(p, end, _CODE_START, 8):
        return False
    p += 8
    value = p
    p, kind = _literal_end(p, end)
    if p == 0 or kind != 1 or p >= end:
        return False
    _, code = read_number(value, p - value)
    store_i64_native(header + H_CODE, code)
    are_letters, has_fields = has_letters(code), False
    while p < end and load_u8(p) == _COMMA:
        p += 1
        if p >= end or load_u8(p) != _QUOTE:
            return False
        name = p + 1
        q, escaped = _string_end(name, end)
        if q == 0 or escaped or q + 2 >= end or load_u8(q + 1) != _COLON:
            return False
        size = q - name
        p = q + 2
        c = load_u8(p)
        if c == _OPEN:
            if has_fields or size != 9 or not starts_with(name, q, _EXT_FIELDS, 8) or load_u8(name + 8) != 0x73:
                return False  # of two objects the last one counts, and not the fields of both
            has_fields = True
            p = _read_ext(header, table, p + 1, end, are_letters, scratch, scratch_end)
            if p == 0:
                return False
        elif c == _QUOTE:
            q, escaped = _string_end(p + 1, end)
            if q == 0 or escaped or (size == 9 and load_u8(name) == 0x65):  # extFields must be an object
                return False
            if size <= 7 and load_u8(name) != 0x72 and load_u8(name) != 0x6C:  # a number as text, but remark, language
                return False
            p = q + 1
        else:
            value = p
            p, kind = _literal_end(p, end)
            if p == 0:
                return False
            if size == 9 or (size == 4 and load_u8(name) == 0x63):  # extFields, or code again
                return False
            is_opaque = size == 6 and load_i32(name) == _OPAQ
            is_flag = size == 4 and load_i32(name) == _FLAG
            if is_opaque or is_flag or size == _VERSION_SIZE:
                _, number = read_number(value, p - value)
                if kind != 1 or not is_int32(number):
                    return False
                if is_opaque:
                    store_i64_native(header + H_OPAQUE, number)
                elif is_flag:
                    store_i64_native(header + H_FLAG, number)
                elif load_i32(name) == _VERS:
                    store_i64_native(header + H_VERSION, number)
    if p >= end or load_u8(p) != _CLOSE:
        return False
    return p + 1 == end or (p + 2 == end and load_u8(p + 1) == 10)  # C++ ends its JSON with a line break
