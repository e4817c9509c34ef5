"""One consume queue extension: the ext units of one queue, in files that are named by their first byte.

Ext units are derived, and less needed than units: if an ext unit is lost, the queue still gives its message, and a
filter by tags compares the text in the log. So damage here is passed over, and ext units that cannot be trusted are
dropped.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer, Mapping
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import (
    END_MARK,
    MAX_UNIT_SIZE,
    MIN_UNIT_SIZE,
    ExtUnit,
    decode_address,
    is_ext_address,
)
from reput.formats.paths import file_name_to_offset, offset_to_file_name
from reput.kernels.queues.consume_queue_ext import place_ext_units, resolve_tags_codes
from reput.log.queue_extensions import decode_whole
from reput.store.queues.folder import make_next_file

_MARK = np.frombuffer(END_MARK, np.uint8)


class Run(NamedTuple):
    """Bytes in memory that are to be written to one position of one file."""

    path: str
    address: int
    size: int
    position: int


class ConsumeQueueExt:
    """RocketMQ's `ConsumeQueueExt`. Offsets are bytes of the extension; ext addresses are what units hold.

    Attributes:
        end_offset: Offset after the last ext unit, where `run` places the next ext units.
        file_size: Bytes of a file.
    """

    __slots__ = ("_dirty", "_files", "_mappings", "_next_end", "_on_map", "_on_new_name", "_path", "_starts",
                 "end_offset", "file_size")  # fmt: skip

    def __init__(
        self,
        files: FileLayer,
        path: str,
        file_size: int,
        starts: list[int],
        *,
        on_new_name: Callable[[str], None],
        on_map: Callable[[], None],
    ) -> None:
        self._files = files
        self._path = path
        self._starts = starts
        self._on_new_name = on_new_name
        self._on_map = on_map
        self._mappings: dict[int, Mapping] = {}
        self._dirty: set[int] = set()
        self._next_end = 0
        self.end_offset = 0
        self.file_size = file_size

    def recover(self, last_address: int) -> None:
        """Cut the extension after the last ext unit that the queue points to (`truncateByMaxAddress`).

        If that ext unit is lost, no ext unit can be trusted. All files are removed, and the next ext unit goes to a
        new file after them, so that no older unit of the queue points to a wrong ext unit. If the queue points to no
        ext unit, the extension begins anew.
        """
        unit = self.unit(last_address)
        offset = decode_address(last_address) if is_ext_address(last_address) else -1
        if unit is not None:
            self.end_offset = offset + unit.size
        else:
            self.end_offset = offset - offset % self.file_size + self.file_size if offset >= 0 else 0
        for start in reversed(self._list_files()):
            if unit is None or start >= self.end_offset:
                self._remove(start)
        last = self.end_offset - self.end_offset % self.file_size
        if last in self._starts:
            with self._files.open(self._file_path(last), writable=True) as file:
                if file.zero_from(self.end_offset - last):
                    self._dirty.add(last)

    def write_again(self) -> None:
        """Write again and sync what is read of all files; see `File.write_again`."""
        for start in self._list_files():
            with self._files.open(self._file_path(start), writable=True) as file:
                file.write_again()

    def find_files(self) -> None:
        """Take over the files that another process has made."""
        self._starts = self._list_files()

    def _list_files(self) -> list[int]:
        """First byte of each file in the folder, also of files that do not count as they have another size."""
        if not self._files.is_directory(self._path):
            return []
        entries = self._files.list_directory(self._path)
        starts = (file_name_to_offset(entry.name) for entry in entries if not entry.is_directory)
        return [start for start in starts if start is not None]

    def truncate_by_min_address(self, address: int) -> dict[str, int]:
        """Remove the files that end before the ext address of the first unit whose message the log still has.

        Returns:
            Path and size of each removed file.
        """
        if not is_ext_address(address):
            return {}
        offset = decode_address(address)
        starts = [start for start in self._starts if start + self.file_size < offset]
        for start in starts:
            self._remove(start)
        return {self._file_path(start): self.file_size for start in starts}

    def _remove(self, start: int) -> None:
        if start in self._starts:
            self._starts.remove(start)
        self._mappings.pop(start, None)
        self._dirty.discard(start)
        self._files.unlink(self._file_path(start))

    def _folders_above(self) -> list[str]:
        """Folders that hold the names of the extension's own folder, its topic's, and the folder of all extensions."""
        return [self._path.rsplit("/", levels)[0] for levels in (1, 2, 3)]

    def _file_path(self, start: int) -> str:
        return f"{self._path}/{offset_to_file_name(start)}"

    # -- writing

    def run(self, sizes: npt.NDArray[np.int16], data: int, units: int) -> list[Run]:
        """Place ext units after the last ext unit. Files are made as needed; after the write call `advance`.

        Args:
            sizes: int16[units], bytes of each unit's ext unit, 0 for a unit without an ext unit.
            data: Memory address of the ext units, one after the other.
            units: Memory address of the units, whose tags codes are replaced by ext addresses.
        """
        writes, self._next_end = place_ext_units(sizes, self.end_offset, self.file_size, units)
        runs = []
        for write in writes:
            position = write.offset % self.file_size
            address = _MARK.ctypes.data if write.begin < 0 else data + write.begin
            runs.append(Run(self._path_to_write(write.offset - position), address, write.size, position))
        return runs

    def advance(self) -> None:
        """Count the ext units of `run` as written. From now on, and not before, their files wait for a sync."""
        begin = self.end_offset - self.end_offset % self.file_size
        self.end_offset = self._next_end
        self._dirty.update(start for start in range(begin, self.end_offset, self.file_size) if start in self._starts)

    def _path_to_write(self, start: int) -> str:
        """Path of the file that begins at a byte of the extension; the file is made if it is missing."""
        path = self._file_path(start)
        if start not in self._starts:
            self._files.add_directories(self._path)
            if not self._starts:  # the folders may be there: a process made them, and was killed before it synced them
                for folder in self._folders_above():
                    self._on_new_name(folder)
            make_next_file(self._files, self._path, self._starts, start, self.file_size)
            self._on_new_name(self._path)
            self._starts.append(start)
        return path

    def flush(self) -> None:
        """Sync the files that were written; call it before the units that point into them are synced."""
        dirty = sorted(self._dirty)
        self._dirty.difference_update(dirty)
        try:
            self._files.sync_files([self._file_path(start) for start in dirty])
        except BaseException:
            self._dirty.update(dirty)
            raise

    def drop_mappings(self) -> None:
        """Drop the maps; each map lives as long as somebody reads it."""
        self._mappings.clear()

    # -- reading

    def unit(self, address: int) -> ExtUnit | None:
        """The ext unit at an ext address; None if it is lost, and for a tags code that is no ext address."""
        if not is_ext_address(address):
            return None
        offset = decode_address(address)
        position = offset % self.file_size
        if offset - position not in self._starts:
            return None
        with self._files.open(self._file_path(offset - position)) as file:
            return decode_whole(file.read(position, MAX_UNIT_SIZE))

    def resolve(self, units: int, count: int) -> npt.NDArray[np.uint8]:
        """Copy `count` units from a memory address, with the tags codes of their ext units in place of ext addresses.

        A unit whose ext unit is lost keeps its ext address.

        Raises:
            StoreError: The disk cannot read one.
        """
        resolved = np.empty(count * UNIT_SIZE, np.uint8)
        ctypes.memmove(resolved.ctypes.data, units, resolved.size)
        mapping: Mapping | None = None  # held here: one with holes is kept nowhere else
        done, file_offset = 0, -1
        while True:
            fields = mapping.fields if mapping is not None else 0
            done = resolve_tags_codes(resolved.ctypes.data, done, count, fields, file_offset)
            if done == count:
                return resolved
            offset = decode_address(decode_unit(resolved.data, done * UNIT_SIZE).tags_code)
            start = offset - offset % self.file_size
            if start == file_offset and mapping is not None:  # it is lost, or cannot be read
                mapping.ask(offset - start, offset - start + MIN_UNIT_SIZE)
                done += 1
            elif (found := self._map(start)) is not None:
                mapping, file_offset = found, start
            else:
                done += 1

    def _map(self, start: int) -> Mapping | None:
        mapping = self._mappings.get(start)
        if mapping is None and start in self._starts:
            with self._files.open(self._file_path(start)) as file:
                mapping = file.map(random=True)
            if mapping.whole_until == mapping.size:  # else it is mapped again: it may have grown
                self._mappings[start] = mapping
                self._on_map()
        return mapping
