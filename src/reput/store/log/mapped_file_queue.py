"""The files of the commit log, one behind the other: which one holds an offset, and the next one made ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreFormatError, StoreFullError
from reput.files import FileLayer, Mapping
from reput.formats.paths import offset_to_file_name
from reput.kernels.index_file import LogPlace
from reput.log.directory import LogFile
from reput.store.log.mapped_file import MappedFile

#: Maps of log files at a time; Linux allows a process 65 530 of all kinds (vm.max_map_count).
_MAX_MAPS = 4096
#: Of a log of so many files at the most, all may be mapped at once.
FEW_LOG_FILES = 64


class LogMaps(NamedTuple):
    """Mapped files of the log at one moment: while this is held they stay mapped, even if retention deletes them.

    Attributes:
        begin_offset: Where the first file starts.
        addresses: int64[files], where each file is mapped, for kernels; 0 for those that are not.
        mappings: The maps, by the file's place in `addresses`.
        place: `LogPlace` of them, int64.
        place_address: Where that lies, for asking takes a microsecond.
    """

    begin_offset: int
    addresses: npt.NDArray[np.int64]
    mappings: dict[int, Mapping]
    place: npt.NDArray[np.int64]
    place_address: int


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
        self._maps: tuple[list[MappedFile], LogMaps] | None = None
        self._mapped_count = 0
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
                    f"mappedFileSizeCommitLog={file.size} (to a command: --set) if the store was written with it, "
                    "else restore the file"
                )
        self.mapped_files = [self._file(file.path, file.start_offset, writable=self._writable) for file in found]

    def _file(self, path: str, start_offset: int, *, writable: bool) -> MappedFile:
        return MappedFile(
            self._files, path, start_offset, self.file_size,
            writable=writable, on_map=self._count_map, read_ahead=self._read_ahead,
        )  # fmt: skip

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

    def maps(self, offsets: npt.NDArray[np.int64] | None = None) -> LogMaps:
        """Maps of the files that some offsets fall into, which are few of a log of a terabyte.

        Of a log of up to `FEW_LOG_FILES` files, and with None, of all files.
        """
        files = self.mapped_files  # one list for all that follows: retention replaces it
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
            addresses[i] = mapping.address
        begin = files[0].start_offset if files else 0
        place = np.array(LogPlace(addresses.ctypes.data, addresses.size, begin, self.file_size), np.int64)
        return LogMaps(begin, addresses, mappings, place, place.ctypes.data)

    def _count_map(self, mapped: MappedFile) -> None:
        """Drop the maps of all other files once there are too many; they are back in 20 us each."""
        self._mapped_count += 1
        if self._mapped_count > _MAX_MAPS:
            self._mapped_count, self._maps = 1, None
            for file in self.mapped_files:
                if file is not mapped:
                    file.drop_mapping()

    def drop_maps(self) -> None:
        """Let go of all maps, and of all descriptors but the last file's: a start looks at many files."""
        self._mapped_count, self._maps = 0, None
        for file in self.mapped_files:
            file.drop_mapping()
            if file is not self.mapped_files[-1]:
                file.close_descriptor()

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
        file = self._file(path, self._end, writable=True)
        try:
            file.create()
            if self._warm_sync_bytes is not None:
                file.warm(self._warm_sync_bytes)
        except BaseException:
            file.close()
            raise
        return file

    def path_of(self, offset: int) -> str:
        """Where the file that holds an offset is, or would be."""
        file = self.find(offset)
        return file.path if file is not None else self._paths_of(offset - offset % self.file_size)[0]

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

    def remove_ahead(self) -> None:
        """Remove the file that was made ahead, or that could not be made to the end."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        for path in self._paths_of(self._end):
            if self._files.exists(path):
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
                self._maps = None  # it would keep the bytes, and their place on the disk

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
        self._files.sync_files([file.path for file in self.mapped_files if file.start_offset + file.size > offset])

    def write_again_from(self, offset: int, progress: Callable[[str, int, int], None]) -> None:
        """Write again and sync what is read, from the file that holds an offset on; see `File.write_again`."""
        chosen = [file for file in self.mapped_files if file.start_offset + file.size > offset]
        for number, file in enumerate(chosen):
            progress("writing again what a failed sync may have lost", number * file.size, len(chosen) * file.size)
            file.file.write_again()

    def close(self) -> None:
        """Close all files; one that was made ahead and not used is removed, as RocketMQ does at shutdown."""
        for file in self.mapped_files:
            file.close()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
            self._files.unlink(ahead.path)
