"""Records that differ in some numbers alone -> the next one of them, from its numbers, where the log has room.

Check points and acks are such records: texts, and numbers in decimal between them. What their texts are nobody says
here: a form encodes two records in the plain way, with numbers of its own, and sees where these stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.record_layout import (
    BODY_CRC,
    BORN_TIMESTAMP,
    PHYSICAL_OFFSET,
    QUEUE_OFFSET,
    STORE_TIMESTAMP,
    unpack_record,
)
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.decimals import MOST_DIGITS, decimal_digits, put_decimal
from reput.kernels.machine.memory import copy_short, store_i16, store_i32, store_i64
from reput.kernels.machine.shared_words import get

#: A form's words: of the record with numbers of `MOST_DIGITS` digits, and addresses of its texts, of where these end,
#: and of which number follows each.
(
    _SIZE, _BODY, _BODY_SIZE, _PROPERTIES, _PROPERTIES_SIZE,
    _HOLES, _BODY_HOLES, _TEXTS, _ENDS, _NUMBERS,
) = range(0, 10 * 8, 8)  # fmt: skip
_WORDS = 10
#: The first of the numbers that a form is made with; those of the second record begin elsewhere.
_FIRST_MARKS = 10 ** (MOST_DIGITS - 1), 3 * 10 ** (MOST_DIGITS - 1)


@njit
def formed_size(form, numbers):  # type: ignore[no-untyped-def]
    """Bytes of the record with some numbers, int64 at the address `numbers`: none negative, or of too many digits."""
    size = get(form, _SIZE)
    for hole in range(get(form, _HOLES)):
        size -= MOST_DIGITS - decimal_digits(get(numbers, 8 * get(get(form, _NUMBERS), 8 * hole)))
    return size


@njit
def put_formed(form, numbers, t, queue_offset, log_offset, born, stored):  # type: ignore[no-untyped-def]
    """Write the record with some numbers, as of `formed_size`, at the address `t`; returns the address after it."""
    ends, texts, holes = get(form, _ENDS), get(form, _TEXTS), get(form, _HOLES)
    begin, p, less, body_less = np.int64(0), t, np.int64(0), np.int64(0)
    for hole in range(holes + 1):
        if hole == get(form, _BODY_HOLES):
            body_less = less
        size = get(ends, 8 * hole) - begin
        copy_short(p, texts + begin, size)
        begin += size
        p += size
        if hole < holes:
            end = put_decimal(p, get(numbers, 8 * get(get(form, _NUMBERS), 8 * hole)))
            less += MOST_DIGITS - (end - p)
            p = end
    body, size = t + get(form, _BODY), get(form, _BODY_SIZE) - body_less
    store_i32(t + BODY_CRC, body_crc(body, size))
    store_i64(t + QUEUE_OFFSET, queue_offset)
    store_i64(t + PHYSICAL_OFFSET, log_offset)
    store_i64(t + BORN_TIMESTAMP, born)
    store_i64(t + STORE_TIMESTAMP, stored)
    store_i32(body - 4, size)
    store_i16(t + get(form, _PROPERTIES) - body_less - 2, get(form, _PROPERTIES_SIZE) - (less - body_less))
    store_i32(t, p - t)  # last: a process that is killed in between leaves no half of a record
    return p


class RecordForm:
    """Common parts of records that differ in numbers of their bodies and properties alone.

    Args:
        encode: Encodes the record of some numbers, with hosts of 8 bytes; called twice.
        count: How many numbers they are.

    Raises:
        ValueError: The two records differ in something else, or a name in them looks like one of the numbers.

    Attributes:
        address: For kernels; good as long as this lives.
    """

    def __init__(self, encode: Callable[[Sequence[int]], bytes], count: int) -> None:
        marks, other_marks = (range(first, first + count) for first in _FIRST_MARKS)
        record, other = encode(marks), encode(other_marks)
        _, (body, body_end, _, _, properties, end) = unpack_record(record, 0)
        texts, numbers, body_holes = _split(record, body, body_end, marks)
        if (texts, numbers, body_holes) != _split(other, body, body_end, other_marks):
            raise ValueError("the records differ in more than their numbers")
        texts[0] = bytes(4) + record[4:body] + texts[0]
        self._texts = np.frombuffer(b"".join(texts), np.uint8)
        self._ends = np.array([*accumulate(map(len, texts))], np.int64)
        self._numbers = np.array([*numbers, 0], np.int64)
        self._words: npt.NDArray[np.int64] = np.array(
            [
                len(record), body, body_end - body, properties, end - properties, len(numbers), body_holes,
                self._texts.ctypes.data, self._ends.ctypes.data, self._numbers.ctypes.data,
            ],
            np.int64,
        )  # fmt: skip
        assert self._words.size == _WORDS
        self.address: int = self._words.ctypes.data


def _split(record: bytes, body: int, body_end: int, marks: range) -> tuple[list[bytes], list[int], int]:
    """Texts around the numbers of a record behind its head, which these are, and how many are in the body."""
    found = [*re.finditer(b"|".join(b"%d" % mark for mark in marks), record[body:])]
    begins = [0, *(one.end() for one in found)]
    ends = [*(one.start() for one in found), len(record) - body]
    texts = [record[body + begin : body + end] for begin, end in zip(begins, ends, strict=True)]
    return texts, [int(one[0]) - marks[0] for one in found], sum(one.end() <= body_end - body for one in found)
