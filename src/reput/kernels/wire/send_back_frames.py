"""Frames that send messages of one group back -> what they ask for, a row each; then their records and answers.

What one read brings is taken in three steps: `read_send_backs` reads the headers, the store finds and proves the
records that they name (`store.reads.proven_records`), and `append_send_backs` writes these again, for later. A request
that is not plain stops each step *before* it changes anything; `SendBackProcessor` takes that one, and is the oracle.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.remoting import (
    CONSUMER_SEND_MSG_BACK,
    FRAME_HEAD_SIZE,
    LENGTH_SIZE,
    ONE_WAY_FLAG,
    RESPONSE_FLAG,
    SEND_BACK_FIELDS,
    V3_4_9,
)
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import equal_bytes, load_i32, load_u8
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.log_room import S_LOG, LogRoom
from reput.kernels.wire import send_back_records
from reput.kernels.wire.json_header import read_json
from reput.kernels.wire.remoting_header import (
    H_CODE,
    H_FLAG,
    H_OPAQUE,
    H_VERSION,
    clear,
    field_address,
    field_size,
    is_int32,
    names_table,
    number_field,
)
from reput.kernels.wire.send_back_records import NAMES, SCRATCH_SIZE
from reput.kernels.wire.send_back_words import (
    ANSWER_BYTES,
    MOST_REQUESTS,
    OF_GROUP,
    R_END,
    R_LEVEL,
    R_MOST_TIMES,
    R_OFFSET,
    R_OPAQUE,
    ROW_WORDS,
    S_ANSWERED,
    S_ANSWERS,
    S_ANSWERS_END,
    S_DEAD,
    S_DEAD_NUMBER,
    S_DEAD_SIZE,
    S_GROUP,
    S_GROUP_SIZE,
    S_HEAD,
    S_HEAD_SIZE,
    S_HEADER,
    S_IS_DEAD,
    S_LEVELS,
    S_MOST_TIMES,
    S_NAMES,
    S_NEEDED,
    S_NUMBERS,
    S_ORIGIN,
    S_ORIGIN_SIZE,
    S_RANDOM,
    S_RECORDS,
    S_RETRY,
    S_RETRY_QUEUES,
    S_RETRY_SIZE,
    S_ROWS,
    S_SCHEDULE,
    S_SCHEDULE_SIZE,
    S_SCRATCH,
    S_STORE_HOST,
    S_TABLE,
    S_TAIL,
    S_TAIL_SIZE,
    WORDS,
)

#: The longest header that is looked at.
_LONGEST_HEADER = 2048
_F_OFFSET, _F_GROUP, _F_LEVEL, _F_UNIT_MODE, _F_MOST_TIMES = range(len(SEND_BACK_FIELDS))
_F = 0x66


@njit
def _is_false(p, size):  # type: ignore[no-untyped-def]
    """Whether a text is false, or is not there."""
    return size < 0 or (size == 5 and load_u8(p) == _F and load_i32(p + 1) == 0x616C7365)


@njit
def _is_of_group(words, header):  # type: ignore[no-untyped-def]
    """Whether the request is of the group of the first one, which it sets."""
    group, size = field_address(header, _F_GROUP), field_size(header, _F_GROUP)
    if size <= 0:
        return False
    if get(words, S_GROUP_SIZE) == 0:
        put(words, S_GROUP, group)
        put(words, S_GROUP_SIZE, size)
        return True
    return size == get(words, S_GROUP_SIZE) and equal_bytes(group, get(words, S_GROUP), size)


@njit
def _read(words, header, row):  # type: ignore[no-untyped-def]
    """Write the row of a header; False if the request is not plain."""
    good_offset, offset = number_field(header, _F_OFFSET, -1)
    good_level, level = number_field(header, _F_LEVEL, 0)
    good_times, times = number_field(header, _F_MOST_TIMES, OF_GROUP)
    opaque, flag = get(header, H_OPAQUE), get(header, H_FLAG)
    if not (good_offset and good_level and good_times):
        return False
    if (
        get(header, H_CODE) != CONSUMER_SEND_MSG_BACK
        or flag & (RESPONSE_FLAG | ONE_WAY_FLAG)
        or offset < 0
        or opaque < 0
        or not is_int32(level)
        or field_size(header, _F_LEVEL) < 0
        or not is_int32(times)
        or (times < 0 and field_size(header, _F_MOST_TIMES) >= 0)
        or not _is_false(field_address(header, _F_UNIT_MODE), field_size(header, _F_UNIT_MODE))
        or not _is_of_group(words, header)
    ):
        return False
    put(row, R_OFFSET, offset)
    put(row, R_LEVEL, level)
    put(row, R_MOST_TIMES, times if get(header, H_VERSION) >= V3_4_9 else np.int64(OF_GROUP))
    put(row, R_OPAQUE, opaque)
    return True


@kernel("int64(int64, int64, int64)", short=True)
def read_send_backs(words, begin, end):  # type: ignore[no-untyped-def]
    """Read the requests at the addresses [begin, end), as long as they are plain and of one group.

    Args:
        words: `SendBacks.address`.
        begin, end: Addresses of what was received.

    Returns:
        int64, how many there are.
    """
    p, count, header = begin, np.int64(0), words + S_HEADER
    put(words, S_GROUP_SIZE, 0)
    while count < MOST_REQUESTS and end - p >= FRAME_HEAD_SIZE:
        length, header_size = np.int64(load_i32(p)), np.int64(load_i32(p + LENGTH_SIZE))
        frame_end = p + LENGTH_SIZE + length
        if header_size < 0 or header_size > _LONGEST_HEADER or length != header_size + LENGTH_SIZE or frame_end > end:
            break
        clear(header)
        row = get(words, S_ROWS) + 8 * ROW_WORDS * count
        if not read_json(header, get(words, S_TABLE), p + FRAME_HEAD_SIZE, frame_end, np.int64(0), np.int64(0)):
            break
        if not _read(words, header, row):
            break
        put(row, R_END, frame_end)
        count += 1
        p = frame_end
    return count


class SendBacks:
    """Settings of one broker for the kernels, and what they read and wrote.

    Args:
        store_host: 8 bytes.
        schedule_topic: Where messages wait for their delay level, a queue a level.
        numbers: int32[levels], the number of each of its queues in the log's counters.
        answer: Two texts, of an answer's header around opaque.
        seed: Of the queues of retry topics that are drawn; not 0, up to 62 bits.
    """

    def __init__(
        self,
        *,
        store_host: bytes,
        schedule_topic: bytes,
        numbers: npt.NDArray[np.int32],
        answer: tuple[bytes, bytes],
        seed: int,
    ) -> None:
        self._array = np.zeros(WORDS, np.int64)
        self._words = self._array.data  # faster to index from Python
        self.address: int = self._array.ctypes.data
        self._kept: dict[int, npt.NDArray[np.generic]] = {}
        self._rows: npt.NDArray[np.int64] = np.zeros((MOST_REQUESTS, ROW_WORDS), np.int64)
        self._ends = self._rows[:, R_END // 8]
        self._answers = np.empty(MOST_REQUESTS * ANSWER_BYTES, np.uint8)
        self._target: object = None
        head, tail = answer
        for word, array in (
            (S_ROWS, self._rows), (S_ANSWERS, self._answers), (S_NUMBERS, np.ascontiguousarray(numbers, np.int32)),
            (S_STORE_HOST, np.frombuffer(store_host[:HOST_V4_SIZE], np.uint8)),
            (S_SCRATCH, np.zeros(SCRATCH_SIZE, np.uint8)), (S_NAMES, np.frombuffer(NAMES, np.uint8)),
            (S_TABLE, names_table(SEND_BACK_FIELDS)),
        ):  # fmt: skip
            self._point(word, array)
        for word, size, text in (
            (S_SCHEDULE, S_SCHEDULE_SIZE, schedule_topic), (S_HEAD, S_HEAD_SIZE, head), (S_TAIL, S_TAIL_SIZE, tail)
        ):  # fmt: skip
            self._point_to_text(word, size, text)
        words = self._words
        words[S_ANSWERS_END // 8] = words[S_ANSWERS // 8] + self._answers.size
        words[S_LEVELS // 8], words[S_RANDOM // 8] = len(numbers), seed

    def _point(self, word: int, array: npt.NDArray[np.generic]) -> None:
        """Let a word point to memory, which stays alive until it points to other memory."""
        self._kept[word] = array
        self._words[word // 8] = array.ctypes.data

    def _point_to_text(self, word: int, size: int, text: bytes) -> None:
        self._point(word, np.frombuffer(text or b"\0", np.uint8))
        self._words[size // 8] = len(text)

    def read(self, begin: int, end: int) -> int:
        """Read what was received at the addresses [begin, end); returns how many plain requests of one group it is."""
        count: int = _kernels.read_send_backs(self.address, begin, end)
        return count

    @property
    def group(self) -> tuple[int, int]:
        """Address and size of the name of their group, in what was received."""
        return self._words[S_GROUP // 8], self._words[S_GROUP_SIZE // 8]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """int64[MOST_REQUESTS], the commit log offset of each request's message."""
        return self._rows[:, R_OFFSET // 8]

    def end_of(self, count: int) -> int:
        """Address after the first `count` requests."""
        return int(self._ends[count - 1])

    def set_target(
        self, retry_topic: str, retry_queues: int, most_times: int, dead_letters: tuple[str, int] | None
    ) -> None:
        """Set where messages of the group go.

        Args:
            retry_topic, retry_queues: The group's own topic.
            most_times: Attempts at a message, unless a request says it.
            dead_letters: The topic of messages that had them all, and the number of its queue 0 in the log's counters;
                None if it is not there: then such a message is odd.
        """
        target = retry_topic, retry_queues, most_times, dead_letters
        if target == self._target:
            return
        self._target = target
        name, number = dead_letters or ("", 0)
        self._point_to_text(S_RETRY, S_RETRY_SIZE, retry_topic.encode())
        self._point_to_text(S_DEAD, S_DEAD_SIZE, name.encode())
        for word, value in ((S_RETRY_QUEUES, retry_queues), (S_MOST_TIMES, most_times), (S_DEAD_NUMBER, number)):
            self._words[word // 8] = value

    def append(self, first: int, records: int, count: int, room: LogRoom) -> int:
        """Write the messages from the request `first` on, as long as they are plain, of one topic, and go one way.

        Args:
            first: The number of a request.
            records: Address of `count` runs, two native int64: address and size of the record of each request.
            room: Where they go.

        Returns:
            How many were written; see `needed`, `origin` and `is_dead`.
        """
        self._words[S_RECORDS // 8] = records
        room.put(self._words)
        taken: int = send_back_records.append_send_backs(self.address, first, count)
        return taken

    @property
    def needed(self) -> int:
        """Bytes of the next record, if the log has no room for it; else 0."""
        return self._words[S_NEEDED // 8]

    @property
    def log_address(self) -> int:
        """Address after the last record."""
        return self._words[S_LOG // 8]

    @property
    def origin(self) -> tuple[int, int]:
        """Address and size of the name of the topic where the messages were at first; there until the next call."""
        return self._words[S_ORIGIN // 8], self._words[S_ORIGIN_SIZE // 8]

    @property
    def is_dead(self) -> bool:
        """Whether they went to the dead letters."""
        return bool(self._words[S_IS_DEAD // 8])

    def take_answers(self) -> bytes:
        """The answers of the calls since the last time."""
        size, self._words[S_ANSWERED // 8] = self._words[S_ANSWERED // 8], 0
        return bytes(self._answers[:size])


_kernels = sys.modules[__name__]
