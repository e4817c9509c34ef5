"""One consume queue: the 20-byte units of one topic and queue id, in files that are named by their first byte.

Units are written by system calls, since the files stay sparse: a full disk is an error. They are read through maps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from reput.files import File, FileLayer, Mapping
from reput.formats.consume_queue import FILLER, UNIT, UNIT_SIZE, Unit, decode_unit, encode_unit
from reput.formats.paths import offset_to_file_name
from reput.kernels.consume_queue_ext import last_ext_address
from reput.log.directory import open_listed
from reput.store.statistics import TopicCounts

if TYPE_CHECKING:
    from reput.formats.consume_queue_ext import ExtUnit
    from reput.store.consume_queue_ext import ConsumeQueueExt

_PAGE_SIZE = 4096


class Run(NamedTuple):
    """Bytes that go to one place of one file."""

    file: File
    address: int
    size: int
    position: int


class ConsumeQueue:
    """RocketMQ's `ConsumeQueue`. Offsets count messages; positions are bytes in one file.

    Attributes:
        max_offset: The queue offset of the next unit.
        min_offset: The first queue offset whose record the log still has, as far as it was looked up.
        max_physical_offset: End of the record of the last unit; -1 when there is none.
        dirty: Files that have units which are not known to be on the disk.
        counts: What happened to its topic since the store was opened.
        ext: The ext units that its units point to; None where there are none.
    """

    __slots__ = (
        "_files",
        "_lock",
        "_mappings",
        "_on_map",
        "_on_open",
        "_open",
        "_starts",
        "_synced_offset",
        "_writable",
        "counts",
        "dirty",
        "ext",
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
        *,
        writable: bool,
        on_open: Callable[[], None],
        on_map: Callable[[], None],
        counts: TopicCounts,
    ) -> None:
        self.counts = counts
        self._files = files
        self._writable = writable
        self._starts: list[int] = []
        self._open: dict[int, File] = {}
        self._mappings: dict[int, Mapping] = {}
        self._on_open = on_open
        self._on_map = on_map
        self._lock = Lock()
        self._synced_offset = 0
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self.file_size = file_size
        self.max_offset = 0
        self.min_offset = 0
        self.max_physical_offset = -1
        self.dirty: set[int] = set()
        self.ext: ConsumeQueueExt | None = None

    # -- loading

    def load(self, starts: list[int], end_offset: int) -> None:
        """Find the written part: the units before the first that is unused, or whose record ends behind `end_offset`.

        Units lie in log order, so this is a binary search, some twenty small reads whatever the queue's size. Filler
        units count as written.
        """
        self._starts = starts
        first, last = 0, len(starts) * (self.file_size // UNIT_SIZE)
        while first < last:
            middle = (first + last) // 2
            unit = self._read(starts[0] // UNIT_SIZE + middle)
            if unit.size <= 0 or (unit != FILLER and unit.commit_log_offset + unit.size > end_offset):
                last = middle
            else:
                first = middle + 1
        base = starts[0] // UNIT_SIZE if starts else 0
        self.max_offset = base + first
        if first:
            unit = self._read(self.max_offset - 1)
            if unit != FILLER:
                self.max_physical_offset = unit.commit_log_offset + unit.size
        self.min_offset = min(base, self.max_offset)
        self._synced_offset = self.max_offset

    def _read(self, offset: int) -> Unit:
        """The unit at a queue offset by a system call: a start looks at a few of each queue, and maps none."""
        position = offset * UNIT_SIZE
        inside = position % self.file_size
        return decode_unit(self._file(position - inside).read(inside, UNIT_SIZE))

    def raise_min_offset(self, min_commit_log_offset: int) -> None:
        """Move `min_offset` to the first unit whose record the log still has (`ConsumeQueue.correctMinOffset`)."""
        first, last = self.min_offset, self.max_offset
        if first < last and self._is_there(first, min_commit_log_offset):
            return
        while first < last:
            middle = (first + last) // 2
            if not self._is_there(middle, min_commit_log_offset):
                first = middle + 1
            else:
                last = middle
        self.min_offset = first

    def _is_there(self, offset: int, min_commit_log_offset: int) -> bool:
        unit = self._read(offset)
        return unit != FILLER and unit.commit_log_offset >= min_commit_log_offset

    def cut(self) -> None:
        """Wipe out what lies behind the last unit, so that a later start does not take it for units."""
        position = self.max_offset * UNIT_SIZE
        # The last first: should this be killed, what stays begins where the queue did.
        for start in [start for start in reversed(self._starts) if start >= position]:
            self._starts.remove(start)
            self._forget(start)
            self._files.unlink(f"{self.path}/{offset_to_file_name(start)}")
        if self._starts and self._file(self._starts[-1]).zero_from(position - self._starts[-1]):
            self.dirty.add(self._starts[-1])

    # -- writing

    def run(self, address: int, count: int) -> list[Run]:
        """Where `count` units from an address go: behind the last one. Files are made as needed; `advance` follows."""
        runs = []
        position, left = self.max_offset * UNIT_SIZE, count * UNIT_SIZE
        while left:
            start = position - position % self.file_size
            size = min(left, start + self.file_size - position)
            runs.append(Run(self._file(start, create=True), address, size, position - start))
            position, address, left = position + size, address + size, left - size
        return runs

    def advance(self, count: int, last_physical_end: int) -> None:
        """Count the units of `run` as written; their files wait for a sync from now on, not before."""
        begin = self.max_offset * UNIT_SIZE
        self.max_physical_offset = last_physical_end
        self.max_offset += count
        self.dirty.update(range(begin - begin % self.file_size, self.max_offset * UNIT_SIZE, self.file_size))

    def fill_to(self, offset: int) -> None:
        """Write filler units up to a queue offset; in a new queue from the start of its file (`fillPreBlank`)."""
        if self.max_offset == 0 and not self._starts:
            position = offset * UNIT_SIZE
            self.max_offset = (position - position % self.file_size) // UNIT_SIZE
            self.min_offset = offset
        while self.max_offset < offset:
            position = self.max_offset * UNIT_SIZE
            start = position - position % self.file_size
            count = min(offset - self.max_offset, (start + self.file_size - position) // UNIT_SIZE)
            self._file(start, create=True).write(position - start, encode_unit(*FILLER) * count)
            self.dirty.add(start)
            self.max_offset += count

    def _file(self, start: int, *, create: bool = False) -> File:
        file = self._open.get(start)
        if file is None:
            path = f"{self.path}/{offset_to_file_name(start)}"
            if create and start not in self._starts:
                self._files.make_directories(self.path)
                file = self._files.open(path, writable=True, create=True, size=self.file_size)
                with self._lock:
                    self._starts.append(start)
            else:
                file = self._files.open(path, writable=self._writable)
            self._open[start] = file
            self._on_open()
        return file

    def flush(self) -> int:
        """Sync the files with unsynced units, and the folder; returns how many files."""
        if self.ext is not None:
            self.ext.flush()  # before the units that point into it
        wrote, dirty = self.max_offset, sorted(self.dirty)
        self.dirty.difference_update(dirty)
        try:
            for start in dirty:
                with self._files.open(f"{self.path}/{offset_to_file_name(start)}", writable=True) as file:
                    file.sync()
            if dirty:
                self._files.sync_directory(self.path)
        except BaseException:
            self.dirty.update(dirty)
            raise
        self._synced_offset = wrote
        return len(dirty)

    @property
    def unsynced_pages(self) -> int:
        """Pages of 4096 bytes that were written since the last `flush`."""
        return (self.max_offset - self._synced_offset) * UNIT_SIZE // _PAGE_SIZE

    def _forget(self, start: int) -> None:
        file = self._open.pop(start, None)
        if file is not None:
            file.close()
        self._mappings.pop(start, None)

    # -- retention

    @property
    def begin_position(self) -> int:
        """Byte of the queue at which the unit of `min_offset` begins."""
        return self.min_offset * UNIT_SIZE

    def delete_expired(self) -> dict[str, int]:
        """Delete the files that lie before `begin_position`, oldest first (`ConsumeQueue.deleteExpiredFile`).

        The last file stays whatever it holds: it knows the queue offset of the next message. Called while no `flush`
        runs.

        Returns:
            Path and size of each deleted file.
        """
        deleted = {}
        while len(self._starts) > 1 and self._starts[0] + self.file_size <= self.begin_position:
            start = self._starts[0]
            path = f"{self.path}/{offset_to_file_name(start)}"
            with self._lock:  # nobody maps it in between
                try:
                    self._files.unlink(path)
                finally:
                    if not self._files.exists(path):
                        del self._starts[0]
                        self._forget(start)
                        self.dirty.discard(start)
            deleted[path] = self.file_size
        return deleted

    def correct_min_offset(self, min_commit_log_offset: int) -> None:
        """As `raise_min_offset`, but through maps: beside the dispatch thread, which closes descriptors."""
        first, last = self.min_offset, self.max_offset
        middle = first  # most queues have lost nothing
        while first < last:
            unit = self.unit(middle)
            if unit is not None and unit != FILLER and unit.commit_log_offset >= min_commit_log_offset:
                last = middle
            else:
                first = middle + 1
            middle = (first + last) // 2
        self.min_offset = first

    def close_files(self) -> None:
        """Close the descriptors."""
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()
        if self.ext is not None:
            self.ext.close_files()

    def drop_mappings(self) -> None:
        """Let go of the maps; each lives as long as somebody reads it."""
        self._mappings.clear()
        if self.ext is not None:
            self.ext.drop_mappings()

    def close(self) -> None:
        """Close everything."""
        self.close_files()
        self.drop_mappings()

    # -- reading

    def units_from(self, offset: int) -> tuple[int, int, Mapping] | None:
        """Address of the unit at a queue offset, how many there are from it to its file's end, and what keeps them.

        None where there is no such unit.
        """
        available = self.max_offset - offset
        if available <= 0:
            return None
        position = offset * UNIT_SIZE
        start = position - position % self.file_size
        mapping = self._mappings.get(start)
        if mapping is None:
            mapping = self._map(start)
            if mapping is None:
                return None
        inside = position - start
        return mapping.address + inside, min(available, (self.file_size - inside) // UNIT_SIZE), mapping

    def _map(self, start: int) -> Mapping | None:
        with self._lock:
            index = bisect_right(self._starts, start) - 1
            if index < 0 or self._starts[index] != start:
                return None
            with open_listed(self._files, f"{self.path}/{offset_to_file_name(start)}") as file:
                # Without random access the first store into a hole reads ahead up to 8 MiB: a whole queue file.
                mapping = file.map(random=True)
            self._mappings[start] = mapping
        self._on_map()
        return mapping

    def unit(self, offset: int) -> Unit | None:
        """The unit at a queue offset; None where there is none."""
        found = self.units_from(offset)
        if found is None:
            return None
        inside = offset * UNIT_SIZE % self.file_size
        return Unit._make(UNIT.unpack_from(found[2].view, inside))

    def ext_unit(self, offset: int) -> ExtUnit | None:
        """The ext unit of the unit at a queue offset; None where it has none, or lost it."""
        unit = self.unit(offset)
        return self.ext.unit(unit.tags_code) if unit is not None and self.ext is not None else None

    def recover_ext(self) -> None:
        """Bring the extension in step with the units; see `ConsumeQueueExt.recover`."""
        if self.ext is not None:
            self.ext.recover(self._last_ext_address())

    def _last_ext_address(self) -> int:
        """The last address among the units; 0 where none holds one. Mostly the last unit does."""
        for start in reversed(self._starts):
            found = self.units_from(start // UNIT_SIZE)
            address = int(last_ext_address(found[0], found[1])) if found is not None else 0
            if address:
                return address
        return 0

    @property
    def file_starts(self) -> list[int]:
        """The first byte of each file, as its name says it."""
        return self._starts
