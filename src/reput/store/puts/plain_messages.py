"""The short way into the log for plain messages, which a kernel encodes as they are.

The kernel is in `kernels.records.message_objects`. What is not plain is left to `put.py`, which checks and encodes
any message, and says what is wrong with it.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from reput.errors import MessageIllegalError
from reput.formats.message import Message, check_topic
from reput.formats.record_layout import MAX_QUEUE_ID
from reput.kernels.records.message_objects import MessageEncoder, encode_messages
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
        self._address = self._encoder.address
        #: The places in `CommitLog.queue_offsets` of queues whose topic and number are known to be legal.
        self._numbers: dict[QueueKey, int] = {}

    def append(self, message: Message, queue_id: int, clock_s: float) -> tuple[int, int, int, int] | None:
        """`CommitLog.append_plain`, if the message can go this way; else None, and nothing has changed."""
        if type(queue_id) is not int:  # True and 1.0 would be the key 1
            return None
        try:
            number = self._numbers[message.topic, queue_id]
        except (KeyError, TypeError):
            number = self._number(message.topic, queue_id)
            if number < 0:
                return None
        return self._log.append_plain(message, queue_id, number, self._address, clock_s)

    def _number(self, topic: object, queue_id: int) -> int:
        """The place of a queue in `CommitLog.queue_offsets`; -1 if no message may go there."""
        if type(topic) is not str or not 0 <= queue_id <= MAX_QUEUE_ID:
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

    def encode(self, messages: tuple[Message, ...], queue_ids: npt.NDArray[np.int32]) -> list[EncodedRows] | None:
        """The records of messages without their places, as they are to be appended; None if one is not plain.

        Args:
            messages: Of any topics.
            queue_ids: The queue id of each.
        """
        if not messages:
            return []
        topics = [message.topic for message in messages]
        queues = self._number_each(topics, queue_ids)
        if queues is None:
            return None
        chunks: list[EncodedRows] = []
        now = int(time.time() * 1000)
        row = 0
        while row < len(messages):
            data, positions = np.empty(_BUFFER_BYTES, np.uint8), np.empty(len(messages) - row + 1, np.int32)
            end = encode_messages(
                self._address, id(messages), id(topics), queue_ids, row, now, data.ctypes.data, data.size, positions
            )
            positions = positions[: end - row + 1]
            if end == row or int(np.diff(positions).max()) > self._log.max_record_size:  # not plain, or too large
                return None
            chunks.append(EncodedRows(data, positions, queues[row:end]))
            row = end
        return chunks

    def _number_each(self, topics: list[str], queue_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32] | None:
        """int32[messages], the places of their queues in `CommitLog.queue_offsets`; None if one may not go there."""
        try:
            if topics.count(topics[0]) == len(topics) and (queue_ids == queue_ids[0]).all():  # as most puts are
                return np.full(queue_ids.size, self._numbers[topics[0], int(queue_ids[0])], np.int32)
            keys = zip(topics, queue_ids.tolist(), strict=True)
            return np.fromiter(map(self._numbers.__getitem__, keys), np.int32, queue_ids.size)
        except (KeyError, TypeError, ValueError):  # a new queue, or what is no topic
            numbers = list(map(self._number, topics, queue_ids.tolist()))
            return None if -1 in numbers else np.array(numbers, np.int32)
