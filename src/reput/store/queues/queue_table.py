"""Table of the queues of one type: by topic and queue id, and those that are not synced yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Set
from threading import Lock
from typing import Generic, TypeVar

from reput.files import FileLayer
from reput.log.directory import QueueFiles
from reput.log.geometry.file_sizes import QueueKind, check_queue_sizes
from reput.store.queues.folder import QueueFolder
from reput.store.queues.topic_begins import TopicBegins
from reput.store.queues.unsynced import UnsyncedQueues
from reput.store.statistics import TopicCounts

Q = TypeVar("Q", bound=QueueFolder)


class QueueTable(ABC, Generic[Q]):
    """Base class of `ConsumeQueueStore` and `BatchConsumeQueueStore`, which write and sync units in ways of their own.

    Args:
        files: The file layer.
        root: The store's directory.
        kind: What is true of all files of the type.
        file_size: Bytes of a queue file.
        counts: Counts of each topic since the store was opened.
        begins: Where the messages of deleted topics begin.

    Attributes:
        path: Folder of the queues.
    """

    def __init__(
        self,
        files: FileLayer,
        root: str,
        kind: QueueKind,
        file_size: int,
        counts: dict[str, TopicCounts],
        begins: TopicBegins | None = None,
    ) -> None:
        self._files = files
        self._root = root
        self._kind = kind
        self._table: dict[tuple[str, int], Q] = {}
        self._ids: dict[str, set[int]] = {}
        self._unsynced = UnsyncedQueues[Q]()
        self._flush_lock = Lock()
        self.path = f"{root}/{kind.folder}"
        self.file_size = file_size
        self.counts = counts
        self.begins = begins or TopicBegins()

    def check(self, listed: list[QueueFiles]) -> None:
        """Check the sizes of listed files; nothing is changed.

        Raises:
            StoreFormatError: Files have another size than the configured size, or several sizes.
        """
        check_queue_sizes(listed, self._kind, self._root, self.file_size)

    def find(self, topic: str, queue_id: int) -> Q | None:
        """The queue; None if no message was ever dispatched to it."""
        return self._table.get((topic, queue_id))

    def queue_ids(self, topic: str) -> Set[int]:
        """Ids of a topic's queues."""
        return frozenset(self._ids.get(topic, ()))

    @property
    def count(self) -> int:
        """Number of queues."""
        return len(self._table)

    def queues(self) -> list[Q]:
        """All queues, in no special order."""
        return list(self._table.values())

    def queues_of(self, topics: Iterable[str]) -> list[Q]:
        """All queues of some topics."""
        return [self._table[topic, queue_id] for topic in topics for queue_id in self.queue_ids(topic)]

    def remove(self, topic: str) -> None:
        """Forget a topic's queues and remove their files."""
        for queue_id in self.queue_ids(topic):
            queue = self._table.pop((topic, queue_id))
            queue.drop_mappings()
            self._unsynced.forget(queue)
        self._ids.pop(topic, None)
        folder = f"{self.path}/{topic}"
        if self._files.exists(folder):
            self._files.remove_tree(folder)

    def close(self) -> None:
        """Drop all maps; no file is open."""
        for queue in self.queues():
            queue.drop_mappings()

    def _found(self, topic: str, queue_id: int) -> Q:
        """The queue, which is made if there is none."""
        return self._table.get((topic, queue_id)) or self._make(topic, queue_id)

    def _make(self, topic: str, queue_id: int) -> Q:
        counts = self.counts.setdefault(topic, TopicCounts())
        queue = self._table[topic, queue_id] = self._new(f"{self.path}/{topic}/{queue_id}", topic, queue_id, counts)
        self._ids.setdefault(topic, set()).add(queue_id)
        return queue

    @abstractmethod
    def _new(self, path: str, topic: str, queue_id: int, counts: TopicCounts) -> Q:
        """A queue without messages, whose folder need not be there."""
