"""Follower of an external dispatch: a thread of the store that reads the other process's marks, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.files import FileLayer
from reput.log.dispatch_marks import marks_path, read_marks
from reput.store.dispatch.reput import ReputMessageService

if TYPE_CHECKING:
    from reput.store.parts import Parts

_LOOK_EVERY_S = 0.01


class DispatchFollower(ReputMessageService):
    """In place of the thread that dispatches: `reput_from_offset` is the offset of the other process's last mark.

    Queues and index show what the other process wrote a moment later. The put side knows which queues can have grown,
    so only these are read, whatever the log's length.
    """

    def __init__(self, path: str, parts: Parts, config: MessageStoreConfig, files: FileLayer) -> None:
        super().__init__(parts.log, [], config)
        self._path = path
        self._marks_path = marks_path(path)
        self._parts = parts
        self._files = files
        self._seen = b""
        #: Queues in the order of `QueueOffsets.numbers`, and the queue offset up to which each one was followed.
        self._keys: list[tuple[str, int]] = []
        self._followed = np.empty(0, np.int64)

    def run_once(self) -> int:
        """Read the marks once; returns 1 if the other process has come further, else 0."""
        files, parts = self._files, self._parts
        if not files.exists(self._marks_path):  # on some shared file systems it is missing while it is replaced
            return 0
        # Its inode and its time do not tell: each mark is a new file, with the inode of the one before the last one.
        seen = files.read_bytes(self._marks_path)
        if seen == self._seen:
            return 0
        self._seen = seen
        marks = read_marks(self._path, files)
        if not marks or marks[0].point.offset <= self.reput_from_offset:
            return 0
        point = marks[0].point
        self._follow_queues(point.offset, point.last.store_timestamp if point.last is not None else 0)
        if parts.index is not None and marks[0].index is not None:
            parts.index.follow(marks[0].index.name)
        self.reput_from_offset = point.offset
        self._tell_waiting()
        return 1

    def _follow_queues(self, end_offset: int, store_timestamp: int) -> None:
        """Take over the units of queues whose next offset on the put side is not the one they were followed up to."""
        offsets, queues = self._parts.log.queue_offsets, self._parts.queues
        if len(offsets.numbers) > len(self._keys):
            self._keys = list(offsets.numbers)
            room = len(self._keys) - self._followed.size
            self._followed = np.append(self._followed, np.full(room, -1, np.int64))
        ends = offsets.array[: len(self._keys)].copy()
        grown = np.flatnonzero(ends != self._followed).tolist()
        queues.follow({self._keys[number]: int(ends[number]) for number in grown}, end_offset, store_timestamp)
        for number in grown:
            self._followed[number] = queues.max_offset(self._keys[number])

    def _rest(self) -> None:
        self._stopping.wait(_LOOK_EVERY_S)
