"""Headers of remoting frames, read by kernels: the forms that clients write; what is odd is left to `reput.remoting`.

A header is odd where it is no plain instance of its form (docs/formats/remoting.md): blanks between the tokens of JSON,
escapes where none are needed, nested values, numbers that are none. Whatever a kernel takes, `decode_command` reads as
the same values.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.kernels.machine.memory import (
    equal_bytes,
    load_i16,
    load_i32,
    load_i64_native,
    load_u8,
    load_u64_native,
    store_i64_native,
    store_u8,
    trailing_zeros,
)

#: Fields of a send that a header has: the names of SEND_MESSAGE_V2 are letters, `a` is field 0.
(
    F_PRODUCER_GROUP, F_TOPIC, F_DEFAULT_TOPIC, F_DEFAULT_TOPIC_QUEUE_NUMS, F_QUEUE_ID, F_SYS_FLAG, F_BORN_TIMESTAMP,
    F_FLAG, F_PROPERTIES, F_RECONSUME_TIMES, F_UNIT_MODE, F_MAX_RECONSUME_TIMES, F_BATCH,
) = range(13)  # fmt: skip
FIELDS = 13
#: The header's block: int64 words at an address. First code, opaque and flag, then address and size of each field.
H_CODE, H_OPAQUE, H_FLAG, H_FIELDS = 0, 8, 16, 24
HEADER_WORDS = 3 + 2 * FIELDS
ABSENT = -1

_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE, _MINUS = 0x22, 0x5C, 0x3A, 0x2C, 0x7B, 0x7D, 0x2D
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES = _ONES * np.uint64(_QUOTE), _ONES * np.uint64(_BACKSLASH)
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_MOST_DIGITS = 18


def _word(text: bytes) -> np.int64:
    """Eight bytes as one number, to compare names with."""
    return np.int64(int.from_bytes(text.ljust(8, b"\0")[:8], "big", signed=True))


_OPAQ, _FLAG, _VERSION_SIZE = 0x6F706171, 0x666C6167, len(b"version")
_CODE_START, _EXT_FIELDS = _word(b'{"code":'), _word(b"extField")


@njit
def starts_with(p, end, word, size):  # type: ignore[no-untyped-def]
    """Whether the next `size` (1 to 8) bytes are those of a `_word`; they may end the buffer."""
    if end - p < size:
        return False
    for i in range(size):  # noqa: SIM110 (a kernel has no generators)
        if np.int64(load_u8(p + i)) != (word >> np.int64(56 - 8 * i)) & np.int64(0xFF):
            return False
    return True


_V1_NAMES = (
    (b"producerGroup", F_PRODUCER_GROUP), (b"topic", F_TOPIC), (b"defaultTopic", F_DEFAULT_TOPIC),
    (b"defaultTopicQueueNums", F_DEFAULT_TOPIC_QUEUE_NUMS), (b"queueId", F_QUEUE_ID), (b"sysFlag", F_SYS_FLAG),
    (b"bornTimestamp", F_BORN_TIMESTAMP), (b"flag", F_FLAG), (b"properties", F_PROPERTIES),
    (b"reconsumeTimes", F_RECONSUME_TIMES), (b"unitMode", F_UNIT_MODE), (b"maxReconsumeTimes", F_MAX_RECONSUME_TIMES),
    (b"batch", F_BATCH),
)  # fmt: skip
#: The names of SEND_MESSAGE: each its size, its field, and its bytes, for the kernels.
V1_TABLE = np.frombuffer(b"".join(bytes([len(name), field]) + name for name, field in _V1_NAMES), np.uint8).copy()
_V1_COUNT = len(_V1_NAMES)


@njit
def _field_of(table, name, size, is_v2):  # type: ignore[no-untyped-def]
    """The field of a name; -1 for a name that no send reads."""
    if is_v2:
        letter = np.int64(load_u8(name)) - 97
        return letter if size == 1 and 0 <= letter < FIELDS else -1
    p = table
    for _ in range(_V1_COUNT):
        length = np.int64(load_u8(p))
        if length == size and equal_bytes(p + 2, name, size):
            return np.int64(load_u8(p + 1))
        p += 2 + length
    return -1


@njit
def clear(header):  # type: ignore[no-untyped-def]
    """Forget all fields."""
    for field in range(FIELDS):
        store_i64_native(header + H_FIELDS + 16 * field + 8, ABSENT)


@njit
def set_field(header, field, address, size):  # type: ignore[no-untyped-def]
    """Note where a field's text is."""
    store_i64_native(header + H_FIELDS + 16 * field, address)
    store_i64_native(header + H_FIELDS + 16 * field + 8, size)


@njit
def field_address(header, field):  # type: ignore[no-untyped-def]
    """Address of a field's text."""
    return load_i64_native(header + H_FIELDS + 16 * field)


@njit
def field_size(header, field):  # type: ignore[no-untyped-def]
    """Size of a field's text; -1 where the header lacks it."""
    return load_i64_native(header + H_FIELDS + 16 * field + 8)


