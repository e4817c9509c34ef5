"""Queue of a message group (`SendMessageQueueSelector`)."""

from __future__ import annotations

from reput.formats.java import string_hash

_MULTIPLIER, _MASK = 2862933555777941757, (1 << 64) - 1


def queue_of_group(message_group: str, queues: int) -> int:
    """The queue of a message group, by its Java hash."""
    return consistent_hash(string_hash(message_group), queues)


def consistent_hash(value: int, buckets: int) -> int:
    """The bucket of a number (Guava's `Hashing.consistentHash`): one more bucket moves as few numbers as it can."""
    state, candidate = value & _MASK, 0
    while True:
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
