"""LogRoom: where a kernel writes the next records of a commit log, and the shared words that say so."""

from __future__ import annotations

from typing import NamedTuple

#: The first shared words (`shared_words`) of a kernel that writes records: the address, log offset and queue
#: counters of the next record, which the kernel moves on, the end of the room, and the store time.
S_LOG, S_LOG_OFFSET, S_LOG_END, S_NOW, S_NEXT_OFFSETS = range(0, 5 * 8, 8)
#: How many they are.
ROOM_WORDS = 5


class LogRoom(NamedTuple):
    """Room at the end of the log.

    Attributes:
        view: Bytes of the mapped file, whose space is reserved.
        address: Of the first one.
        commit_log_offset: Of the first one.
        store_timestamp: ms, for the records.
        next_offsets: Address of int64[queues], the next queue offset by the queue's number; the kernel moves it on.
    """

    view: memoryview
    address: int
    commit_log_offset: int
    store_timestamp: int
    next_offsets: int

    def put(self, words: memoryview) -> None:
        """Set the first shared words of a kernel."""
        view, address, offset, now_ms, next_offsets = self
        end = address + len(view)
        words[0], words[1], words[2], words[3], words[4] = address, offset, end, now_ms, next_offsets
