"""Follower of an external dispatch: a thread of the store that reads the other process's marks, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        if not marks or marks[0].position.offset <= self.reput_from_offset:
            return 0
        position = marks[0].position
        offsets = parts.log.queue_offsets
        next_offsets = {key: offsets.values[number] for key, number in list(offsets.numbers.items())}
        store_timestamp = position.last.store_timestamp if position.last is not None else 0
        parts.queues.follow(next_offsets, position.offset, store_timestamp)
        if parts.index is not None and marks[0].index is not None:
            parts.index.follow(marks[0].index.name)
        self.reput_from_offset = position.offset
        self._tell_waiting()
        return 1

    def _rest(self) -> None:
        self._stopping.wait(_LOOK_EVERY_S)