@njit
def read_number(p, size):  # type: ignore[no-untyped-def]
    """(whether it is one, its value) of decimal text as clients write it: up to 18 digits, no zeros in front."""
    negative = size > 0 and load_u8(p) == _MINUS
    i = 1 if negative else 0
    if size - i <= 0 or size - i > _MOST_DIGITS or (load_u8(p + i) == 0x30 and size > 1):
        return False, np.int64(0)
    value = np.int64(0)
    while i < size:
        digit = np.int64(load_u8(p + i)) - 48
        if digit < 0 or digit > 9:
            return False, np.int64(0)
        value = value * 10 + digit
        i += 1
    return True, -value if negative else value


@njit
def number_field(header, field, otherwise):  # type: ignore[no-untyped-def]
    """(whether it is a number, its value) of a field; `otherwise` where the header lacks it."""
    size = field_size(header, field)
    if size < 0:
        return True, np.int64(otherwise)
    return read_number(field_address(header, field), size)


@njit
def is_int32(value):  # type: ignore[no-untyped-def]
    """Whether a Java int holds the value."""
    return _INT32_MIN <= value <= _INT32_MAX


@njit
def is_utf8(p, size):  # type: ignore[no-untyped-def]
    """Whether bytes are UTF-8 as Python decodes it: no surrogates, no longer forms than needed."""
    end = p + size
    while p < end:
        if end - p >= 8 and load_i64_native(p) & np.int64(-0x7F7F7F7F7F7F7F80) == 0:
            p += 8
            continue
        a = np.int64(load_u8(p))
        if a < 0x80:
            p += 1
            continue
        more = 1 if 0xC2 <= a < 0xE0 else 2 if 0xE0 <= a < 0xF0 else 3 if 0xF0 <= a < 0xF5 else 0
        if more == 0 or end - p <= more:
            return False
        b = np.int64(load_u8(p + 1))
        low = 0xA0 if a == 0xE0 else 0x90 if a == 0xF0 else 0x80
        high = 0x9F if a == 0xED else 0x8F if a == 0xF4 else 0xBF
        if b < low or b > high:
            return False
        for i in range(2, more + 1):
            if np.int64(load_u8(p + i)) & 0xC0 != 0x80:
                return False
        p += 1 + more
    return True


# -- the ROCKETMQ form


@njit
def read_binary(header, table, p, end):  # type: ignore[no-untyped-def]
    """Read the header in [p, end); False where it is odd."""
    if p + 21 > end:
        return False
    code = np.int64(load_i16(p)) & 0xFFFF
    store_i64_native(header + H_CODE, code)
    store_i64_native(header + H_OPAQUE, np.int64(load_i32(p + 5)))
    store_i64_native(header + H_FLAG, np.int64(load_i32(p + 9)))
    remark = np.int64(load_i32(p + 13))
    if remark < 0 or p + 21 + remark > end:
        return False
    p += 17 + remark
    ext = np.int64(load_i32(p))
    p += 4
    if ext < 0 or p + ext > end:
        return False
    end = p + ext
    while p < end:
        if p + 2 > end:
            return False
        name_size = np.int64(load_i16(p))
        name = p + 2
        p = name + name_size
        if name_size <= 0 or p + 4 > end:
            return False
        size = np.int64(load_i32(p))
        p += 4
        if size <= 0 or p + size > end:
            return False
        field = _field_of(table, name, name_size, code != 10)
        if field >= 0:
            set_field(header, field, p, size)
        p += size
    return True


# -- the JSON form


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
    """Write a JSON string as UTF-8 to `target`; returns its size, -1 where it is odd: surrogates, or too long."""
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
def _read_ext(header, table, p, end, is_v2, scratch, scratch_end):  # type: ignore[no-untyped-def]
    """Read the object of fields after its brace; returns the address after it, 0 where it is odd."""
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
        field = _field_of(table, name, q - name, is_v2) if q > name else np.int64(-1)
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
def _find_code(p, end):  # type: ignore[no-untyped-def]
    """Whether a header is of SEND_MESSAGE, whose fields have long names: the code comes first in all clients' JSON."""
    # {"code":10,
    return end - p > 11 and load_u8(p + 8) == 0x31 and load_u8(p + 9) == 0x30 and load_u8(p + 10) == _COMMA


@njit
def read_json(header, table, p, end, scratch, scratch_end):  # type: ignore[no-untyped-def]
    """Read the header in [p, end); False where it is odd. Escaped properties are written to the scratch."""
    store_i64_native(header + H_OPAQUE, 0)
    store_i64_native(header + H_FLAG, 0)
    # {"code": begins the header of every client.
    if not starts_with(p, end, _CODE_START, 8):
        return False
    is_v2 = not _find_code(p, end)
    p += 8
    value = p
    p, kind = _literal_end(p, end)
    if p == 0 or kind != 1 or p >= end:
        return False
    _, code = read_number(value, p - value)
    store_i64_native(header + H_CODE, code)
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
            if size != 9 or not starts_with(name, q, _EXT_FIELDS, 8) or load_u8(name + 8) != 0x73:
                return False
            p = _read_ext(header, table, p + 1, end, is_v2, scratch, scratch_end)
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
    if p >= end or load_u8(p) != _CLOSE:
        return False
    return p + 1 == end or (p + 2 == end and load_u8(p + 1) == 10)  # C++ ends its JSON with a line break
