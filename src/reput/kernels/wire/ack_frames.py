"""Frames that ack messages of one queue -> records in the log and answers, all of one read in one call.

The acks of a group from a queue differ in seven numbers: opaque, the queue offset of the message, and of the handle the
start offset, pop time, invisible time, revive queue, and the last word, which nobody reads. What they become differs in
numbers that follow from these. So the first ack of a queue is decoded, and its record encoded, in the plain way
(`broker.pop.ack_frames`). `take_acks` compares the next frames with it, and writes the same record and the same answer
with other numbers. The first frame that differs in anything else stops it *before* it changes anything.
"""

from __future__ import annotations

import sys
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.java import INT32_MAX
from reput.formats.remoting import FRAME_HEAD_SIZE, LENGTH_SIZE
from reput.kernels.machine.decimals import put_decimal, read_decimal
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import copy_short, equal_bytes, load_i32, load_i64_native, store_i32, store_i64_native
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.log_room import ROOM_WORDS, S_LOG, S_LOG_END, S_LOG_OFFSET, S_NEXT_OFFSETS, S_NOW, LogRoom
from reput.kernels.records.record_form import RecordForm, formed_size, put_formed

#: The longest header that is looked at.
_LONGEST_HEADER = 1024
#: The numbers of an ack that are read, and of its record those that follow from these; the last one is of no use.
_START, _POP_TIME, _INVISIBLE_TIME, _REVIVE_QID, _OFFSET, _OPAQUE, _DELIVER_MS, _OUT_MS, _SPARE = range(0, 9 * 8, 8)
#: Their number in a frame; and how many a record may be made of, without the last one.
_IN_FRAME, NUMBERS = 7, 8

#: Words after `log_room`'s, by their positions in bytes.
(
    _AT, _NEEDED, _ANSWERED,  # results: address of the next frame, bytes for which the log has no room, of answers
    _BORN, _LOW, _HIGH, _MOST,  # the records' other time, bounds of offsets, most acks of a call
    _REVIVE_QIDS, _FIRST_MS, _LAST_MS,  # revive queues, bounds of the times when the messages are visible again
    _QUEUE, _RECORD,  # the number of the records' queue, and their form
    _ANSWERS, _TEXTS, _ENDS, _ROLES, _NUMBERS,  # addresses, the last but one of where each number of a frame goes
) = range(ROOM_WORDS * 8, 22 * 8, 8)  # fmt: skip
_WORDS = 22
#: The texts: of a frame around its numbers, of an answer around opaque.
_ANSWER_TEXT = _IN_FRAME + 1
_OPAQUE_DIGITS = 10


@njit
def _put_text(form, t, number):  # type: ignore[no-untyped-def]
    """Write one of the texts; returns the address after it."""
    ends = get(form, _ENDS)
    begin, end = get(ends, 8 * number), get(ends, 8 * number + 8)
    copy_short(t, get(form, _TEXTS) + begin, end - begin)
    return t + end - begin


@njit
def _read(form, p, end):  # type: ignore[no-untyped-def]
    """Read the numbers of a header; whether it differs from the form in them alone."""
    ends, texts, roles, numbers = get(form, _ENDS), get(form, _TEXTS), get(form, _ROLES), get(form, _NUMBERS)
    for number in range(_IN_FRAME + 1):
        begin = get(ends, 8 * number)
        size = get(ends, 8 * number + 8) - begin
        if end - p < size or not equal_bytes(p, texts + begin, size):
            return False
        p += size
        if number < _IN_FRAME:
            value, digits = read_decimal(p, end)
            if digits == 0:
                return False
            p += digits
            put(numbers, get(roles, 8 * number), value)
    return p == end


@njit
def _is_plain(form):  # type: ignore[no-untyped-def]
    """Whether the numbers that were read are in their bounds; those that follow from them are set."""
    numbers = get(form, _NUMBERS)
    offset, deliver_ms = get(numbers, _OFFSET), get(numbers, _POP_TIME) + get(numbers, _INVISIBLE_TIME)
    put(numbers, _DELIVER_MS, deliver_ms)
    return (
        get(form, _LOW) <= offset <= get(form, _HIGH)
        and get(form, _FIRST_MS) <= deliver_ms <= get(form, _LAST_MS)
        and get(numbers, _REVIVE_QID) < get(form, _REVIVE_QIDS)
        and get(numbers, _OPAQUE) <= INT32_MAX
    )


