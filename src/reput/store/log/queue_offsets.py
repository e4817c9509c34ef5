"""Next queue offset of each queue, in one array.

A table of messages for ten thousand queues takes its offsets in a kernel; a single put reads and writes one number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: (topic, queue id).
QueueKey = tuple[str, int]


class QueueOffsets:
    """RocketMQ's `QueueOffsetOperator`. All uses need the log's append lock, but `get` and reading `numbers`.

    Attributes:
        numbers: Number of each queue: its index in `array`, dense from 0.
        array: int64[at least len(numbers)], next queue offsets; replaced by a longer array when it is full.
        values: The memory of `array`, faster to index from Python.
    """

    __slots__ = ("array", "numbers", "values")

    def __init__(self) -> None:
        self.numbers: dict[QueueKey, int] = {}
        self.array: npt.NDArray[np.int64] = np.zeros(64, np.int64)
        self.values = self.array.data

    def number(self, key: QueueKey) -> int:
        """Number of a queue; a new queue begins at queue offset 0."""
        number = self.numbers.get(key)
        if number is None:
            number = len(self.numbers)
            if number == self.array.size:
                self.array = np.concatenate([self.array, np.zeros_like(self.array)])
                self.values = self.array.data
            self.numbers[key] = number
        return number

    def numbers_of(self, keys: Sequence[QueueKey]) -> npt.NDArray[np.int32]:
        """int32[len(keys)], the number of each queue."""
        try:
            return np.array(list(map(self.numbers.__getitem__, keys)), np.int32)
        except KeyError:
            return np.array(list(map(self.number, keys)), np.int32)

    def get(self, key: QueueKey, default: int = 0) -> int:
        """The next offset of a queue."""
        number = self.numbers.get(key)
        return default if number is None else self.values[number]

    def has_messages(self, topic: str) -> bool:
        """Whether a queue of a topic has, or had, messages."""
        return any(self.values[number] for key, number in self.numbers.items() if key[0] == topic)

    def __setitem__(self, key: QueueKey, offset: int) -> None:
        number = self.number(key)  # first: it may replace `values`
        self.values[number] = offset
