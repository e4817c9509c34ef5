"""Frames that ack messages of one pop -> records in the log and answers, all of one read in one call.

The acks with one handle differ in three numbers: the queue offset of the message, the handle's last word, which nobody
reads, and opaque. What they become differs in the offset alone, which stands twice in a record. So the first ack of a
handle is decoded, and its record encoded, in the plain way (`broker.pop.ack_frames`). `take_acks` compares the
next frames with it, and writes the same record and the same answer with other numbers. The first frame that differs
in anything else stops it *before* it changes anything.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.java import INT32_MAX
from reput.formats.record_layout import (
    BODY_CRC,
    BORN_TIMESTAMP,
    PHYSICAL_OFFSET,
    QUEUE_OFFSET,
    STORE_TIMESTAMP,
    unpack_record,
)
from reput.formats.remoting import FRAME_HEAD_SIZE, LENGTH_SIZE
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.decimals import MOST_DIGITS, decimal_digits, put_decimal, read_decimal
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    copy_short,
    equal_bytes,
    load_i32,
    load_i64_native,
    store_i16,
    store_i32,
    store_i64,
    store_i64_native,
)
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.log_room import ROOM_WORDS, S_LOG, S_LOG_END, S_LOG_OFFSET, S_NEXT_OFFSETS, S_NOW, LogRoom

#: The longest header that is looked at.
_LONGEST_HEADER = 1024
#: The offset in the record of which a form is made: as many digits as are read.
MARK = 10 ** (MOST_DIGITS - 1)

#: Words after `log_room`'s, by their positions in bytes.
(
    _AT, _NEEDED, _ANSWERED,  # results: address of the next frame, bytes for which the log has no room, of answers
    _BORN, _LOW, _HIGH, _MOST,  # the records' other time, bounds of offsets, most acks of a call
    _OFFSET_NUMBER, _OPAQUE_NUMBER,  # which of a frame's numbers is the offset, and which opaque
    _QUEUE, _SIZE, _BODY, _BODY_SIZE, _PROPERTIES, _PROPERTIES_SIZE,  # the record with the offset `MARK`
    _ANSWERS, _TEXTS, _ENDS,
) = range(ROOM_WORDS * 8, 23 * 8, 8)  # fmt: skip
_WORDS = 23
#: The texts: of a frame around its numbers, of a record around its offsets, of an answer around opaque.
_RECORD_TEXT, _ANSWER_TEXT = 4, 7
_NUMBERS, _OPAQUE_DIGITS = 3, 10


@njit
def _put_text(form, t, number):  # type: ignore[no-untyped-def]
    """Write one of the texts; returns the address after it."""
    ends = get(form, _ENDS)
    begin, end = get(ends, 8 * number), get(ends, 8 * number + 8)
    copy_short(t, get(form, _TEXTS) + begin, end - begin)
    return t + end - begin


@njit
def _read(form, p, end):  # type: ignore[no-untyped-def]
    """(Offset, opaque) of a header that differs from the form in its numbers alone; (0, -1) of any other."""
    ends, texts = get(form, _ENDS), get(form, _TEXTS)
    offset_number, opaque_number = get(form, _OFFSET_NUMBER), get(form, _OPAQUE_NUMBER)
    offset, opaque = np.int64(0), np.int64(-1)
    for number in range(_NUMBERS + 1):
        begin = get(ends, 8 * number)
        size = get(ends, 8 * number + 8) - begin
        if end - p < size or not equal_bytes(p, texts + begin, size):
            return np.int64(0), np.int64(-1)
        p += size
        if number < _NUMBERS:
            value, digits = read_decimal(p, end)
            if digits == 0:
                return np.int64(0), np.int64(-1)
            p += digits
            if number == offset_number:
                offset = value
            elif number == opaque_number:
                opaque = value
    if p != end or opaque > INT32_MAX:
        return np.int64(0), np.int64(-1)
    return offset, opaque


@njit
def _put_record(form, t, offset, less, queue_offset):  # type: ignore[no-untyped-def]
    """Write the record of an offset with `less` digits less than `MARK`; returns the address after it."""
    p = put_decimal(_put_text(form, t, _RECORD_TEXT), offset)
    p = put_decimal(_put_text(form, p, _RECORD_TEXT + 1), offset)
    p = _put_text(form, p, _RECORD_TEXT + 2)
    body, size = t + get(form, _BODY), get(form, _BODY_SIZE) - less
    store_i32(t + BODY_CRC, body_crc(body, size))
    store_i64(t + QUEUE_OFFSET, queue_offset)
    store_i64(t + PHYSICAL_OFFSET, get(form, S_LOG_OFFSET) + (t - get(form, S_LOG)))
    store_i64(t + BORN_TIMESTAMP, get(form, _BORN))
    store_i64(t + STORE_TIMESTAMP, get(form, S_NOW))
    store_i32(body - 4, size)
    store_i16(t + get(form, _PROPERTIES) - less - 2, get(form, _PROPERTIES_SIZE) - less)
    store_i32(t, p - t)  # last: a process that is killed in between leaves no half of a record
    return p


@njit
def _put_answer(form, t, opaque):  # type: ignore[no-untyped-def]
    """Write the answer to an ack that was taken; returns the address after it."""
    p = put_decimal(_put_text(form, t + FRAME_HEAD_SIZE, _ANSWER_TEXT), opaque)
    p = _put_text(form, p, _ANSWER_TEXT + 1)
    store_i32(t, p - t - LENGTH_SIZE)
    store_i32(t + LENGTH_SIZE, p - t - FRAME_HEAD_SIZE)
    return p


@kernel("int64(int64, int64, int64)", short=True)
def take_acks(form, begin, end):  # type: ignore[no-untyped-def]
    """Take the acks at the addresses [begin, end), as long as they are of the form and the log has room.

    Args:
        form: `AckForm.address`.
        begin, end: Addresses of what was received.

    Returns:
        int64, how many were taken; the words say where the next frame is.
    """
    p, target, taken = begin, get(form, S_LOG), np.int64(0)
    answer = get(form, _ANSWERS) + get(form, _ANSWERED)
    counter = get(form, S_NEXT_OFFSETS) + 8 * get(form, _QUEUE)
    queue_offset = load_i64_native(counter)
    put(form, _NEEDED, 0)
    while taken < get(form, _MOST) and end - p >= FRAME_HEAD_SIZE:
        length, header = np.int64(load_i32(p)), np.int64(load_i32(p + LENGTH_SIZE))
        frame_end = p + LENGTH_SIZE + length
        if header < 0 or header > _LONGEST_HEADER or length != header + LENGTH_SIZE or frame_end > end:
            break
        offset, opaque = _read(form, p + FRAME_HEAD_SIZE, frame_end)
        if opaque < 0 or offset < get(form, _LOW) or offset > get(form, _HIGH):
            break
        less = np.int64(MOST_DIGITS - decimal_digits(offset))
        size = get(form, _SIZE) - 2 * less
        if size > get(form, S_LOG_END) - target:
            put(form, _NEEDED, size)
            break
        target = _put_record(form, target, offset, less, queue_offset)
        queue_offset += 1
        answer = _put_answer(form, answer, opaque)
        taken += 1
        p = frame_end
    store_i64_native(counter, queue_offset)
    put(form, S_LOG_OFFSET, get(form, S_LOG_OFFSET) + target - get(form, S_LOG))
    put(form, S_LOG, target)
    put(form, _ANSWERED, answer - get(form, _ANSWERS))
    put(form, _AT, p)
    return taken


class AckForm:
    """Common parts of the acks with one handle, and of their records.

    Args:
        texts: Four, of a frame's header around its three numbers.
        numbers: Which of these is the offset, and which is opaque.
        record: Of an ack of the offset `MARK`, with hosts of 8 bytes.
        offsets_at: Where in the record the offset stands: in its body, and in its properties.
        queue: The number of the record's queue in the log's counters.
        answer: Two texts, of an answer's header around opaque.
        answers: uint8, memory for the answers of one call; forms may share it.

    Attributes:
        address: For the kernel; good as long as this lives.
    """

    def __init__(
        self,
        *,
        texts: tuple[bytes, ...],
        numbers: tuple[int, int],
        record: bytes,
        offsets_at: tuple[int, int],
        queue: int,
        answer: tuple[bytes, bytes],
        answers: npt.NDArray[np.uint8],
    ) -> None:
        first, second = offsets_at
        around = bytes(4) + record[4:first], record[first + MOST_DIGITS : second], record[second + MOST_DIGITS :]
        every = (*texts, *around, *answer)
        self._texts = np.frombuffer(b"".join(every), np.uint8)
        self._ends = np.cumsum([0, *map(len, every)], dtype=np.int64)
        self._answers = answers
        _, (body, body_end, _, _, properties, end) = unpack_record(record, 0)
        self._array: npt.NDArray[np.int64] = np.zeros(_WORDS, np.int64)
        self._words = self._array.data  # faster to index from Python
        self.address: int = self._array.ctypes.data
        for word, value in (
            (_MOST, answers.size // (FRAME_HEAD_SIZE + sum(map(len, answer)) + _OPAQUE_DIGITS)),
            (_OFFSET_NUMBER, numbers[0]), (_OPAQUE_NUMBER, numbers[1]), (_QUEUE, queue),
            (_SIZE, len(record)), (_BODY, body), (_BODY_SIZE, body_end - body),
            (_PROPERTIES, properties), (_PROPERTIES_SIZE, end - properties),
            (_ANSWERS, self._answers.ctypes.data), (_TEXTS, self._texts.ctypes.data), (_ENDS, self._ends.ctypes.data),
        ):  # fmt: skip
            self._words[word // 8] = value

    def begin(self, born_ms: int, offsets: tuple[int, int]) -> None:
        """Set when the records are born, and the bounds of offsets that the queue has, both included."""
        self._words[_BORN // 8] = born_ms
        self._words[_LOW // 8], self._words[_HIGH // 8] = offsets

    def take(self, begin: int, end: int, room: LogRoom) -> int:
        """Call the kernel with the addresses [begin, end) of what was received; returns how many acks it took."""
        room.put(self._words)
        taken: int = _kernels.take_acks(self.address, begin, end)
        return taken

    @property
    def at(self) -> int:
        """Address of the first frame that was not taken."""
        return self._words[_AT // 8]

    @property
    def needed(self) -> int:
        """Bytes of the next record, if the log has no room for it; else 0."""
        return self._words[_NEEDED // 8]

    @property
    def log_address(self) -> int:
        """Address after the last record."""
        return self._words[S_LOG // 8]

    def take_answers(self) -> bytes:
        """The answers of the calls since the last time."""
        size, self._words[_ANSWERED // 8] = self._words[_ANSWERED // 8], 0
        return bytes(self._answers[:size])


_kernels = sys.modules[__name__]
