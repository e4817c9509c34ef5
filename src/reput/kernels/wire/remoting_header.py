"""Words of a remoting frame's header, as kernels read it: in the ROCKETMQ form here, in the JSON form by `json_header`.

An odd header is left to `reput.remoting`: it is no plain instance of its form (docs/formats/remoting.md). It has blanks
between the tokens of JSON, escapes where none are needed, nested values, or numbers that are none. Whatever a kernel
takes, `decode_command` reads as the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.java import INT32_MAX, INT32_MIN
from reput.formats.remoting import (
    BINARY_HEAD,
    BINARY_HEAD_POSITIONS,
    FIELDS_LENGTH_SIZE,
    NAME_LENGTH_SIZE,
    SEND_BATCH_MESSAGE,
    SEND_FIELDS,
    SEND_LETTERS,
    SEND_MESSAGE_V2,
    VALUE_LENGTH_SIZE,
)
from reput.kernels.machine.memory import (
    equal_bytes,
    load_i16,
    load_i32,
    load_i64_native,
    load_u8,
    store_i64_native,
)

#: Fields of a send that a header has: the names of SEND_MESSAGE_V2 are letters, `a` is field 0.
(
    F_PRODUCER_GROUP, F_TOPIC, F_DEFAULT_TOPIC, F_DEFAULT_TOPIC_QUEUE_NUMS, F_QUEUE_ID, F_SYS_FLAG, F_BORN_TIMESTAMP,
    F_FLAG, F_PROPERTIES, F_RECONSUME_TIMES, F_UNIT_MODE, F_MAX_RECONSUME_TIMES, F_BATCH,
) = range(13)  # fmt: skip
FIELDS = 13
#: The header's words, int64 at an address. First four numbers, then address and size of each field.
H_CODE, H_OPAQUE, H_FLAG, H_VERSION, H_FIELDS = 0, 8, 16, 24, 32
HEADER_WORDS = 4 + 2 * FIELDS
ABSENT = -1

_MINUS = 0x2D
_INT32_MIN, _INT32_MAX = INT32_MIN, INT32_MAX
_FIRST_LETTER = ord(SEND_LETTERS[0])
_MOST_DIGITS = 18
#: Of a binary header: where its numbers stand, and the bytes before and after its remark.
_AT_CODE, _AT_VERSION, _AT_OPAQUE, _AT_FLAG, _AT_REMARK = (
    BINARY_HEAD_POSITIONS[name] for name in ("code", "version", "opaque", "flag", "remark")
)
_HEAD_SIZE = BINARY_HEAD.size


def names_table(names: Sequence[str]) -> npt.NDArray[np.uint8]:
    """The names of up to `FIELDS` fields, in the order of their numbers, for `field_of`."""
    entries = (bytes([len(name), field]) + name.encode() for field, name in enumerate(names))
    return np.frombuffer(b"".join(entries) + b"\0", np.uint8)


#: The names of SEND_MESSAGE.
V1_TABLE = names_table(SEND_FIELDS[:FIELDS])


@njit
def field_of(table, name, size, are_letters):  # type: ignore[no-untyped-def]
    """The field of a name of a table; -1 for another name. Names may be the letters of SEND_MESSAGE_V2."""
    if are_letters:
        letter = np.int64(load_u8(name)) - _FIRST_LETTER
        return letter if size == 1 and 0 <= letter < FIELDS else -1
    p = table
    while True:
        length = np.int64(load_u8(p))
        if length == 0:
            return -1
        if length == size and equal_bytes(p + 2, name, size):
            return np.int64(load_u8(p + 1))
        p += 2 + length


@njit
def has_letters(code):  # type: ignore[no-untyped-def]
    """Whether the names of a request's fields are letters."""
    return code in (SEND_MESSAGE_V2, SEND_BATCH_MESSAGE)


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
    """Size of a field's text; -1 if the header lacks it."""
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
    """(whether it is a number, its value) of a field; `otherwise` if the header lacks it."""
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


@njit
def read_binary(header, table, p, end):  # type: ignore[no-untyped-def]
    """Read the header in [p, end); False if it is odd."""
    if p + _HEAD_SIZE + FIELDS_LENGTH_SIZE > end:
        return False
    code = np.int64(load_i16(p + _AT_CODE)) & 0xFFFF
    store_i64_native(header + H_CODE, code)
    store_i64_native(header + H_OPAQUE, np.int64(load_i32(p + _AT_OPAQUE)))
    store_i64_native(header + H_FLAG, np.int64(load_i32(p + _AT_FLAG)))
    store_i64_native(header + H_VERSION, np.int64(load_i16(p + _AT_VERSION)))
    remark = np.int64(load_i32(p + _AT_REMARK))
    if remark < 0 or p + _HEAD_SIZE + FIELDS_LENGTH_SIZE + remark > end:
        return False
    p += _HEAD_SIZE + remark
    ext = np.int64(load_i32(p))
    p += FIELDS_LENGTH_SIZE
    if ext < 0 or p + ext > end:
        return False
    end = p + ext
    while p < end:
        if p + NAME_LENGTH_SIZE > end:
            return False
        name_size = np.int64(load_i16(p))
        name = p + NAME_LENGTH_SIZE
        p = name + name_size
        if name_size <= 0 or p + VALUE_LENGTH_SIZE > end:
            return False
        size = np.int64(load_i32(p))
        p += VALUE_LENGTH_SIZE
        if size <= 0 or p + size > end:
            return False
        field = field_of(table, name, name_size, has_letters(code))
        if field >= 0:
            set_field(header, field, p, size)
        p += size
    return True
