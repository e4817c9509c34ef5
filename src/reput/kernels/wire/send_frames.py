"""Frames that send messages -> records in the log and answers, all of one read in one call.

A client multiplexes its threads over one connection, so what one read brings holds many frames. `take_sends` takes
them one after the other: header, topic, properties, record with CRC straight into the mapped log, answer into a
buffer. What is not plain stops it *before* it changes anything; the caller does that frame in the plain way
(`broker.send_message_processor`), which also is the oracle, and calls again for the frames after it.

Plain is a send by SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE to a topic that the table has, with a body, with
properties that nobody has to look into, from an IPv4 host.
"""

from __future__ import annotations

import sys
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.message_id import HOST_V4_DIGITS, OFFSET_DIGITS
from reput.formats.properties import SIZE_ADDED_LATER
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE, SysFlag
from reput.formats.remoting import (
    FRAME_HEAD_SIZE,
    HEADER_SIZE_MASK,
    LENGTH_SIZE,
    MAX_FRAME_SIZE,
    ONE_WAY_FLAG,
    RESPONSE_FLAG,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    TYPE_SHIFT,
)
from reput.formats.unique_id import ID_DIGITS
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_i32
from reput.kernels.machine.shared_words import get, put
from reput.kernels.records.log_room import S_LOG, S_LOG_END, S_LOG_OFFSET, LogRoom
from reput.kernels.records.property_names import PAIR_ENDS, UNIQ_KEY_SIZE
from reput.kernels.wire.json_header import read_json
from reput.kernels.wire.remoting_header import (
    F_BATCH,
    F_BORN_TIMESTAMP,
    F_DEFAULT_TOPIC,
    F_DEFAULT_TOPIC_QUEUE_NUMS,
    F_FLAG,
    F_MAX_RECONSUME_TIMES,
    F_PRODUCER_GROUP,
    F_PROPERTIES,
    F_QUEUE_ID,
    F_RECONSUME_TIMES,
    F_SYS_FLAG,
    F_TOPIC,
    H_CODE,
    H_FLAG,
    V1_TABLE,
    clear,
    field_address,
    field_size,
    is_int32,
    number_field,
    read_binary,
)
from reput.kernels.wire.send_answers import MOST_HANDLE_TEXT, answer_texts, put_answer
from reput.kernels.wire.send_properties import PROPERTY_TABLE, is_plain_key, is_true, look_at_properties
from reput.kernels.wire.send_records import (
    WAIT_NAMES,
    append_batch,
    append_one,
    is_ended,
    measure_batch,
    wait_sizes,
)
from reput.kernels.wire.send_topics import TopicTable, find_topic, topic_entry
from reput.kernels.wire.send_words import (
    S_ANSWERED,
    S_ANSWERS,
    S_ANSWERS_END,
    S_AT,
    S_BATCH_SUFFIX_SIZE,
    S_BORN_HOST,
    S_CLUSTER,
    S_CLUSTER_SIZE,
    S_HANDLE,
    S_HANDLE_SIZE,
    S_HEADER,
    S_IS_SYNC,
    S_LEVEL,
    S_MAX_BODY,
    S_MAX_DELAY_MS,
    S_MONTH_BEGIN,
    S_NEEDED,
    S_NOW_MS,
    S_PRECISION_MS,
    S_RECORDS,
    S_SCHEDULE,
    S_SCRATCH,
    S_SENDS,
    S_SENDS_BATCH,
    S_SENDS_V1,
    S_STORE_HOST,
    S_STORE_HOST_HEX,
    S_SUFFIX,
    S_SUFFIX_SIZE,
    S_TABLE,
    S_TAKES_BATCH_PROPERTIES,
    S_TEXT_ENDS,
    S_TEXTS,
    S_TIME,
    S_TIMERS,
    S_UNIQUE_PREFIX,
    SCRATCH_SIZE,
    T_NUMBERS,
    T_QUEUES,
    WORDS,
)


class Stop(IntEnum):
    """Reason why `take_sends` has stopped."""

    #: No whole frame is left.
    DONE = 0
    #: The next frame is not plain.
    ODD = 1
    #: The log file has no room for the next record.
    NO_ROOM = 2
    #: The buffer of answers is full.
    NO_ANSWER_ROOM = 3


