"""The topics that the kernel of `send_frames` knows: a hash table in memory."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import equal_bytes, load_i32_native, load_u8, load_u64_native
from reput.kernels.machine.shared_words import get
from reput.kernels.wire.send_words import (
    S_SLOT_MASK,
    S_SLOTS,
    S_TOPICS,
    T_NAME,
    T_NAME_SIZE,
    TOPIC_WORDS,
)


@njit
def hash_of(p, size):  # type: ignore[no-untyped-def]
    """Hash of a name, 0 or more."""
    h = np.uint64(0xCBF29CE484222325)
    i = 0
    while i + 8 <= size:
        h = (h ^ load_u64_native(p + i)) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        i += 8
    while i < size:
        h = (h ^ np.uint64(load_u8(p + i))) * np.uint64(0x100000001B3)
        i += 1
    h ^= h >> np.uint64(32)
    return np.int64(h & np.uint64(0x7FFFFFFF))


@kernel("int64(int64, int64)", short=True)
def topic_slot(p, size):  # type: ignore[no-untyped-def]
    """Hash of a topic's name, for the table of `SendFrames`."""
    return hash_of(p, size)


@njit
def find_topic(words, name, size):  # type: ignore[no-untyped-def]
    """Address of a topic of the table; 0: the table lacks it."""
    mask, slots = get(words, S_SLOT_MASK), get(words, S_SLOTS)
    slot = hash_of(name, size) & mask
    while True:
        number = np.int64(load_i32_native(slots + 4 * slot))
        if number == 0:
            return np.int64(0)
        topic = get(words, S_TOPICS) + 8 * TOPIC_WORDS * (number - 1)
        if get(topic, T_NAME_SIZE) == size and equal_bytes(get(topic, T_NAME), name, size):
            return topic
        slot = (slot + 1) & mask


def topic_entry(
    topic: bytes, numbers: npt.NDArray[np.int32], kept: list[npt.NDArray[np.generic]]
) -> npt.NDArray[np.int64]:
    """int64[TOPIC_WORDS], a topic as kernels read it: its name, and numbers of its queues.

    `kept`: gets the arrays to which the words point; they must live as long as these are read.
    """
    name, numbers = np.frombuffer(topic, np.uint8), np.ascontiguousarray(numbers, np.int32)
    kept += [name, numbers]
    return np.array([name.ctypes.data, name.size, numbers.size, numbers.ctypes.data], np.int64)


class TopicTable:
    """Topics by name, for `find_topic`.

    Args:
        words: The kernel's, which point to the table.
    """

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self._topics: dict[str, int] = {}
        self.forget_topics()

    def forget_topics(self) -> None:
        """Empty the table."""
        self._topics.clear()
        self._of_topics: list[npt.NDArray[np.generic]] = []
        self._entries = np.zeros(TOPIC_WORDS * 64, np.int64)
        self._make_slots(128)

    def has_topic(self, topic: str) -> bool:
        """Whether the table has a topic."""
        return topic in self._topics

    def add_topic(self, topic: str, numbers: npt.NDArray[np.int32]) -> None:
        """Let sends to a topic be plain.

        Args:
            topic: Up to 127 bytes.
            numbers: int32[queues], the number of each queue in the log's counters.
        """
        if topic in self._topics:
            return
        number = len(self._topics)
        if TOPIC_WORDS * (number + 1) > self._entries.size:
            self._entries = np.concatenate([self._entries, np.zeros_like(self._entries)])
        begin = TOPIC_WORDS * number
        self._entries[begin : begin + TOPIC_WORDS] = topic_entry(topic.encode(), numbers, self._of_topics)
        self._topics[topic] = number
        if 2 * len(self._topics) > self._slots.size:
            self._make_slots(2 * self._slots.size)
        else:
            self._fill_slot(topic, number)
        self.words[S_TOPICS // 8] = self._entries.ctypes.data

    def _make_slots(self, count: int) -> None:
        self._slots = np.zeros(count, np.int32)
        self.words[S_SLOTS // 8], self.words[S_SLOT_MASK // 8] = self._slots.ctypes.data, count - 1
        self.words[S_TOPICS // 8] = self._entries.ctypes.data
        for topic, number in self._topics.items():
            self._fill_slot(topic, number)

    def _fill_slot(self, topic: str, number: int) -> None:
        name = np.frombuffer(topic.encode(), np.uint8)
        slot = _kernels.topic_slot(name.ctypes.data, name.size) & (self._slots.size - 1)
        while self._slots[slot]:
            slot = (slot + 1) & (self._slots.size - 1)
        self._slots[slot] = number + 1


_kernels = sys.modules[__name__]
