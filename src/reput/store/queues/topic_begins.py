"""Begins of topics that were deleted: a record that lies before its topic's begin is no message of the topic any more.

Starts and rebuilds build queues of the whole log, so no unit goes. A begin lets the queues of its topic begin later, as
the log's own begin does for all queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType

from reput.store.queues.folder import QueueFolder


class TopicBegins:
    """Commit log offsets by topic (`Topics.begin_offset_table`), and the min offsets that they lead to.

    Attributes:
        table: By topic, the end of the log when the topic was deleted.
        end: The greatest of them. Units that are dispatched for records after it are of messages.
    """

    def __init__(self) -> None:
        self.table: Mapping[str, int] = MappingProxyType({})
        self.end = 0
        self._raising = Lock()

    def take(self, table: Mapping[str, int]) -> list[str]:
        """Take over a table; returns the topics that have another begin than before."""
        before, self.table = self.table, MappingProxyType(dict(table))
        self.end = max(table.values(), default=0)
        return [topic for topic, begin in table.items() if begin != before.get(topic)]

    def least(self, topic: str, min_commit_log_offset: int) -> int:
        """Commit log offset at which the messages of a topic begin, in a log that begins at an offset."""
        return max(self.table.get(topic, 0), min_commit_log_offset)

    def raise_min(self, queue: QueueFolder, offset: int) -> None:
        """Let a queue begin at an offset, if no other thread, which has seen more units, has let it begin later."""
        with self._raising:
            if offset > queue.min_offset:
                queue.min_offset = offset