@njit
def _put_answer(form, t):  # type: ignore[no-untyped-def]
    """Write the answer to an ack that was taken; returns the address after it."""
    opaque = get(get(form, _NUMBERS), _OPAQUE)
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
    record, numbers = get(form, _RECORD), get(form, _NUMBERS)
    put(form, _NEEDED, 0)
    while taken < get(form, _MOST) and end - p >= FRAME_HEAD_SIZE:
        length, header = np.int64(load_i32(p)), np.int64(load_i32(p + LENGTH_SIZE))
        frame_end = p + LENGTH_SIZE + length
        if header < 0 or header > _LONGEST_HEADER or length != header + LENGTH_SIZE or frame_end > end:
            break
        if not _read(form, p + FRAME_HEAD_SIZE, frame_end) or not _is_plain(form):
            break
        size = formed_size(record, numbers)
        if size > get(form, S_LOG_END) - target:
            put(form, _NEEDED, size)
            break
        log_offset = get(form, S_LOG_OFFSET) + (target - get(form, S_LOG))
        target = put_formed(record, numbers, target, queue_offset, log_offset, get(form, _BORN), get(form, S_NOW))
        queue_offset += 1
        answer = _put_answer(form, answer)
        taken += 1
        p = frame_end
    store_i64_native(counter, queue_offset)
    put(form, S_LOG_OFFSET, get(form, S_LOG_OFFSET) + target - get(form, S_LOG))
    put(form, S_LOG, target)
    put(form, _ANSWERED, answer - get(form, _ANSWERS))
    put(form, _AT, p)
    return taken


class AckForm:
    """Common parts of a group's acks from one queue, and of their records.

    Args:
        texts: Eight, of a frame's header around its seven numbers.
        numbers: Which of these is start offset, pop time, invisible time, revive queue, offset, opaque.
        record: Of the records. Its numbers: start offset, pop time, invisible time, revive queue, offset, opaque, time
            of delivery, time of the slot.
        queue: The number of the records' queue in the log's counters.
        answer: Two texts, of an answer's header around opaque.
        answers: uint8, memory for the answers of one call; forms may share it.

    Attributes:
        address: For the kernel; good as long as this lives.
    """

    def __init__(
        self,
        *,
        texts: tuple[bytes, ...],
        numbers: tuple[int, ...],
        record: RecordForm,
        queue: int,
        answer: tuple[bytes, bytes],
        answers: npt.NDArray[np.uint8],
    ) -> None:
        every = (*texts, *answer)
        self._texts = np.frombuffer(b"".join(every), np.uint8)
        self._ends = np.array([0, *accumulate(map(len, every))], np.int64)
        self._roles = np.full(_IN_FRAME, _SPARE, np.int64)
        self._roles[list(numbers)] = range(0, 8 * len(numbers), 8)
        self._numbers = np.zeros(_SPARE // 8 + 1, np.int64)
        self._record, self._answers = record, answers
        self._array: npt.NDArray[np.int64] = np.zeros(_WORDS, np.int64)
        self._words, self._number_words = self._array.data, self._numbers.data  # faster to index from Python
        self.address: int = self._array.ctypes.data
        for word, value in (
            (_MOST, answers.size // (FRAME_HEAD_SIZE + sum(map(len, answer)) + _OPAQUE_DIGITS)),
            (_QUEUE, queue), (_RECORD, record.address), (_ANSWERS, answers.ctypes.data),
            (_TEXTS, self._texts.ctypes.data), (_ENDS, self._ends.ctypes.data),
            (_ROLES, self._roles.ctypes.data), (_NUMBERS, self._numbers.ctypes.data),
        ):  # fmt: skip
            self._words[word // 8] = value

    def begin(
        self, born_ms: int, offsets: tuple[int, int], revive_qids: int, slot_ms: int, times: tuple[int, int]
    ) -> None:
        """Set what the next calls take.

        Args:
            born_ms: When the records are born.
            offsets: Bounds of offsets that the queue has, both included.
            revive_qids: The number of revive queues.
            slot_ms: The time of the slot in which the records wait.
            times: First and last time of delivery for which that is so.
        """
        self._words[_BORN // 8], self._words[_REVIVE_QIDS // 8] = born_ms, revive_qids
        self._words[_LOW // 8], self._words[_HIGH // 8] = offsets
        self._words[_FIRST_MS // 8], self._words[_LAST_MS // 8] = times
        self._number_words[_OUT_MS // 8] = slot_ms

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
