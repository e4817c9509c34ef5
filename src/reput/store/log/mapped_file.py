"""One commit log file: mapped, with disk space reserved before bytes are written."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

import numpy as np

from reput.files import PAGE_SIZE, File, FileLayer, Mapping, about_to_wait
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.log.directory import open_listed

#: Disk space is reserved in steps of this many bytes. A step takes 70 us, and a fresh store stays small.
RESERVE_STEP = 32 << 20


class Scanner(Protocol):
    """The interface of `RecordScanner` that a scan of a mapped file needs."""

    @property
    def scan(self) -> Callable[..., RecordColumns]:
        """Scans the records from a buffer's start on; arguments as of `RecordScanner.scan`."""


class MappedFile:
    """A file of fixed size that begins at `start_offset` of the log; opened and mapped when it is first used.

    A file that is full and flushed needs no descriptor any more (`close_descriptor`). The map stays, for readers.

    Single records are written through the map, as a system call gives the interpreter lock away; batches go by `write`.
    Both meet in the page cache. Space is reserved before it is written, so a full disk is an error and never a signal.
    The map is writable once bytes are to be appended (`begin_appending`).
    The file is synced through its descriptor, as `mmap.flush` keeps the interpreter lock.

    Args:
        files: The file layer.
        path, start_offset, size: The file.
        writable: Whether it may be written.
        on_map: Called after the file was mapped.
        check_space: Called before disk space is taken, with a path on its disk, how many bytes are taken, and for how
            many bytes of records; raises StoreFullError if they are not to be taken.
        read_ahead: Let the system read ahead in the map.

    Attributes:
        wrote_position: Position after the last written byte.
        flushed_position: Position up to which bytes are known to be on the disk.
    """

    __slots__ = (
        "_check_space",
        "_file",
        "_files",
        "_is_appended",
        "_mapping",
        "_mapping_lock",
        "_on_map",
        "_read_ahead",
        "_reserving",
        "_writable",
        "flushed_position",
        "path",
        "reserved_position",
        "size",
        "start_offset",
        "wrote_position",
    )

    def __init__(
        self,
        files: FileLayer,
        path: str,
        start_offset: int,
        size: int,
        *,
        writable: bool,
        on_map: Callable[[MappedFile], None],
        check_space: Callable[[str, int, int], None],
        read_ahead: bool = True,
    ) -> None:
        self._files = files
        self._on_map = on_map
        self._check_space = check_space
        self._writable = writable
        self._read_ahead = read_ahead
        self._is_appended = False
        self._file: File | None = None
        self._mapping: Mapping | None = None
        self._mapping_lock = Lock()
        self._reserving = Lock()
        self.path = path
        self.start_offset = start_offset
        self.size = size
        self.wrote_position = size  # until recovery has found the log's end, as RocketMQ's MappedFileQueue.load
        self.flushed_position = size
        self.reserved_position = 0

    @property
    def file(self) -> File:
        """The open file."""
        if self._file is None:
            self._file = open_listed(self._files, self.path, writable=self._writable)
        return self._file

    @property
    def is_mapped(self) -> bool:
        """Whether `mapping` does not need to open the file."""
        return self._mapping is not None

    @property
    def mapping(self) -> Mapping:
        """The mapped file; its address is valid as long as somebody holds the mapping."""
        return self._mapping or self._map()

    def _map(self) -> Mapping:
        with self._mapping_lock:  # without it two threads, a reader and dispatch, may map the file twice and keep both
            mapping = self._mapping
            if mapping is None:
                # By a separate descriptor: the flush thread closes `_file` once the file is full and synced.
                with open_listed(self._files, self.path, writable=self._writable) as file:
                    mapping = file.map(writable=self._is_appended, random=not self._read_ahead, expected=self.size)
                self._mapping = mapping
                self._on_map(self)
            return mapping

    @property
    def view(self) -> memoryview:
        """The bytes of the mapped file; they stay mapped as long as a view of them lives."""
        return self.mapping.view

    def scan(self, scanner: Scanner, position: int, end: int | None = None, **how: Any) -> RecordColumns:
        """Scan the records from a position on, up to another one, whose pages are asked for.

        Args:
            scanner: Gets the other arguments, too.
            position: Where a record begins.
            end: Where the bytes end; None: the file's end.

        Raises:
            StoreError: The disk cannot read a page.
        """
        mapping = self.mapping
        data = np.frombuffer(mapping.view[position:end], np.uint8)
        columns = scanner.scan(data, self.start_offset + position, page_size=PAGE_SIZE, **how)
        if columns.stop is ScanStop.UNREADABLE:
            mapping.refuse(position + columns.consumed)
        return columns

    def drop_mapping(self) -> None:
        """Drop the map, which lives as long as somebody reads it."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.forget()

    def drop_stale_mapping(self) -> None:
        """Drop a map that may show zeros if another process has written since (`Mapping.whole_until`)."""
        mapping = self._mapping
        if mapping is not None and mapping.whole_until < mapping.size:
            self._mapping = None

    def close_descriptor(self) -> None:
        """Close the descriptor; `file` opens it again when it is needed."""
        with self._reserving:  # else another file may get its number, and the space
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def begin_appending(self) -> None:
        """Map the file writable from now on, if the store is open for writing.

        Raises StoreFullError if a hole before `wrote_position` could not be read through such a map.
        """
        if self._writable and not self._is_appended:
            self.file.allocate_holes(self.wrote_position)
            with self._mapping_lock:
                self._is_appended = True
                self.drop_mapping()

    def create(self) -> None:
        """Make the file, all zeros, reserve its first step, and map it.

        Its length and its name are durable afterwards.
        """
        folder = self.path.rpartition("/")[0]
        step = min(self.size, RESERVE_STEP)
        self._check_space(folder, step, step)
        self._is_appended = True
        self._file = self._files.open(self.path, writable=True, create=True, size=self.size)
        self.wrote_position = self.flushed_position = 0
        self.reserve(1)
        self._file.sync()  # its length: a file of another length than the other files is taken for damage
        self._files.sync_directory(folder)
        _ = self.mapping

    def reserve(self, end: int) -> None:
        """Reserve disk space up to position `end` at least; raises StoreFullError if there is no space."""
        if end <= self.reserved_position:
            return
        about_to_wait(self.path, "allocate")  # before the lock, whose holder may wait for the disk
        with self._reserving:
            begin = self.reserved_position
            if end > begin:
                target = min(self.size, max(end, begin + RESERVE_STEP))
                lacking = target - max(begin, self.file.allocated_bytes)
                if lacking > 0:
                    self._check_space(self.path, lacking, target - begin)
                self.file.allocate(begin, target - begin)
                self.reserved_position = max(self.reserved_position, target)

    def write(self, position: int, data: memoryview) -> None:
        """Write many bytes by a system call. Bytes of a write that failed are zeroed again: they were not stored."""
        if self._reserving.locked():
            about_to_wait(self.path, "write beside an allocation")
        with self._reserving:  # a file system without fallocate reads and writes the space that is allocated
            try:
                self.file.write(position, data)
            except BaseException:
                self.file.zero_from(position)
                raise
            self.reserved_position = max(self.reserved_position, position + len(data))

    def flush(self) -> None:
        """Sync all bytes that were written until now."""
        wrote = self.wrote_position
        self.file.sync()
        self.flushed_position = wrote

    def warm(self, sync_every_bytes: int) -> None:
        """Reserve the whole file and write zeros over it before it is used (RocketMQ's `warmMappedFile`)."""
        self.reserve(self.size)
        zeros = bytes(1 << 20)
        for position in range(0, self.size, len(zeros)):
            self.file.write(position, zeros[: min(len(zeros), self.size - position)])
            if sync_every_bytes and position // sync_every_bytes != (position + len(zeros)) // sync_every_bytes:
                self.file.sync()
        self.file.sync()

    def destroy(self) -> None:
        """Remove the file, durably. Readers of this object go on reading: the bytes live as long as their map."""
        _ = self.mapping  # mapped now, as the name is gone afterwards
        file, self._file = self._file, None
        try:
            self._files.unlink(self.path)
        finally:
            if file is not None:
                file.close()

    def close(self) -> None:
        """Close the descriptor and drop the map; views of the map stay valid."""
        self.close_descriptor()
        self.drop_mapping()
