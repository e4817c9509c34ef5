"""Files of the commit log, in order: find the file of an offset, make the next file ahead, cut, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError, StoreFormatError, StoreFullError, StoreStateError, StoreSyncError
from reput.files import FileLayer, Mapping, about_to_wait
from reput.files.truncate import truncate_files
from reput.formats.paths import offset_to_file_name
from reput.kernels.queues.index_search import LogFields
from reput.log.directory import LogFile
from reput.progress import Progress
from reput.store.log.mapped_file import MappedFile

#: Maps of log files at a time; Linux allows a process 65 530 maps of all kinds (vm.max_map_count).
_MAX_MAPS = 4096
#: A log of this many files at the most may have all of them mapped at once.
FEW_LOG_FILES = 64


class LogMaps(NamedTuple):
    """Mapped files of the log at one moment: they stay mapped while this is held, even if retention deletes them.

    Attributes:
        begin_offset: Commit log offset at which the first file starts.
        addresses: int64[files], address of the `MapFields` of each mapped file, for kernels; 0 for files that are not.
        mappings: The maps, by the file's number in `addresses`.
        fields: The log's `LogFields`, int64.
        fields_address: Memory address of `fields`, as asking for it takes a microsecond.
    """

    begin_offset: int
    addresses: npt.NDArray[np.int64]
    mappings: dict[int, Mapping]
    fields: npt.NDArray[np.int64]
    fields_address: int


def _take_all(_path: str, _bytes: int, _end: int) -> None:
    """Nothing else needs the disk."""


class MappedFileQueue:
    """RocketMQ's `MappedFileQueue` for the commit log. Offsets are of the log, positions within one file.

    Args:
        files: The file layer.
        folders: Folders of new files, which take turns by the file's number (`MultiPathMappedFileQueue`).
        file_size: Bytes of a file.
        writable: Whether files may be made and changed.
        warm_sync_bytes: Warm each new file, with a sync each time after these bytes (0: only at the end); None: no.
        read_ahead: Let the system read ahead in the maps (`dataReadAheadEnable`).
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
        self._maps: tuple[list[MappedFile], LogMaps] | None = None
        self._mapped_count = 0
        self._changing = Lock()
        self._making = Lock()
        self._ahead: MappedFile | None = None  # the file made ahead last; `made_ahead` says whether it still is
        self._left = ""  # a file that could not be made, and not be removed
        self._is_closed = False
        self.file_size = file_size
        #: Start of the first file, if there is none yet: a master's log may begin later than at 0.
        self.first_offset = 0
        #: Replaced by a new list, never changed in place: readers take it without a lock, and keep to it.
        self.mapped_files: list[MappedFile] = []
        #: Called before a file takes disk space, with a path on its disk, how many bytes it takes, and the commit log
        #: offset up to which records then have room; raises StoreFullError. A store that dispatches sets it.
        self.check_space: Callable[[str, int, int], None] = _take_all

    def load(self, listed: list[LogFile]) -> None:
        """Take over listed files. They count as full until the log's end is found.

        Raises:
            StoreFormatError: A file has another size than the configured size.
        """
        for file in listed:
            if file.size != self.file_size:
                raise StoreFormatError(
                    f"{file.path}: {file.size} bytes, but mappedFileSizeCommitLog is {self.file_size}; give "
                    f"mappedFileSizeCommitLog={file.size} (to a command: --set) if the store was written with it, "
                    "else restore the file"
                )
        self.mapped_files = [self._file(file.path, file.start_offset, writable=self._writable) for file in listed]

    def show_from(self, offset: int) -> None:
        """Show what another process has written from an offset on."""
        self._maps = None
        for file in reversed(self.mapped_files):
            if file.start_offset + file.size <= offset:
                break
            file.drop_stale_mapping()

    def follow(self, listed: list[LogFile]) -> None:
        """Take over the files as another process has made and deleted them; all but the last one are full."""
        known = {file.start_offset: file for file in self.mapped_files}
        files = [
            known.get(file.start_offset) or self._file(file.path, file.start_offset, writable=False) for file in listed
        ]
        for file in files[:-1]:
            file.wrote_position = file.size
        self.mapped_files = files

    def _file(self, path: str, start_offset: int, *, writable: bool) -> MappedFile:
        return MappedFile(
            self._files, path, start_offset, self.file_size,
            writable=writable, on_map=self._count_map, check_space=self._check_space, read_ahead=self._read_ahead,
        )  # fmt: skip

    def _check_space(self, path: str, taken: int, record_bytes: int) -> None:
        """Before a file takes space of the disk for `record_bytes` more of records: see `check_space`."""
        self.check_space(path, taken, self.room_end + record_bytes)

    @property
    def room_end(self) -> int:
        """Offset after the records for which disk space is reserved, if they come without a gap."""
        ahead = self.made_ahead
        files = (*self.mapped_files[-1:], *([ahead] if ahead is not None else []))
        return self.max_offset + sum(max(0, file.reserved_position - file.wrote_position) for file in files)

    @property
    def min_offset(self) -> int:
        """The log's first offset."""
        files = self.mapped_files
        return files[0].start_offset if files else self.first_offset

    @property
    def max_offset(self) -> int:
        """Offset after the last written byte."""
        files = self.mapped_files
        if not files:
            return self.first_offset
        last = files[-1]
        return last.start_offset + last.wrote_position

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds an offset; None if there is no such file."""
        files = self.mapped_files
        if not files:
            return None
        index = offset // self.file_size - files[0].start_offset // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def maps(self, offsets: npt.NDArray[np.int64] | None = None) -> LogMaps:
        """Map the files that hold some offsets: of a log of a terabyte these are few files.

        All files are mapped with None, and if the log has up to `FEW_LOG_FILES` files.
        """
        files = self.mapped_files  # the same list until the end: retention replaces it
        if offsets is None or len(files) <= FEW_LOG_FILES:
            kept = self._maps
            if kept is None or kept[0] is not files:
                kept = self._maps = files, self._maps_of(files, range(len(files)))
            return kept[1]
        wanted = np.unique((offsets - files[0].start_offset) // self.file_size)
        return self._maps_of(files, wanted[(wanted >= 0) & (wanted < len(files))].tolist())

    def _maps_of(self, files: list[MappedFile], wanted: Sequence[int]) -> LogMaps:
        mappings = {i: files[i].mapping for i in wanted}
        addresses = np.zeros(len(files), np.int64)
        for i, mapping in mappings.items():
            addresses[i] = mapping.fields
        begin = files[0].start_offset if files else 0
        fields = np.array(LogFields(addresses.ctypes.data, addresses.size, begin, self.file_size), np.int64)
        return LogMaps(begin, addresses, mappings, fields, fields.ctypes.data)

    def _count_map(self, mapped: MappedFile) -> None:
        """Drop the maps of all other files once there are too many; they are back in 20 us each."""
        self._mapped_count += 1
        if self._mapped_count > _MAX_MAPS:
            self._mapped_count, self._maps = 1, None
            for file in self.mapped_files:
                if file is not mapped:
                    file.drop_mapping()

    def drop_maps(self) -> None:
        """Drop all maps, and close all descriptors but the last file's: a start opens many files."""
        self._mapped_count, self._maps = 0, None
        for file in self.mapped_files:
            file.drop_mapping()
            if file is not self.mapped_files[-1]:
                file.close_descriptor()

    def next_file(self) -> MappedFile:
        """The file after the last file: the file made ahead, or a new one. It is not part of the queue yet.

        Raises:
            StoreFullError: No space for it; nothing has changed.
            WouldWaitError: In `NeverWaiting`, if it has not been made ahead.
        """
        return self.made_ahead or self.make_ahead()

    @property
    def made_ahead(self) -> MappedFile | None:
        """The file that was made ahead; None if there is none."""
        ahead = self._ahead
        return ahead if ahead is not None and ahead.start_offset == self._end else None

    def make_ahead(self) -> MappedFile:
        """Make the file after the last file, if that has not been done; any thread.

        Errors as of `next_file`. No file becomes the last file meanwhile, but this one.
        """
        about_to_wait(self.folders[0], "make the next file")  # before the lock, whose holder waits for the disk
        with self._making:
            if self._is_closed:
                raise StoreStateError(f"{self.folders[0]}: the store was closed meanwhile")
            return self.made_ahead or self._make_ahead()

    def _make_ahead(self) -> MappedFile:
        self._remove_left()
        paths = self._paths_of(self._end)
        *others, last = [self._left] if self._left in paths else paths
        for path in others:
            try:
                self._ahead = self._make(path)
                return self._ahead
            except StoreFullError:
                if self._left:  # two folders must not have the same name, not even after a power cut
                    raise
        self._ahead = self._make(last)
        return self._ahead

    def _make(self, path: str) -> MappedFile:
        file = self._file(path, self._end, writable=True)
        try:
            file.create()
            if self._warm_sync_bytes is not None:
                file.warm(self._warm_sync_bytes)
        except StoreSyncError:
            file.close()
            raise
        except BaseException:  # a full disk: nobody would have the bytes that it has got
            file.close()
            if self._files.exists(path):
                self._left = path
            self._remove_left()
            raise
        self._left = ""
        return file

    def _remove_left(self) -> None:
        """Remove the file that could not be made. One that cannot be removed stays, and the next try makes it."""
        if self._left:
            with suppress(StoreError):
                if self._files.exists(self._left):
                    self._files.unlink(self._left)
                else:
                    self._files.sync_directory(self._left.rpartition("/")[0])
                self._left = ""

    def path_of(self, offset: int) -> str:
        """Path of the file that holds an offset, or would hold it."""
        file = self.find(offset)
        return file.path if file is not None else self._paths_of(offset - offset % self.file_size)[0]

    def _paths_of(self, start: int) -> list[str]:
        """Paths for the file that begins at an offset: where it goes, then the other folders, for lack of space."""
        first = start // self.file_size % len(self.folders)
        return [f"{folder}/{offset_to_file_name(start)}" for folder in (*self.folders[first:], *self.folders[:first])]

    @property
    def _end(self) -> int:
        """Offset at which the file after the last file starts."""
        return self.mapped_files[-1].start_offset + self.file_size if self.mapped_files else self.first_offset

    def remove_empty_file(self) -> None:
        """Remove the file without a length that a kill left after the last file, as RocketMQ does at its start."""
        for path in self._paths_of(self._end):
            if self._files.exists(path) and self._files.file_size(path) == 0:
                self._files.unlink(path)

    def remove_ahead(self) -> None:
        """Remove the file that was made ahead, also if it was made in part only."""
        ahead, self._ahead = self.made_ahead, None
        if ahead is not None:
            ahead.close()
        for path in self._paths_of(self._end):
            if self._files.exists(path):
                self._files.unlink(path)

    def append_file(self, file: MappedFile) -> None:
        """Make `next_file` the last file of the queue."""
        assert file is self._ahead
        with self._changing:
            self.mapped_files = [*self.mapped_files, file]

    def delete_first_file(self) -> None:
        """Delete the oldest file, durably; readers that hold it go on reading. Never called for the last file."""
        first = self.mapped_files[0]
        assert first is not self.mapped_files[-1], "the last file of the log is never deleted"
        try:
            first.destroy()
        finally:
            if not self._files.exists(first.path):
                with self._changing:
                    self.mapped_files = self.mapped_files[1:]
                self._maps = None  # these maps would keep the file's bytes on the disk

    def truncate(self, offset: int) -> None:
        """Cut the log at an offset, durably: later files are removed, and the bytes after it are zeros."""
        series = [(file.path, file.start_offset) for file in self.mapped_files]
        while len(self.mapped_files) > 1 and self.mapped_files[-1].start_offset >= offset:
            *self.mapped_files, file = self.mapped_files
            file.close()
        truncate_files(self._files, series, offset)
        if self.mapped_files:
            last = self.mapped_files[-1]
            last.wrote_position = last.flushed_position = last.reserved_position = max(0, offset - last.start_offset)

    def sync_from(self, offset: int) -> None:
        """Sync the file that holds an offset, and all files after it."""
        self._files.sync_files([file.path for file in self.mapped_files if file.start_offset + file.size > offset])

    def write_again_from(self, offset: int, progress: Progress) -> None:
        """Write again and sync what is read, from the file that holds an offset on; see `File.write_again`."""
        chosen = [file for file in self.mapped_files if file.start_offset + file.size > offset]
        for number, file in enumerate(chosen):
            progress(number * file.size, len(chosen) * file.size, "writing again what a failed sync may have lost")
            file.file.write_again()

    def close(self) -> None:
        """Close all files; a file that was made ahead and not used is removed, as RocketMQ does at shutdown.

        A file that is being made is finished first, and no other one is made.
        """
        with self._making:
            self._is_closed = True
            self._remove_left()
        for file in self.mapped_files:
            file.close()
        ahead, self._ahead = self.made_ahead, None
        if ahead is not None:
            ahead.close()
            self._files.unlink(ahead.path)
