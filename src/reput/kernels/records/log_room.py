"""LogRoom: where a kernel writes the next records of a commit log, and the words of its block that say so."""

from __future__ import annotations

from typing import NamedTuple

#: The first words of the block (see `blocks`) of a kernel that writes records: the address, log offset and queue
#: counters of the next record, which the kernel moves on, the end of the room, and the store time.
B_LOG, B_LOG_OFFSET, B_LOG_END, B_NOW, B_NEXT_OFFSETS = range(0, 5 * 8, 8)
#: How many they are.
ROOM_WORDS = 5


class LogRoom(NamedTuple):
    """Room at the end of the log.

    Attributes:
        address: In the mapped file; the space is reserved.
        commit_log_offset: Of that address.
        size: Bytes there.
        store_timestamp: ms, for the records.
        next_offsets: Address of int64[queues], the next queue offset by the queue's number; the kernel moves it on.
    """

    address: int
    commit_log_offset: int
    size: int
    store_timestamp: int
    next_offsets: int

    def put(self, words: memoryview) -> None:
        """Set the first words of a block."""
        address, offset, size, now_ms, next_offsets = self
        words[0], words[1], words[2], words[3], words[4] = address, offset, address + size, now_ms, next_offsets
