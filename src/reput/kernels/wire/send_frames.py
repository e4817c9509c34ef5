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

from reput.formats.properties import SIZE_ADDED_LATER
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MIN_RECORD_SIZE
from reput.kernels.machine.blocks import get, put
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_i32
from reput.kernels.records.log_room import B_LOG, B_LOG_END, B_LOG_OFFSET, LogRoom
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
    read_json,
)
from reput.kernels.wire.send_answers import answer_texts, put_answer
from reput.kernels.wire.send_block import (
    B_ANSWERED,
    B_ANSWERS,
    B_ANSWERS_END,
    B_AT,
    B_BATCH_SUFFIX_SIZE,
    B_BORN_HOST,
    B_CLUSTER,
    B_CLUSTER_SIZE,
    B_HEADER,
    B_IS_SYNC,
    B_MAX_BODY,
    B_MONTH_BEGIN,
    B_NEEDED,
    B_RECORDS,
    B_SCRATCH,
    B_SENDS,
    B_SENDS_BATCH,
    B_SENDS_V1,
    B_STORE_HOST,
    B_STORE_HOST_HEX,
    B_SUFFIX,
    B_SUFFIX_SIZE,
    B_TABLE,
    B_TAKES_BATCH_PROPERTIES,
    B_TEXT_ENDS,
    B_TEXTS,
    B_UNIQUE_PREFIX,
    BLOCK_WORDS,
    SCRATCH_SIZE,
    T_NUMBERS,
    T_QUEUES,
)
from reput.kernels.wire.send_properties import ODD_TABLE, is_plain_key, is_true, look_at_properties
from reput.kernels.wire.send_records import (
    HOST_SIZE,
    UNIQUE_SIZE,
    append_batch,
    append_one,
    is_ended,
    measure_batch,
)
from reput.kernels.wire.send_topics import TopicTable, find_topic


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
_MAX_FRAME = 16_777_216
_MAX_PROPERTIES = MAX_PROPERTIES_SIZE - SIZE_ADDED_LATER
_MIN_RECORD = MIN_RECORD_SIZE
#: Bits of sys_flag that a producer may set: compressed, and how.
_PLAIN_SYS_FLAG = 0x701
#: Room for an answer but for the further ids of a batch, and for each of these.
_ANSWER_ROOM, _ID_SIZE = 2048, 33
_SEND, _SEND_V2, _SEND_BATCH = 10, 310, 320
_ONE_WAY, _RESPONSE = 2, 1


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
def _send(block, header, body, body_size):  # type: ignore[no-untyped-def]
    """Do the send at hand; DONE, or why not, and then nothing has changed."""
    name_size = field_size(header, F_TOPIC)
    topic = find_topic(block, field_address(header, F_TOPIC), name_size) if name_size > 0 else np.int64(0)
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
        or body_size > get(block, B_MAX_BODY)
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
    plain, unique, unique_size = look_at_properties(block, properties, size)
    if not plain or not is_plain_key(unique, unique_size):
        return _ODD
    number_at = get(topic, T_NUMBERS) + 4 * queue_id
    first, room = get(block, B_LOG_OFFSET), get(block, B_LOG_END) - get(block, B_LOG)
    answer_room = get(block, B_ANSWERS_END) - get(block, B_ANSWERS) - get(block, B_ANSWERED)
    is_batch = field_size(header, F_BATCH) > 0 and is_true(field_address(header, F_BATCH), field_size(header, F_BATCH))
    if is_batch:
        count, total = measure_batch(block, topic, body, body_size, properties, size)
        if count == 0:
            return _ODD
        if total > room:
            put(block, B_NEEDED, total)
            return _NO_ROOM
        if answer_room < _ANSWER_ROOM + _ID_SIZE * count:
            return _NO_ANSWER_ROOM
        queue_offset = append_batch(
            block, topic, number_at, queue_id, sys_flag, born, reconsume, body, count, properties, size
        )
    else:
        count = 1
        text = size + (0 if is_ended(properties, size) else 1) + get(block, B_SUFFIX_SIZE) + get(block, B_CLUSTER_SIZE)
        text += 0 if unique_size else 8 + 1 + UNIQUE_SIZE + 1
        if text > _MAX_PROPERTIES:
            return _ODD
        record = _MIN_RECORD + body_size + name_size + text
        if record > room:
            put(block, B_NEEDED, record)
            return _NO_ROOM
        if answer_room < _ANSWER_ROOM:
            return _NO_ANSWER_ROOM
        queue_offset, key = append_one(
            block, topic, number_at, queue_id, flag, sys_flag, born, reconsume, body, body_size, properties, size,
            unique_size > 0, record,
        )  # fmt: skip
        if unique_size == 0:
            unique, unique_size = key, np.int64(UNIQUE_SIZE)
    put(block, B_SENDS, get(block, B_SENDS) + 1)
    code = get(header, H_CODE)
    if code == _SEND:
        put(block, B_SENDS_V1, get(block, B_SENDS_V1) + 1)
    elif code == _SEND_BATCH:
        put(block, B_SENDS_BATCH, get(block, B_SENDS_BATCH) + 1)
    put(block, B_RECORDS, get(block, B_RECORDS) + count)
    if not get(header, H_FLAG) & _ONE_WAY:
        put_answer(block, first, count, queue_id, queue_offset, unique, unique_size)
    return _DONE


