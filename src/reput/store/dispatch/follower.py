"""What a store sees that another process dispatches: its thread looks at the marks, and writes nothing."""

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
    """Stands in for the thread that dispatches: `reput_from_offset` is how far the other process is, durably.

    Queues and index show what it wrote a moment later. The put side knows which queues can have grown, so only these
    are looked at, whatever the log's length.
    """

    def __init__(self, path: str, parts: Parts, config: MessageStoreConfig, files: FileLayer) -> None:
        super().__init__(parts.log, [], config)
        self._path = path
        self._marks_path = marks_path(path)
        self._parts = parts
        self._files = files
        self._seen: tuple[object, ...] = ()

    def run_once(self) -> int:
        """Look once; returns 1 if the other process has come further."""
        files, parts = self._files, self._parts
        if not files.exists(self._marks_path):  # between two versions of it there is none on some shared file systems
            return 0
        seen = (files.identity(self._marks_path), files.modified_ms(self._marks_path))
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
