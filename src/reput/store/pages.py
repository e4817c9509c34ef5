"""Pages: whether the bytes that a reader is about to read are in memory, and reading them where they are not."""

from __future__ import annotations

from enum import Enum
from threading import local

import numpy as np

from reput.files import FileLayer, Mapping
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels import segments
from reput.store.log.mapped_file import MappedFile
from reput.store.queues.consume_queue import ConsumeQueue


class Cold(Enum):
    """What a pull does where a page is not in memory: end with NotInMemory, or read it without the interpreter lock."""

    REFUSE = 0
    READ = 1


class NotInMemory(Exception):
    """A page that a pull needs is not in memory."""


class _Runs(local):
    """Runs of bytes that one thread is about to read; addresses are taken once, as asking for one costs 1 us.

    Attributes:
        numbers: int64[2 * count], memory address and size of each run.
        records: Of the records looked at last: number of runs, bytes, position of the first in its file.
        mapping: Their map, which must live until they are gathered: another thread may map the file anew meanwhile.
    """

    mapping: Mapping | None = None

    def __init__(self) -> None:
        self.grow(64)

    def grow(self, count: int) -> None:
        """Make room for so many runs."""
        runs = np.empty(2 * count, np.int64)
        self.count = count
        self.numbers, self.address = runs.data, runs.ctypes.data
        self.records = (0, 0, 0)


class Pages:
    """Looks at mapped bytes before they are read.

    Methods raise NotInMemory with Cold.REFUSE; with Cold.READ StoreError, where the disk cannot read them. A page that
    is in memory may go before it is read; the system keeps for long what was just read.
    """

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self._runs = _Runs()

    def read_in(self, path: str, mapping: Mapping, position: int, size: int) -> None:
        """See to it that bytes of a map are in memory."""
        runs = self._runs
        runs.numbers[0], runs.numbers[1] = mapping.address + position, size
        self._look(Cold.READ, path, mapping, 1)

    def look_at_units(
        self, cold: Cold, queue: ConsumeQueue, offset: int, units: tuple[int, int, Mapping], most: int
    ) -> None:
        """See to it that units are in memory: `units_from(offset)` of a queue, the first ones, at most so many."""
        address, count, mapping = units
        numbers = self._runs.numbers
        numbers[0], numbers[1] = address, max(min(count, most), 1) * UNIT_SIZE
        if not self._are_in_memory(cold, 1):
            start = offset * UNIT_SIZE - (address - mapping.address)
            self._files.read_in(queue.file_path(start), mapping, self._runs.address, 1)

    def look_at_records(self, cold: Cold, file: MappedFile, units: int, count: int, *, are_pairs: bool) -> None:
        """See to it that records of a log file are in memory, for `gather`; `units`: see `find_segments`."""
        if cold is Cold.REFUSE and not file.is_mapped:
            raise NotInMemory
        runs, mapping = self._runs, file.mapping
        if count > runs.count:
            runs.grow(count)
        found, size = segments.find_segments(units, count, are_pairs, mapping.address - file.start_offset, runs.address)
        runs.records, runs.mapping = (found, size, runs.numbers[0] - mapping.address), mapping
        self._look(cold, file.path, mapping, found)

    def gather(self, file: memoryview) -> bytes:
        """The bytes of the records that this thread has looked at last, one after the other; `file`: their file."""
        runs = self._runs
        count, size, position = runs.records
        mapping, runs.mapping = runs.mapping, None  # kept until the end, and not longer: it holds a file's space
        if count == 1:
            return bytes(file[position : position + size])
        gathered = np.empty(size, np.uint8)
        segments.gather_segments(runs.address, count, gathered.ctypes.data)
        del mapping
        return gathered.tobytes()

    def _look(self, cold: Cold, path: str, mapping: Mapping, count: int) -> None:
        if not self._are_in_memory(cold, count):
            self._files.read_in(path, mapping, self._runs.address, count)

    def _are_in_memory(self, cold: Cold, count: int) -> bool:
        """Whether all runs of this thread are in memory; raises NotInMemory in place of False with Cold.REFUSE."""
        if self._files.are_in_memory(self._runs.address, count):
            return True
        if cold is Cold.REFUSE:
            raise NotInMemory
        return False