@kernel("int64(int64, int64, int64)", short=True)
def take_sends(block, begin, end):  # type: ignore[no-untyped-def]
    """Take the sends at the addresses [begin, end), as long as they are plain, and say why it stopped.

    Args:
        block: `SendFrames.block`.
        begin, end: Addresses of what was received.

    Returns:
        int64, a `Stop`; the block says where: the next frame.
    """
    p = begin
    header = block + B_HEADER
    scratch = get(block, B_SCRATCH)
    stop = np.int64(_DONE)
    put(block, B_RECORDS, 0)
    put(block, B_SENDS, 0)
    put(block, B_SENDS_V1, 0)
    put(block, B_SENDS_BATCH, 0)
    while end - p >= 8:
        length = np.int64(load_i32(p))
        word = np.int64(load_i32(p + 4)) & 0xFFFFFFFF
        header_size, kind = word & 0xFFFFFF, word >> 24
        if length < 4 or length > _MAX_FRAME - 4 or header_size > length - 4 or kind > 1:
            stop = np.int64(_ODD)
            break
        frame_end = p + 4 + length
        if frame_end > end:
            break
        at, body = p + 8, p + 8 + header_size
        clear(header)
        read = (
            read_binary(header, get(block, B_TABLE), at, body)
            if kind
            else read_json(header, get(block, B_TABLE), at, body, scratch, scratch + _MAX_PROPERTIES + 8)
        )
        code = get(header, H_CODE) if read else np.int64(0)
        if (code != _SEND and code != _SEND_V2 and code != _SEND_BATCH) or get(header, H_FLAG) & _RESPONSE:
            stop = np.int64(_ODD)
            break
        stop = np.int64(_send(block, header, body, frame_end - body))
        if stop != _DONE:
            break
        p = frame_end
    put(block, B_AT, p)
    return stop