_STOPS = tuple(Stop)  # by their numbers: `Stop(number)` takes 1 us
_DONE, _ODD, _NO_ROOM, _NO_ANSWER_ROOM = (int(stop) for stop in Stop)
_MAX_PROPERTIES = MAX_PROPERTIES_SIZE - SIZE_ADDED_LATER
_MIN_RECORD = MIN_RECORD_SIZE
#: Bits of sys_flag that a producer may set: compressed, and how.
_PLAIN_SYS_FLAG = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK
#: Room for an answer but for the further ids of a batch, and for each of these.
_ANSWER_ROOM, _ID_SIZE = 2048, HOST_V4_DIGITS + OFFSET_DIGITS + 1


@njit
def _numbers_are_plain(header):  # type: ignore[no-untyped-def]
    """Whether the fields that a send needs are there, and the numbers that it does not use are numbers."""
    for field in (F_PRODUCER_GROUP, F_DEFAULT_TOPIC):
        if field_size(header, field) < 0:
            return False
    good, value = number_field(header, F_MAX_RECONSUME_TIMES, 0)
    if not (good and is_int32(value)):
        return False
    good, value = number_field(header, F_DEFAULT_TOPIC_QUEUE_NUMS, 0)
    return good and is_int32(value) and field_size(header, F_DEFAULT_TOPIC_QUEUE_NUMS) > 0


@njit
def _send(words, header, body, body_size):  # type: ignore[no-untyped-def]
    """Do the send at hand; DONE, or why not, and then nothing has changed."""
    name_size = field_size(header, F_TOPIC)
    topic = find_topic(words, field_address(header, F_TOPIC), name_size) if name_size > 0 else np.int64(0)
    good_queue, queue_id = number_field(header, F_QUEUE_ID, -1)
    good_sys, sys_flag = number_field(header, F_SYS_FLAG, -1)
    good_born, born = number_field(header, F_BORN_TIMESTAMP, 0)
    good_flag, flag = number_field(header, F_FLAG, 0)
    good_times, reconsume = number_field(header, F_RECONSUME_TIMES, 0)
    if topic == 0 or not (good_queue and good_sys and good_born and good_flag and good_times):
        return _ODD
    if (
        queue_id < 0
        or queue_id >= get(topic, T_QUEUES)
        or body_size <= 0
        or body_size > get(words, S_MAX_BODY)
        or sys_flag < 0
        or sys_flag & ~np.int64(_PLAIN_SYS_FLAG)
        or not is_int32(flag)
        or not is_int32(reconsume)
        or field_size(header, F_BORN_TIMESTAMP) < 0
        or field_size(header, F_FLAG) < 0
        or not _numbers_are_plain(header)
    ):
        return _ODD
    properties, size = field_address(header, F_PROPERTIES), max(np.int64(0), field_size(header, F_PROPERTIES))
    if size > _MAX_PROPERTIES:
        return _ODD
    plain, unique, unique_size = look_at_properties(words, properties, size)
    if not plain or not is_plain_key(unique, unique_size):
        return _ODD
    number_at = get(topic, T_NUMBERS) + 4 * queue_id
    first, room = get(words, S_LOG_OFFSET), get(words, S_LOG_END) - get(words, S_LOG)
    answer_room = get(words, S_ANSWERS_END) - get(words, S_ANSWERS) - get(words, S_ANSWERED)
    is_batch = field_size(header, F_BATCH) > 0 and is_true(field_address(header, F_BATCH), field_size(header, F_BATCH))
    if is_batch:
        if get(words, S_LEVEL) or get(words, S_TIME) >= 0:
            return _ODD
        count, total = measure_batch(words, topic, body, body_size, properties, size)
        if count == 0:
            return _ODD
        if total > room:
            put(words, S_NEEDED, total)
            return _NO_ROOM
        if answer_room < _ANSWER_ROOM + _ID_SIZE * count:
            return _NO_ANSWER_ROOM
        queue_offset = append_batch(
            words, topic, number_at, queue_id, sys_flag, born, reconsume, body, count, properties, size
        )
    else:
        count = 1
        text = size + (0 if is_ended(properties, size) else 1) + get(words, S_SUFFIX_SIZE) + get(words, S_CLUSTER_SIZE)
        text += 0 if unique_size else UNIQ_KEY_SIZE + ID_DIGITS + PAIR_ENDS
        more_text, more_name = wait_sizes(words, topic, queue_id)
        text += more_text
        if text > _MAX_PROPERTIES:
            return _ODD
        record = _MIN_RECORD + body_size + name_size + more_name + text
        if record > room:
            put(words, S_NEEDED, record)
            return _NO_ROOM
        if answer_room < _ANSWER_ROOM:
            return _NO_ANSWER_ROOM
        queue_offset, key = append_one(
            words, topic, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, properties, size,
            unique_size > 0, record,
        )  # fmt: skip
        if unique_size == 0:
            unique, unique_size = key, np.int64(ID_DIGITS)
    put(words, S_SENDS, get(words, S_SENDS) + 1)
    code = get(header, H_CODE)
    if code == SEND_MESSAGE:
        put(words, S_SENDS_V1, get(words, S_SENDS_V1) + 1)
    elif code == SEND_BATCH_MESSAGE:
        put(words, S_SENDS_BATCH, get(words, S_SENDS_BATCH) + 1)
    put(words, S_RECORDS, get(words, S_RECORDS) + count)
    if not get(header, H_FLAG) & ONE_WAY_FLAG:
        put_answer(words, topic, first, count, queue_id, queue_offset, unique, unique_size)
    return _DONE


