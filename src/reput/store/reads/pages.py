"""Pages: every byte that is read through a map is asked for before, so that a disk error is an error and no signal."""

from __future__ import annotations

from enum import Enum
from threading import local

import numpy as np

from reput.files import FileLayer, Mapping
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.machine import mapped_pages
from reput.kernels.records import pulled_records
from reput.store.log.mapped_file import MappedFile
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.reads.scratch import Scratch


class Cold(Enum):
    """Treatment of pages that are not in memory, for a pull.

    REFUSE: ends with NotInMemory. READ: reads them without the interpreter lock. ONCE: does not look whether they are,
    and asks for each part of a map once; whoever reads them later through the map then holds the lock meanwhile.
    """

    REFUSE = 0
    READ = 1
    ONCE = 2


_REFUSE, _ONCE = Cold.REFUSE, Cold.ONCE  # 50 ns less than the attribute of the class


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
        """Make room for `count` runs."""
        runs = np.empty(2 * count, np.int64)
        self.count = count
        self.numbers, self.address = runs.data, runs.ctypes.data
        self.records = (0, 0, 0)


class Pages:
    """Looks at mapped bytes before they are read.

    Methods raise StoreError if the disk cannot read them, and NotInMemory with Cold.REFUSE. A page that is in memory
    may go before it is read; the system keeps for long what was just read.
    """

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self._runs, self._run = _Runs(), Scratch(2 * 8)

    def read_in(self, path: str, mapping: Mapping, position: int, size: int) -> None:
        """See to it that bytes of a map are in memory."""
        runs = self._runs
        runs.numbers[0], runs.numbers[1] = mapping.address + position, size
        self._look(Cold.READ, path, mapping, 1)

    def look_at_units(
        self, cold: Cold, queue: ConsumeQueue, offset: int, units: tuple[int, int, Mapping], most: int
    ) -> None:
        """See to it that units can be read: `units_from(offset)` of a queue, the first ones, at most `most`."""
        address, count, mapping = units
        position, size = address - mapping.address, max(min(count, most), 1) * UNIT_SIZE
        if cold is _ONCE:
            mapping.ask(position, position + size)
            return
        numbers = self._runs.numbers
        numbers[0], numbers[1] = address, size
        if not self._are_in_memory(cold, mapping, 1):
            self._files.read_in(queue.file_path(offset * UNIT_SIZE - position), mapping, self._runs.address, 1)

    def look_at_records(self, cold: Cold, file: MappedFile, units: int, count: int, *, are_pairs: bool) -> None:
        """See to it that records of a log file can be read, and for `gather`; `units`: see `find_segments`."""
        if cold is _REFUSE and not file.is_mapped:
            raise NotInMemory
        runs, mapping = self._runs, file.mapping
        if count > runs.count:
            runs.grow(count)
        found, size = pulled_records.find_segments(
            units, count, are_pairs, mapping.address - file.start_offset, runs.address
        )
        runs.records, runs.mapping = (found, size, runs.numbers[0] - mapping.address), mapping
        self._look(cold, file.path, mapping, found)

    def are_in_memory(self, mapping: Mapping, runs: int, count: int) -> bool:
        """Whether runs of a map are in memory; `runs`: address of `count` pairs of native int64, address and size."""
        return mapping.tells_memory and self._files.are_in_memory(runs, count)

    def are_in_memory_at(self, mapping: Mapping, position: int, size: int) -> bool:
        """Whether bytes of a map are in memory."""
        run = self._run
        run.numbers[0], run.numbers[1] = mapping.address + position, size
        return self.are_in_memory(mapping, run.address, 1)

    def gather(self, file: memoryview) -> bytes:
        """The bytes of the records that this thread has looked at last, one after the other; `file`: their file."""
        runs = self._runs
        count, size, position = runs.records
        mapping, runs.mapping = runs.mapping, None  # kept until the end, and not longer: it holds a file's space
        if count == 1:
            return bytes(file[position : position + size])
        gathered = np.empty(size, np.uint8)
        pulled_records.gather_segments(runs.address, count, gathered.ctypes.data)
        del mapping
        return gathered.tobytes()

    def find_records(
        self, file: MappedFile, units: int, count: int, *, are_pairs: bool
    ) -> tuple[int, int, int, Mapping]:
        """Records of a log file that is mapped, without a look at their pages; `units`: see `find_segments`.

        Returns:
            Address and number of their segments, the bytes of all, and the file's map.
        """
        runs, mapping = self._runs, file.mapping
        if count > runs.count:
            runs.grow(count)
        found, size = pulled_records.find_segments(
            units, count, are_pairs, mapping.address - file.start_offset, runs.address
        )
        return runs.address, found, size, mapping

    def _look(self, cold: Cold, path: str, mapping: Mapping, count: int) -> None:
        if cold is _ONCE:
            self._ask(mapping, count)
        elif not self._are_in_memory(cold, mapping, count):
            self._files.read_in(path, mapping, self._runs.address, count)

    def _ask(self, mapping: Mapping, count: int) -> None:
        """Ask for the runs of this thread that were not asked for."""
        numbers, first = self._runs.numbers, mapped_pages.first_unasked(mapping.fields, self._runs.address, count)
        for run in range(first, count) if first >= 0 else ():
            begin = numbers[2 * run] - mapping.address
            mapping.ask(begin, begin + numbers[2 * run + 1] + mapped_pages.BLOCK)

    def _are_in_memory(self, cold: Cold, mapping: Mapping, count: int) -> bool:
        """Whether all runs of this thread are in memory; raises NotInMemory in place of False with Cold.REFUSE."""
        if self.are_in_memory(mapping, self._runs.address, count):
            return True
        if cold is _REFUSE:
            raise NotInMemory
        return False
