"""Build consume queue extensions: tasks spill ext units, then the ext units of each queue are laid out in log order.

The address of an ext unit depends on the sizes of all ext units before it in its queue, which a task does not know. So
units keep their tags codes until the last step, which lays out the ext units and puts their addresses into the units.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.files import DISK
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.consume_queue_ext import END_MARK
from reput.formats.paths import offset_to_file_name
from reput.jobs.rebuild.spill_file import SpillFile
from reput.kernels.queues.consume_queue import UnitRuns
from reput.kernels.queues.consume_queue_ext import ExtRuns, ExtWrite, place_ext_units

#: Bytes of ext units that a task holds in memory before it spills them.
_SPILL_BYTES = 32 << 20
_SIZE_OF_SIZE = 2


@dataclass(frozen=True, slots=True)
class ExtChunk:
    """Ext units of `count` units from queue offset `first_offset` on, at a position of a spill file.

    First the sizes (int16), 0 for a unit without an ext unit, then the ext units, `data_size` bytes.
    """

    path: str
    position: int
    first_offset: int
    count: int
    data_size: int

    def read(self) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]]:
        """Read the sizes and the ext units, in the order of the queue."""
        sizes, data = np.empty(self.count, np.int16), np.empty(self.data_size, np.uint8)
        with DISK.open(self.path) as file:
            file.read_into(self.position, sizes.data)
            if data.size:
                file.read_into(self.position + sizes.nbytes, data.data)
        return sizes, data


@dataclass(slots=True)
class _Pending:
    """Ext units in memory of consecutive units of a queue, not spilled yet."""

    first_offset: int
    count: int = 0
    sizes: list[npt.NDArray[np.int16]] = field(default_factory=list)
    data: list[npt.NDArray[np.uint8]] = field(default_factory=list)


class ExtSpill:
    """Spill file for the ext units of one task.

    Attributes:
        chunks: by (topic, queue id), in log order; complete after `close`.
    """

    def __init__(self, path: str) -> None:
        self.chunks: dict[tuple[str, int], list[ExtChunk]] = {}
        self._file = SpillFile(path)
        self._pending: dict[tuple[str, int], list[_Pending]] = {}
        self._bytes = 0

    def put(self, key: tuple[str, int], first_offset: int, runs: UnitRuns, ext: ExtRuns, queue: int) -> None:
        """Add the ext units of one queue of a scan. The queue's first unit in the scan is at `first_offset`."""
        pending = self._pending.setdefault(key, [])
        if not pending or pending[-1].first_offset + pending[-1].count != first_offset:
            pending.append(_Pending(first_offset))
        sizes, data = ext.sizes_of(runs, queue), ext.data[ext.starts[queue] : ext.starts[queue + 1]]
        pending[-1].count += sizes.size
        pending[-1].sizes.append(sizes)
        pending[-1].data.append(data)
        self._bytes += sizes.nbytes + data.nbytes
        if self._bytes >= _SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        for key, pending in self._pending.items():
            for run in pending:
                arrays: list[npt.NDArray[Any]] = [*run.sizes, *run.data]
                content = b"".join(array.tobytes() for array in arrays)
                data_size = len(content) - run.count * _SIZE_OF_SIZE
                position = self._file.write(content)
                chunk = ExtChunk(self._file.path, position, run.first_offset, run.count, data_size)
                self.chunks.setdefault(key, []).append(chunk)
        self._pending.clear()
        self._bytes = 0

    def close(self) -> None:
        """Spill the remaining ext units, and close the file."""
        self._spill()
        self._file.close()


@dataclass(frozen=True, slots=True)
class ExtLayout:
    """Lays out the extension of one queue.

    Attributes:
        queue_folder: folder of the queue's files, each `queue_file_size` bytes.
        folder: folder of the extension's files, each `file_size` bytes.
    """

    queue_folder: str
    queue_file_size: int
    folder: str
    file_size: int

    def run(self, chunks: Sequence[ExtChunk], end: int = 0) -> int:
        """Write and sync ext units, and put their addresses into the units; returns the extension's new end.

        Args:
            chunks: all chunks of the queue, or all further ones, in log order.
            end: end of the extension before.
        """
        first_file = end - end % self.file_size
        for chunk in chunks:
            sizes, data = chunk.read()
            units = np.empty(chunk.count * UNIT_SIZE, np.uint8)
            for path, position, in_file in self._by_file(units, chunk.first_offset):
                with DISK.open(path) as file:
                    file.read_into(position, in_file.data)
            writes, end = place_ext_units(sizes, end, self.file_size, units.ctypes.data)
            self._write(writes, data)
            for path, position, in_file in self._by_file(units, chunk.first_offset):
                with DISK.open(path, writable=True) as file:
                    file.write(position, in_file.data)
        for start in range(first_file, end, self.file_size):
            with DISK.open(self._path(start), writable=True) as file:
                file.sync()
        if chunks and end:
            DISK.sync_directory(self.folder)
        return end

    def _path(self, start: int) -> str:
        return os.path.join(self.folder, offset_to_file_name(start))

    def _by_file(
        self, units: npt.NDArray[np.uint8], first_offset: int
    ) -> Iterator[tuple[str, int, npt.NDArray[np.uint8]]]:
        """(path, position in the file, view of the units) of each file that consecutive units lie in."""
        begin, position = 0, first_offset * UNIT_SIZE
        while begin < units.size:
            inside = position % self.queue_file_size
            in_file = units[begin : begin + self.queue_file_size - inside]
            yield os.path.join(self.queue_folder, offset_to_file_name(position - inside)), inside, in_file
            begin, position = begin + in_file.size, position + in_file.size

    def _write(self, writes: list[ExtWrite], data: npt.NDArray[np.uint8]) -> None:
        if writes:
            DISK.make_directories(self.folder)
        for start, group in groupby(writes, lambda write: write.offset - write.offset % self.file_size):
            with DISK.open(self._path(start), writable=True, create=True, size=self.file_size) as file:
                for begin, size, offset in group:
                    file.write(offset - start, END_MARK if begin < 0 else data[begin : begin + size].data)
