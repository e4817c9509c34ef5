"""The files of the commit log, one behind the other: which one holds an offset, and the next one made ahead."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreFormatError, StoreFullError
from reput.files import FileLayer
from reput.formats.paths import offset_to_file_name
from reput.log.directory import LogFile
from reput.store.mapped_file import MappedFile


class MappedFiles(NamedTuple):
    """The files of one moment: while this is held, their bytes stay mapped, even if retention deletes them.

    Attributes:
        files: In order.
        addresses: int64[files], where each is mapped, for kernels.
    """

    files: list[MappedFile]
    addresses: npt.NDArray[np.int64]

    @property
    def min_offset(self) -> int:
        """Where the first file starts; 0 when there is none."""
        return self.files[0].start_offset if self.files else 0


class MappedFileQueue:
    """RocketMQ's `MappedFileQueue` for the commit log. Offsets are of the log, positions within one file.

    Args:
        folders: Where new files go: to each in its turn, by their place in the log (`MultiPathMappedFileQueue`).

    `warm_sync_bytes`: warm each new file, syncing after so many bytes (0: at the end only); None: do not.
    `read_ahead`: let the system read ahead in the maps (`dataReadAheadEnable`).
    """

    def __init__(
        self,
        files: FileLayer,
        folders: Sequence[str],
        file_size: int,
        *,
        writable: bool,
        warm_sync_bytes: int | None = None,
        read_ahead: bool = True,
    ) -> None:
        self._files = files
        self.folders = folders
        self._writable = writable
        self._read_ahead = read_ahead
        self._warm_sync_bytes = warm_sync_bytes
        self._mapped: MappedFiles | None = None
        self._changing = Lock()
        self._ahead: MappedFile | None = None
        self.file_size = file_size
        #: Replaced by a new list, never changed: readers take it without a lock, and go by the one they took.
        self.mapped_files: list[MappedFile] = []

    def load(self, found: list[LogFile]) -> None:
        """Take over the files that a directory listing found, all of them full as far as one knows.

        Raises:
            StoreFormatError: A file has another size than the configured one.
        """
        for file in found:
            if file.size != self.file_size:
                raise StoreFormatError(
                    f"{file.path}: {file.size} bytes, but mappedFileSizeCommitLog is {self.file_size}; give "
                    f"mappedFileSizeCommitLog={file.size} if the store was written with it, else restore the file"
                )
        self.mapped_files = [
            MappedFile(
                self._files, file.path, file.start_offset, file.size,
                writable=self._writable, read_ahead=self._read_ahead,
            )
            for file in found
        ]  # fmt: skip

    @property
    def min_offset(self) -> int:
        """The log's first offset; 0 when there is no file."""
        files = self.mapped_files
        return files[0].start_offset if files else 0

    @property
    def max_offset(self) -> int:
        """Behind the last byte written; 0 when there is no file."""
        files = self.mapped_files
        if not files:
            return 0
        last = files[-1]
        return last.start_offset + last.wrote_position

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds an offset."""
        files = self.mapped_files
        if not files:
            return None
        index = offset // self.file_size - files[0].start_offset // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def mapped(self) -> MappedFiles:
        """The files as they are now, every one mapped; to be held while a kernel works on their addresses."""
        mapped, files = self._mapped, self.mapped_files
        if mapped is None or mapped.files is not files:
            mapped = MappedFiles(files, np.array([file.address for file in files], np.int64))
            self._mapped = mapped
        return mapped

    def next_file(self) -> MappedFile:
        """The file behind the last one: the one made ahead, or a new one. It is not part of the queue yet.

        Raises:
            StoreFullError: No space for it; nothing has changed.
        """
        self.make_ahead()
        assert self._ahead is not None
        return self._ahead

    def make_ahead(self) -> None:
        """Make the next file before it is needed (`AllocateMappedFileService`)."""
        if self._ahead is None:
            paths = self._paths_of(self._end)
            for path in paths:
                try:
                    self._ahead = self._make(path)
                    break
                except StoreFullError:
                    if path == paths[-1]:
                        raise
                    if self._files.exists(path):  # one name must not lie in two folders, after a power cut neither
                        self._files.unlink(path)
                        self._files.sync_directory(path.rpartition("/")[0])

    def _make(self, path: str) -> MappedFile:
        size = self.file_size
        file = MappedFile(self._files, path, self._end, size, writable=True, read_ahead=self._read_ahead)
        try:
            file.create()
            if self._warm_sync_bytes is not None:
                file.warm(self._warm_sync_bytes)
        except BaseException:
            file.close()
            raise
        return file

    def _paths_of(self, start: int) -> list[str]:
        """Where the file that begins at an offset goes, and where else if there is no space."""
        first = start // self.file_size % len(self.folders)
        return [f"{folder}/{offset_to_file_name(start)}" for folder in (*self.folders[first:], *self.folders[:first])]

    @property
    def _end(self) -> int:
        """Where the file behind the last one starts."""
        return self.mapped_files[-1].start_offset + self.file_size if self.mapped_files else 0

    def remove_empty_file(self) -> None:
        """Remove the file that a kill left without a length behind the last one, as RocketMQ does at its start."""
        for path in self._paths_of(self._end):
            if self._files.exists(path) and self._files.file_size(path) == 0:
                self._files.unlink(path)

    def append_file(self, file: MappedFile) -> None:
        """Make `next_file` the last one of the queue."""
        assert file is self._ahead
        self._ahead = None
        with self._changing:
            self.mapped_files = [*self.mapped_files, file]

    def delete_first_file(self) -> None:
        """Delete the oldest file, durably; readers that have found it go on reading. Never called for the last one."""
        first = self.mapped_files[0]
        assert first is not self.mapped_files[-1], "the last file of the log is never deleted"
        try:
            first.destroy()
        finally:
            if not self._files.exists(first.path):
                with self._changing:
                    self.mapped_files = self.mapped_files[1:]
                self._mapped = None  # it would keep the bytes, and their place on the disk

    def truncate(self, offset: int) -> int:
        """Cut the log at an offset: what lies behind is zeroed and synced, later files are removed; last file first.

        Returns:
            How many bytes were not zero.
        """
        changed = 0
        while self.mapped_files and self.mapped_files[-1].start_offset >= offset and len(self.mapped_files) > 1:
            *self.mapped_files, file = self.mapped_files
            file.close()
            self._files.unlink(file.path)
        if self.mapped_files:
            last = self.mapped_files[-1]
            position = max(0, offset - last.start_offset)
            changed = last.file.zero_from(position)
            last.file.sync()
            last.wrote_position = last.flushed_position = position
            last.reserved_position = position
        return changed

    def sync_from(self, offset: int) -> None:
        """Sync the file that holds an offset, and those behind it."""
        for file in self.mapped_files:
            if file.start_offset + file.size > offset:
                file.file.sync()

    def close(self) -> None:
        """Close all files; one that was made ahead and not used is removed, as RocketMQ does at shutdown."""
        for file in self.mapped_files:
            file.close()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
            self._files.unlink(ahead.path)