@kernel("int64(int64, int64, int64)", short=True)
def take_sends(words, begin, end):  # type: ignore[no-untyped-def]
    """Take the sends at the addresses [begin, end), as long as they are plain, and say why it stopped.

    Args:
        words: `SendFrames.address`.
        begin, end: Addresses of what was received.

    Returns:
        int64, a `Stop`; the words say where: the next frame.
    """
    p = begin
    header = words + S_HEADER
    scratch = get(words, S_SCRATCH)
    stop = np.int64(_DONE)
    put(words, S_RECORDS, 0)
    put(words, S_SENDS, 0)
    put(words, S_SENDS_V1, 0)
    put(words, S_SENDS_BATCH, 0)
    while end - p >= FRAME_HEAD_SIZE:
        length = np.int64(load_i32(p))
        word = np.int64(load_i32(p + LENGTH_SIZE)) & 0xFFFFFFFF
        header_size, kind = word & HEADER_SIZE_MASK, word >> TYPE_SHIFT
        least, most = LENGTH_SIZE, MAX_FRAME_SIZE - LENGTH_SIZE
        if length < least or length > most or header_size > length - LENGTH_SIZE or kind > 1:
            stop = np.int64(_ODD)
            break
        frame_end = p + LENGTH_SIZE + length
        if frame_end > end:
            break
        at = p + FRAME_HEAD_SIZE
        body = at + header_size
        clear(header)
        read = (
            read_binary(header, get(words, S_TABLE), at, body)
            if kind
            else read_json(header, get(words, S_TABLE), at, body, scratch, scratch + _MAX_PROPERTIES + 8)
        )
        code = get(header, H_CODE) if read else np.int64(0)
        is_send = code in (SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE)
        if not is_send or get(header, H_FLAG) & RESPONSE_FLAG:
            stop = np.int64(_ODD)
            break
        stop = np.int64(_send(words, header, body, frame_end - body))
        if stop != _DONE:
            break
        p = frame_end
    put(words, S_AT, p)
    return stop