class SendFrames:
    """Settings of one broker for the kernel: its topics, its hosts, the texts that it adds.

    Args:
        store_host: 8 bytes.
        properties: What the broker adds to the properties of a message, as text: before its unique key, and after.
        answer_fields: Fields that the broker adds to each answer, as JSON: `"MSG_REGION":"DefaultRegion"`.
        answer_end: The JSON of an answer after its opaque.
        unique_prefix: 20 characters, of ids that the broker makes.
        max_body_size: maxMessageSize.
        is_sync: A message that does not wait for the disk is odd.
        takes_batch_properties: Each message of a batch gets the batch's properties (`DispatchRules`).

    Attributes:
        block: Address for the kernel; good as long as this lives.
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
        max_body_size: int,
        is_sync: bool,
        takes_batch_properties: bool,
        answer_bytes: int = 1 << 20,
    ) -> None:
        self._words = np.zeros(BLOCK_WORDS, np.int64)
        self.words = self._words.data  # faster to index from Python
        self.block: int = self._words.ctypes.data
        answers = np.empty(answer_bytes, np.uint8)
        self.answers = answers.data
        self._kept: list[npt.NDArray[np.generic]] = []
        texts, ends = answer_texts(answer_fields, answer_end)
        suffix, cluster = properties
        for word, data in (
            (B_ANSWERS, answers),
            (B_BORN_HOST, np.zeros(HOST_SIZE, np.uint8)),
            (B_STORE_HOST, np.frombuffer(store_host, np.uint8)),
            (B_STORE_HOST_HEX, np.frombuffer(store_host.hex().upper().encode(), np.uint8)),
            (B_SUFFIX, np.frombuffer(suffix + cluster, np.uint8)),
            (B_CLUSTER, np.frombuffer(cluster, np.uint8)),
            (B_UNIQUE_PREFIX, np.frombuffer(unique_prefix, np.uint8)),
            (B_SCRATCH, np.empty(SCRATCH_SIZE, np.uint8)),
            (B_TEXTS, texts),
            (B_TEXT_ENDS, ends),
            (B_TABLE, np.concatenate([V1_TABLE, ODD_TABLE])),
        ):
            self._point(word, data)
        self.words[B_ANSWERS_END // 8] = self.words[B_ANSWERS // 8] + answer_bytes
        self._born_host, self._host = self._kept[1], b""
        for word, value in (
            (B_SUFFIX_SIZE, len(suffix)),
            (B_CLUSTER_SIZE, len(cluster)),
            (B_BATCH_SUFFIX_SIZE, len(suffix) + len(cluster)),
            (B_MAX_BODY, max_body_size),
            (B_IS_SYNC, is_sync),
            (B_TAKES_BATCH_PROPERTIES, takes_batch_properties),
        ):
            self.words[word // 8] = value
        self.topics = TopicTable(self.words)

    def _point(self, word: int, data: npt.NDArray[np.generic]) -> None:
        """Let a word of the block point to memory, which stays alive with this."""
        self._kept.append(data)
        self.words[word // 8] = data.ctypes.data

    # -- a call

    def begin(self, born_host: bytes, month_begin_ms: int) -> None:
        """Set whose frames come (8 bytes), and when the month began, for ids."""
        if born_host is not self._host:
            self._host = born_host
            self._born_host[:] = np.frombuffer(born_host, np.uint8)
        self.words[B_MONTH_BEGIN // 8] = month_begin_ms
        self.words[B_ANSWERED // 8] = 0

    def take(self, begin: int, end: int, room: LogRoom) -> Stop:
        """Call the kernel with the addresses [begin, end) of what was received, and where records go."""
        room.put(self.words)
        stop: int = _kernels.take_sends(self.block, begin, end)
        return _STOPS[stop]

    @property
    def at(self) -> int:
        """Address of the first frame that was not taken."""
        return self.words[B_AT // 8]

    @property
    def needed(self) -> int:
        """Bytes that the records of that frame take, where the log has no room for them."""
        return self.words[B_NEEDED // 8]

    @property
    def log_address(self) -> int:
        """Address after the last record."""
        return self.words[B_LOG // 8]

    @property
    def records(self) -> int:
        """Records that the last call wrote."""
        return self.words[B_RECORDS // 8]

    @property
    def sends(self) -> dict[int, int]:
        """Requests that the last call did, by their codes."""
        words = self.words
        all_sends, v1, batches = words[B_SENDS // 8], words[B_SENDS_V1 // 8], words[B_SENDS_BATCH // 8]
        return {_SEND: v1, _SEND_V2: all_sends - v1 - batches, _SEND_BATCH: batches}

    @property
    def answered(self) -> int:
        """Bytes of answers."""
        return self.words[B_ANSWERED // 8]

    def take_answers(self) -> bytes:
        """The answers of the calls since the last time."""
        size, self.words[B_ANSWERED // 8] = self.words[B_ANSWERED // 8], 0
        return bytes(self.answers[:size])


_kernels = sys.modules[__name__]
