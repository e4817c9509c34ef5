"""The short way into the log for plain messages, those that a kernel encodes as they are (`kernels.message_objects`).

What is not plain is left to `store.put`, which checks and encodes any message, and says what is wrong with it.
"""

from __future__ import annotations

import time

import numpy as np

from reput.errors import MessageIllegalError
from reput.formats.message import Message, check_topic
from reput.formats.record_layout import MAX_QUEUE_ID
from reput.kernels.message_objects import MessageEncoder, encode_messages
from reput.store.log.commit_log import CommitLog
from reput.store.log.pending import EncodedRows
from reput.store.log.queue_offsets import QueueKey

_BUFFER_BYTES = 1 << 20


class PlainMessages:
    """Encodes and appends the plain messages of one store.

    Args:
        log: The log.
        store_host: 8 or 20 bytes.
        max_message_size: maxMessageSize.
    """

    def __init__(self, log: CommitLog, store_host: bytes, max_message_size: int) -> None:
        self._log = log
        self._encoder = MessageEncoder(store_host, max_message_size)
        self._block = self._encoder.block
        #: The places in `CommitLog.queue_offsets` of queues whose topic and number are known to be legal.
        self._numbers: dict[QueueKey, int] = {}

    def append(self, message: Message, queue_id: int, clock_s: float) -> tuple[int, int, int, int] | None:
        """`CommitLog.append_plain`, if the message can go this way; else None, and nothing has changed."""
        try:
            number = self._numbers[message.topic, queue_id]
        except (KeyError, TypeError):
            number = self._number(message.topic, queue_id)
            if number < 0:
                return None
        return self._log.append_plain(message, queue_id, number, self._block, clock_s)

    def _number(self, topic: object, queue_id: object) -> int:
        """The place of a queue in `CommitLog.queue_offsets`; -1 where no message may go there."""
        if type(topic) is not str or type(queue_id) is not int or not 0 <= queue_id <= MAX_QUEUE_ID:
            return -1
        key = topic, queue_id
        number = self._numbers.get(key)
        if number is None:
            try:
                check_topic(topic)
            except MessageIllegalError:
                return -1
            number = self._numbers[key] = int(self._log.number_queues([key])[0])
        return number

    def encode(self, messages: tuple[Message, ...], queue_id: int) -> list[EncodedRows] | None:
        """The records of messages without their places, as they are to be appended; None if one is not plain."""
        chunks: list[EncodedRows] = []
        now = int(time.time() * 1000)
        done = 0
        while done < len(messages):
            encoded = self._encode_some(messages, done, queue_id, now)
            if encoded is None:
                return None
            chunks += encoded
            done += sum(rows.queues.size for rows in encoded)
        return chunks

    def _encode_some(
        self, messages: tuple[Message, ...], begin: int, queue_id: int, now: int
    ) -> list[EncodedRows] | None:
        """The records of messages from `begin` on that fill one buffer, those of each topic by themselves."""
        data, used = np.empty(_BUFFER_BYTES, np.uint8), 0
        chunks: list[EncodedRows] = []
        while begin < len(messages):
            first = messages[begin]
            if type(first) is not Message:
                return None
            number = self._number(first.topic, queue_id)
            if number < 0:
                return None
            positions = np.empty(len(messages) - begin + 1, np.int32)
            out, room = data.ctypes.data + used, data.size - used
            end = encode_messages(
                self._block, id(messages), begin, len(messages), queue_id, now, out, room, positions
            )  # fmt: skip
            count = end - begin
            if count == 0:  # not plain, or no room: then it is the next buffer's first, or too large for one
                return chunks or None
            positions = positions[: count + 1]
            if int(np.diff(positions).max()) > self._log.max_record_size:
                return None
            chunks.append(EncodedRows(data[used:], positions, np.full(count, number, np.int32)))
            used += int(positions[-1])
            begin = end
        return chunks
