"""Files of one queue, of either type: named by their first byte, mapped for readers, deleted oldest first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from reput.files import FileLayer, Mapping
from reput.formats.paths import offset_to_file_name
from reput.log.directory import numbered_files, open_listed
from reput.store.statistics import TopicCounts


def make_next_file(files: FileLayer, folder: str, starts: Sequence[int], start: int, file_size: int) -> None:
    """Make a file of a queue or of its extension, after all its files; the new name is for the caller to sync.

    The last file before it is synced first, and its name: a power cut may take the last file of a queue, which is
    written again, but must not leave a file after a gap.
    """
    if starts:
        with files.open(f"{folder}/{offset_to_file_name(starts[-1])}", writable=True) as before:
            before.sync()
        files.sync_directory(folder)
    files.open(f"{folder}/{offset_to_file_name(start)}", writable=True, create=True, size=file_size).close()


class QueueFolder(ABC):
    """Base class of `ConsumeQueue` and `BatchConsumeQueue`: the files of one queue.

    Args:
        files: The file layer.
        path: The queue's folder.
        topic: The topic.
        queue_id: The queue.
        file_size: Bytes of a file.
        counts: The topic's counts since the store was opened.
        on_dirty: Called with the queue after a write to it.

    Attributes:
        max_offset: The queue offset of the next message.
        min_offset: The first queue offset whose record the log still has, as of the last look.
        max_physical_offset: Commit log offset after the record of the last unit; -1 if there is no unit.
        dirty: First byte of each file with units that are not known to be on the disk.
    """

    __slots__ = (
        "_files",
        "_lock",
        "_mappings",
        "_on_dirty",
        "_starts",
        "counts",
        "dirty",
        "file_size",
        "max_offset",
        "max_physical_offset",
        "min_offset",
        "path",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        files: FileLayer,
        path: str,
        topic: str,
        queue_id: int,
        file_size: int,
        counts: TopicCounts,
        on_dirty: Callable[[Any], None],
    ) -> None:
        self._files = files
        self._starts: list[int] = []
        self._mappings: dict[int, Mapping] = {}
        self._lock = Lock()
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self.file_size = file_size
        self.counts = counts
        self.max_offset = 0
        self.min_offset = 0
        self.max_physical_offset = -1
        self.dirty: set[int] = set()
        self._on_dirty = on_dirty

    @property
    def file_starts(self) -> list[int]:
        """First byte of each file in the queue, as the file's name says."""
        return self._starts

    def file_path(self, start: int) -> str:
        """Path of the file that begins at a byte of the queue."""
        return f"{self.path}/{offset_to_file_name(start)}"

    def mark_dirty(self, start: int) -> None:
        """Count the file that begins at a byte of the queue as unsynced; only after the write, for a flush takes it."""
        self.dirty.add(start)
        self._on_dirty(self)

    def find_files(self) -> None:
        """Take over the files that another process has made."""
        starts = [file.start_offset for file in numbered_files(self._files, self.path)]
        with self._lock:
            self._starts = starts

    def _map(self, start: int) -> Mapping | None:
        """Map the file that begins at a byte of the queue; None if the file is gone."""
        with self._lock:
            index = bisect_right(self._starts, start) - 1
            if index < 0 or self._starts[index] != start:
                return None
            with open_listed(self._files, self.file_path(start)) as file:
                # Without random access the first store into a hole reads ahead up to 8 MiB: a whole queue file.
                mapping = self._mappings[start] = file.map(random=True, expected=self.file_size)
        return mapping

    def drop_mappings(self) -> None:
        """Drop the maps; each map lives as long as somebody reads it."""
        self._mappings.clear()

    def _make_file(self, start: int) -> None:
        """Make the file that begins at a byte of the queue."""
        make_next_file(self._files, self.path, self._starts, start, self.file_size)
        with self._lock:
            self._starts.append(start)

    def _wipe_from(self, position: int, removed: Sequence[int]) -> None:
        """Remove the files that begin at the bytes `removed`, and zero the last remaining file from `position` on."""
        for start in reversed(removed):  # the last file first: where this is killed, the remaining files have no gap
            self._files.unlink(self.file_path(start))
            self._starts.remove(start)
            self._mappings.pop(start, None)
            self.dirty.discard(start)
        if self._starts:
            last = self._starts[-1]
            with self._files.open(self.file_path(last), writable=True) as file:
                if file.zero_from(position - last):
                    self.mark_dirty(last)

    @property
    @abstractmethod
    def end_position(self) -> int:
        """Byte of the queue after the last unit."""

    def write_again(self) -> None:
        """Write again and sync what is read, from the file of the last unit on; see `File.write_again`."""
        for start in self._starts:
            if start + self.file_size >= self.end_position:
                with self._files.open(self.file_path(start), writable=True) as file:
                    file.write_again()

    def _delete_first(self) -> str:
        """Delete the oldest file and return its path; called while no flush runs."""
        start = self._starts[0]
        path = self.file_path(start)
        with self._lock:  # no reader maps it any more, and none waits for the disk
            del self._starts[0]
        try:
            self._files.unlink(path)
        finally:
            if self._files.exists(path):
                with self._lock:
                    self._starts.insert(0, start)
            else:
                self._mappings.pop(start, None)
                self.dirty.discard(start)
        return path
