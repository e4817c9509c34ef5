"""Frames of pulls -> their form and three numbers; records of a pull in the mapped log -> the frame of its answer.

The pulls of a consumer from one queue differ in queueOffset, commitOffset and opaque. What is left of a header without
the digits of these three is its form. A kernel says only what a form's text is. Python proves once, with its own
decoder, which number is which, and knows what the form asks for (`remoting.pull_frames`, `broker.pulls.pull_frames`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numba import njit

from reput.formats.remoting import FRAME_HEAD_SIZE, LENGTH_SIZE
from reput.kernels.machine.decimals import put_decimal, read_decimal
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    copy,
    copy_short,
    load_i32,
    load_i64,
    load_i64_native,
    load_u8,
    store_i32,
    store_u8,
)
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.pulled_records import copy_segments

#: The longest header that is looked at.
_LONGEST_HEADER = 1024
#: The number of texts of a form, around its numbers, and of texts of an answer.
NUMBERS, ANSWER_TEXTS = 3, 5
#: Bytes of an answer beside its records: its texts are some 250 bytes.
ANSWER_ROOM = 1024
#: The byte in a form in place of a number: no header of JSON has it.
MARK = b"\0"
#: What stands before one of the numbers, as text and as a number: names end with it.
_OF_TEXT, _OF_NUMBER = (int.from_bytes(text, "big", signed=True) for text in (b'ffset":"', b'opaque":'))
_NAME_SIZE, _BLANK, _BACKSLASH = 8, 0x20, 0x5C

#: The words that Python and the kernel share: results, then the address of the form's memory.
_END, _FIRST_NUMBER, _FORM = 0, 8, 8 + 8 * NUMBERS
_WORDS = 2 + NUMBERS


@njit
def _is_named(p):  # type: ignore[no-untyped-def]
    """Whether one of the names stands before an address."""
    name = load_i64(p - _NAME_SIZE)
    return name in (_OF_TEXT, _OF_NUMBER)


@kernel("int64(int64, int64, int64)", short=True)
def read_pull(words, begin, end):  # type: ignore[no-untyped-def]
    """Read the next request, if its header is JSON, without escapes, and has three numbers in the places of a pull's.

    Args:
        words: `PullReader`'s.
        begin, end: Addresses of what was received.

    Returns:
        int64, the size of the form, which was written; 0 of another request, or of one that is not whole.
    """
    if end - begin < FRAME_HEAD_SIZE:
        return np.int64(0)
    length, size = np.int64(load_i32(begin)), np.int64(load_i32(begin + LENGTH_SIZE))
    frame_end = begin + LENGTH_SIZE + length
    if size < 0 or size > _LONGEST_HEADER or length != size + LENGTH_SIZE or frame_end > end:
        return np.int64(0)
    p = text = begin + FRAME_HEAD_SIZE
    target, found = get(words, _FORM), 0
    while p < frame_end:
        c = load_u8(p)
        if c < _BLANK or c == _BACKSLASH:
            return np.int64(0)
        if not 0x30 <= c <= 0x39 or p - text < _NAME_SIZE or not _is_named(p):
            p += 1
            continue
        value, digits = read_decimal(p, frame_end)
        if digits == 0 or found == NUMBERS:
            return np.int64(0)
        copy(target, text, p - text)
        target += p - text
        store_u8(target, 0)
        target += 1
        put(words, _FIRST_NUMBER + 8 * found, value)
        p += digits
        text = p
        found += 1
    if found != NUMBERS:
        return np.int64(0)
    copy(target, text, frame_end - text)
    put(words, _END, frame_end)
    return target + (frame_end - text) - get(words, _FORM)


class PullReader:
    """Memory of `read_pull` for one loop."""

    def __init__(self) -> None:
        self._array, form = np.zeros(_WORDS, np.int64), np.zeros(_LONGEST_HEADER, np.uint8)
        self._address: int = self._array.ctypes.data
        self._array[_FORM // 8] = form.ctypes.data
        self._words, self._form = self._array.data, form.data  # faster to index from Python

    def read(self, begin: int, end: int) -> bytes | None:
        """The form of the next request at the addresses [begin, end), with `MARK` in place of its numbers.

        None if it has none, or is not whole.
        """
        size = _kernels.read_pull(self._address, begin, end)
        return bytes(self._form[:size]) if size else None

    @property
    def end(self) -> int:
        """Address after the request that was read last."""
        return self._words[_END // 8]

    def number(self, at: int) -> int:
        """One of its three numbers."""
        return self._words[_FIRST_NUMBER // 8 + at]


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)", short=True)
def write_found(texts, following, low, high, opaque, segments, count, target):  # type: ignore[no-untyped-def]
    """Write the frame of an answer with messages.

    Args:
        texts: `AnswerTexts.address`.
        following, low, high: The next offset, and the queue's first and last.
        opaque: Of the request.
        segments: Address of `count` segments with its records, as of `find_segments`.
        target: Address of room for `ANSWER_ROOM` bytes and the records.

    Returns:
        int64, the size of the frame.
    """
    text = texts + 8 * ANSWER_TEXTS
    t = target + FRAME_HEAD_SIZE
    for i in range(ANSWER_TEXTS):
        size = load_i64_native(texts + 8 * i)
        copy_short(t, text, size)
        text += size
        t += size
        if i == 0:
            t = put_decimal(t, following)
        elif i == 1:
            t = put_decimal(t, low)
        elif i == 2:
            t = put_decimal(t, high)
        elif i == 3:
            t = put_decimal(t, opaque)
    header = t - target - FRAME_HEAD_SIZE
    t = copy_segments(segments, count, t)
    store_i32(target, t - target - LENGTH_SIZE)
    store_i32(target + LENGTH_SIZE, header)
    return t - target


class AnswerTexts:
    """Texts that the answers to pulls of one form have in common, for `write_found`.

    Args:
        texts: The header around its numbers.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        sizes = np.array([len(text) for text in texts], np.int64)
        assert len(texts) == ANSWER_TEXTS
        assert sizes.sum() <= ANSWER_ROOM // 2
        self._memory = np.frombuffer(sizes.tobytes() + b"".join(texts), np.uint8)
        self.address: int = self._memory.ctypes.data


_kernels = sys.modules[__name__]