class SendFrames:
    """Settings of one broker for the kernel: its topics, its hosts, the texts that it adds.

    Args:
        store_host: 8 bytes.
        properties: What the broker adds to the properties of a message, as text: before its unique key, and after.
        answer_fields: Fields that the broker adds to each answer, as JSON: `"MSG_REGION":"DefaultRegion"`.
        answer_end: The JSON of an answer after its opaque.
        unique_prefix: 20 characters, of ids that the broker makes.
        schedule: The topic where messages wait for their delay level, a queue a level, and int32[levels], the number
            of each of its queues in the log's counters.
        timers: The topic where messages wait for their time, and int32[1], the number of its queue.
        max_delay_ms, precision_ms: The longest wait for a time, 0 if the kernel is not to take such a message, and the
            length of a slot.
        handle: What stands before and after the topic in the handle of a message that waits for a time.
        max_body_size: maxMessageSize.
        is_sync: A message that does not wait for the disk is odd.
        takes_batch_properties: Each message of a batch gets the batch's properties (`DispatchRules`).

    Attributes:
        address: For the kernel; good as long as this lives.
        answers: The memory for answers; `answered` bytes of it are used.
    """

    def __init__(
        self,
        *,
        store_host: bytes,
        properties: tuple[bytes, bytes],
        answer_fields: bytes,
        answer_end: bytes,
        unique_prefix: bytes,
        schedule: tuple[bytes, npt.NDArray[np.int32]],
        timers: tuple[bytes, npt.NDArray[np.int32]],
        max_delay_ms: int,
        precision_ms: int,
        handle: tuple[bytes, bytes],
        max_body_size: int,
        is_sync: bool,
        takes_batch_properties: bool,
        answer_bytes: int = 1 << 20,
    ) -> None:
        self._words = np.zeros(WORDS, np.int64)
        self.words = self._words.data  # faster to index from Python
        self.address: int = self._words.ctypes.data
        answers = np.empty(answer_bytes, np.uint8)
        self.answers = answers.data
        self._kept: list[npt.NDArray[np.generic]] = []
        texts, ends = answer_texts(answer_fields, answer_end)
        born_host = np.zeros(HOST_V4_SIZE, np.uint8)
        suffix, cluster = properties
        for word, data in (
            (S_ANSWERS, answers),
            (S_BORN_HOST, born_host),
            (S_STORE_HOST, np.frombuffer(store_host, np.uint8)),
            (S_STORE_HOST_HEX, np.frombuffer(store_host.hex().upper().encode(), np.uint8)),
            (S_SUFFIX, np.frombuffer(suffix + cluster + "".join(WAIT_NAMES).encode(), np.uint8)),
            (S_CLUSTER, np.frombuffer(cluster, np.uint8)),
            (S_UNIQUE_PREFIX, np.frombuffer(unique_prefix, np.uint8)),
            (S_SCRATCH, np.empty(SCRATCH_SIZE, np.uint8)),
            (S_TEXTS, texts),
            (S_TEXT_ENDS, ends),
            (S_TABLE, np.concatenate([V1_TABLE, PROPERTY_TABLE])),
            (S_SCHEDULE, topic_entry(*schedule, self._kept)),
            (S_TIMERS, topic_entry(*timers, self._kept)),
            (S_HANDLE, np.frombuffer(b"".join(handle), np.uint8)),
        ):
            self._point(word, data)
        self.words[S_ANSWERS_END // 8] = self.words[S_ANSWERS // 8] + answer_bytes
        self._born_host, self._host = born_host, b""
        for word, value in (
            (S_SUFFIX_SIZE, len(suffix)),
            (S_CLUSTER_SIZE, len(cluster)),
            (S_BATCH_SUFFIX_SIZE, len(suffix) + len(cluster)),
            (S_MAX_BODY, max_body_size),
            (S_IS_SYNC, is_sync),
            (S_TAKES_BATCH_PROPERTIES, takes_batch_properties),
            (S_MAX_DELAY_MS, max_delay_ms if len(handle[1]) <= MOST_HANDLE_TEXT else 0),
            (S_PRECISION_MS, precision_ms),
            (S_HANDLE_SIZE, len(b"".join(handle))),
        ):
            self.words[word // 8] = value
        self.topics = TopicTable(self.words)

    def _point(self, word: int, data: npt.NDArray[np.generic]) -> None:
        """Let a word point to memory, which stays alive with this."""
        self._kept.append(data)
        self.words[word // 8] = data.ctypes.data

    # -- a call

    def begin(self, born_host: bytes, month_begin_ms: int, now_ms: int) -> None:
        """Set whose frames come (8 bytes), when the month began, for ids, and the time."""
        if born_host is not self._host:
            self._host = born_host
            self._born_host[:] = np.frombuffer(born_host, np.uint8)
        self.words[S_MONTH_BEGIN // 8], self.words[S_NOW_MS // 8] = month_begin_ms, now_ms
        self.words[S_ANSWERED // 8] = 0

    def take(self, begin: int, end: int, room: LogRoom) -> Stop:
        """Call the kernel with the addresses [begin, end) of what was received, and where records go."""
        room.put(self.words)
        stop: int = _kernels.take_sends(self.address, begin, end)
        return _STOPS[stop]

    @property
    def at(self) -> int:
        """Address of the first frame that was not taken."""
        return self.words[S_AT // 8]

    @property
    def needed(self) -> int:
        """Bytes that the records of that frame take, if the log has no room for them."""
        return self.words[S_NEEDED // 8]

    @property
    def log_address(self) -> int:
        """Address after the last record."""
        return self.words[S_LOG // 8]

    @property
    def records(self) -> int:
        """Records that the last call wrote."""
        return self.words[S_RECORDS // 8]

    @property
    def sends(self) -> dict[int, int]:
        """Requests that the last call did, by their codes."""
        words = self.words
        all_sends, v1, batches = words[S_SENDS // 8], words[S_SENDS_V1 // 8], words[S_SENDS_BATCH // 8]
        return {SEND_MESSAGE: v1, SEND_MESSAGE_V2: all_sends - v1 - batches, SEND_BATCH_MESSAGE: batches}

    @property
    def answered(self) -> int:
        """Bytes of answers."""
        return self.words[S_ANSWERED // 8]

    def take_answers(self) -> bytes:
        """The answers of the calls since the last time."""
        size, self.words[S_ANSWERED // 8] = self.words[S_ANSWERED // 8], 0
        return bytes(self.answers[:size])


_kernels = sys.modules[__name__]
