"""One batch consume queue: the 46-byte units of one topic and queue id, one unit a record of one or more messages.

A unit stands for several messages, so its position does not give its queue offset: a reader searches. Files are opened
for each write and read, since few topics have such queues.
"""

from __future__ import annotations

from collections.abc import Callable

from reput.config.message_store import OS_PAGE_SIZE
from reput.files import FileLayer, Mapping
from reput.formats.batch_consume_queue import (
    BASE_OFFSET,
    BATCH_UNIT_SIZE,
    BatchUnit,
    decode_batch_unit,
    encode_batch_unit,
    place_holder,
)
from reput.formats.consume_queue import Unit
from reput.kernels.queues.batch_consume_queue import find_batch_unit
from reput.log.batch_jumps import NO_UNITS, BatchJump
from reput.store.queues.folder import QueueFolder
from reput.store.statistics import TopicCounts


class BatchConsumeQueue(QueueFolder):
    """RocketMQ's `BatchConsumeQueue`. Offsets count messages; positions are bytes in one file.

    Units are numbered by their position: unit n begins at byte 46 n of the queue.

    Attributes:
        last: The last unit; None without units.
        jump: What is still to be said of the last unit, see `judge_units`.
    """

    __slots__ = ("_base_offsets", "_next_unit", "_synced_unit", "jump", "last")

    def __init__(
        self,
        files: FileLayer,
        path: str,
        topic: str,
        queue_id: int,
        file_size: int,
        counts: TopicCounts,
        on_dirty: Callable[[BatchConsumeQueue], None],
    ) -> None:
        super().__init__(files, path, topic, queue_id, file_size, counts, on_dirty)
        #: First queue offset of each file that was read, by the file's first byte.
        self._base_offsets: dict[int, int] = {}
        self._next_unit = 0
        self._synced_unit = 0
        self.last: BatchUnit | None = None
        self.jump: BatchJump | None = None

    @property
    def end_position(self) -> int:
        """Byte of the queue after the last unit."""
        return self._next_unit * BATCH_UNIT_SIZE

    @property
    def is_place_held(self) -> bool:
        """Whether the queue has a `place_holder` and no message: no record ends where that unit says."""
        return self.max_physical_offset == place_holder(1).size

    @property
    def _first_unit(self) -> int:
        return self._starts[0] // BATCH_UNIT_SIZE if self._starts else 0

    # -- loading

    def load(self, starts: list[int], end_offset: int) -> None:
        """Take over the queue's files, with the units of records that end at or before `end_offset`.

        The queue ends before the first unit that is unused, or whose record ends after `end_offset`. Units are in log
        order, so this is a binary search. A last unit that cannot follow the unit before it is torn (see `find_ends` in
        `reput.store.queues.unit_search`), and the end is searched before it. A jump before the last unit is open.
        """
        self._starts = starts
        self._base_offsets.clear()
        self.max_offset = self.min_offset = 0
        self.max_physical_offset = -1
        self.last = self.jump = None

        def is_after_end(unit: BatchUnit) -> bool:
            return not unit.is_in_use or unit.commit_log_offset + unit.size > end_offset

        self._next_unit = self._first_unit + len(starts) * (self.file_size // BATCH_UNIT_SIZE)
        self._next_unit = self._find_unit(is_after_end)
        while self._next_unit > self._first_unit + 1:
            before, last = (self._unit(self._next_unit - back) for back in (2, 1))
            if before.is_in_use and before.commit_log_offset < last.commit_log_offset:
                break
            self._next_unit -= 1
            self._next_unit = self._find_unit(is_after_end)
        if self._next_unit > self._first_unit:
            self.last = last = self._unit(self._next_unit - 1)
            self.max_physical_offset = last.commit_log_offset + last.size
            self.min_offset, self.max_offset = self._unit(self._first_unit).base_offset, last.next_offset
            self._open_jump(last)
        self._synced_unit = self._next_unit

    def _open_jump(self, last: BatchUnit) -> None:
        """Judge the last unit by the queue's next records if it follows a gap: a process that goes on would do so."""
        number = self._next_unit - 1
        if self.is_place_held:
            return
        before = self._unit(number - 1) if number > self._first_unit else None
        if (before is not None or number == 0) and last.base_offset != (before.next_offset if before else 0):
            self.jump = BatchJump(before, NO_UNITS)

    def _unit(self, number: int) -> BatchUnit:
        """Read a unit by a system call: a start reads a few units of each queue, and maps no queue."""
        position = number * BATCH_UNIT_SIZE
        inside = position % self.file_size
        with self._files.open(self.file_path(position - inside)) as file:
            return decode_batch_unit(file.read(inside, BATCH_UNIT_SIZE))

    def _find_unit(self, is_after: Callable[[BatchUnit], bool]) -> int:
        """Number of the first unit that passes a test, which all units after it pass, too."""
        first, last = self._first_unit, self._next_unit
        while first < last:
            middle = (first + last) // 2
            if is_after(self._unit(middle)):
                last = middle
            else:
                first = middle + 1
        return first

    def first_offset(self, least_offset: int) -> int:
        """First queue offset of records that lie at or after a log offset (`BatchConsumeQueue.correctMinOffset`)."""
        if self._first_unit == self._next_unit:
            return self.min_offset
        number = self._find_unit(lambda unit: unit.commit_log_offset >= least_offset)
        return self._unit(number).base_offset if number < self._next_unit else self.max_offset

    def cut(self) -> None:
        """Zero the bytes after the last unit, so that a later start does not take them for units."""
        self._wipe_from(self.end_position, [start for start in self._starts if start >= self.end_position])

    # -- writing

    def append(self, units: memoryview) -> None:
        """Write units after the last unit, and count them; files are made as needed.

        Raises:
            StoreFullError: No space; none of the units counts, and the same call may succeed later.
        """
        position, left, written = self.end_position, units, []
        while left:
            start = position - position % self.file_size
            in_file = left[: start + self.file_size - position]
            if start not in self._starts:
                self._files.make_directories(self.path)
                self._make_file(start)
            with self._files.open(self.file_path(start), writable=True) as file:
                file.write(position - start, in_file)
            written.append(start)
            position, left = position + len(in_file), left[len(in_file) :]
        self.last = last = decode_batch_unit(units, len(units) - BATCH_UNIT_SIZE)
        if self.max_physical_offset < 0:
            self.min_offset = decode_batch_unit(units).base_offset
        self._next_unit += len(units) // BATCH_UNIT_SIZE
        self.max_physical_offset = last.commit_log_offset + last.size
        self.max_offset = last.next_offset  # set last: a reader that sees it finds the unit
        for start in written:
            self.mark_dirty(start)

    def begin_at(self, offset: int) -> None:
        """Let the next message get a queue offset, in a queue whose messages the log does not have any more.

        The first file stays, as a flush may be about to sync it.
        """
        if self._starts:
            self._wipe_from(self._starts[0], self._starts[1:])
        self._base_offsets.clear()
        self._next_unit = self._synced_unit = self._first_unit
        self.max_physical_offset = -1
        self.max_offset = 0
        self.last = self.jump = None
        if offset:
            self.append(memoryview(encode_batch_unit(place_holder(offset))))
        self.min_offset = self.max_offset

    def take_back(self, before: BatchUnit | None) -> None:
        """Remove the last unit, whose record has a wrong queue offset; `before` is the unit before it."""
        if before is None or self._next_unit - 1 == self._first_unit:  # retention may have deleted that unit's file
            self.begin_at(0 if before is None else before.next_offset)
            return
        self._next_unit -= 1
        self._synced_unit = min(self._synced_unit, self._next_unit)
        self._base_offsets.pop(self.end_position, None)
        self.last, self.jump = before, None
        self.max_offset = before.next_offset
        self.max_physical_offset = before.commit_log_offset + before.size
        self.cut()

    def flush(self, least_pages: int = 0) -> bool:
        """Sync the files with unsynced units, and the folder, if at least `least_pages` of 4096 bytes are unsynced.

        Returns:
            Whether all is synced.
        """
        end, dirty = self._next_unit, sorted(self.dirty)
        if not dirty:
            return True
        if (end - self._synced_unit) * BATCH_UNIT_SIZE // OS_PAGE_SIZE < least_pages:
            return False
        self.dirty.difference_update(dirty)
        try:
            for start in dirty:
                with self._files.open(self.file_path(start), writable=True) as file:
                    file.sync()
            self._files.sync_directory(self.path)
        except BaseException:
            self.dirty.update(dirty)
            raise
        self._synced_unit = end
        return True

    def delete_expired(self, min_commit_log_offset: int) -> list[str]:
        """Delete the files whose records the log no longer has, oldest first, but never the last file.

        Called while no `flush` runs. Returns the paths of the deleted files.
        """
        deleted = []
        while len(self._starts) > 1:
            start = self._starts[0]
            if self._unit((start + self.file_size) // BATCH_UNIT_SIZE - 1).commit_log_offset >= min_commit_log_offset:
                break
            deleted.append(self._delete_first())
        return deleted

    # -- reading

    def units_from(self, offset: int) -> tuple[int, int, Mapping] | None:
        """Find the unit with a queue offset: its address, the number of units from it to its file's end, and their map.

        The unit may begin before the offset. The units stay mapped as long as the map is held. None if there is no
        such unit.
        """
        if offset >= self.max_offset:
            return None
        end, starts = self.end_position, [start for start in list(self._starts) if start < self.end_position]
        first, last = 1, len(starts)  # the last file whose first message is not after the offset, else the first file
        while first < last:
            middle = (first + last) // 2
            base = self._base_offset(starts[middle])
            if base is None:
                return None
            if base <= offset:
                first = middle + 1
            else:
                last = middle
        if not starts:
            return None
        count = min(end - starts[first - 1], self.file_size) // BATCH_UNIT_SIZE
        mapping = self._mapping(starts[first - 1], count)
        if mapping is None:
            return None
        number = find_batch_unit(mapping.address, count, offset)
        return mapping.address + number * BATCH_UNIT_SIZE, count - number, mapping

    def is_at_hand(self, offset: int) -> bool:
        """Whether `units_from` needs no disk: it may, as it looks into files to find the right one."""
        return False

    def roll_next_file(self, offset: int) -> int:
        """Queue offset at which a pull without a unit goes on: 0 (`BatchConsumeQueue.rollNextFile`).

        File names do not give queue offsets here. The pull at 0 is answered with `min_offset`, or with messages.
        """
        return 0

    def _base_offset(self, start: int) -> int | None:
        """First queue offset of the file that begins at a byte of the queue; None if the file is gone."""
        base = self._base_offsets.get(start)
        if base is None:
            mapping = self._mapping(start, 1)
            if mapping is None:
                return None
            base = self._base_offsets[start] = int.from_bytes(mapping.view[BASE_OFFSET : BASE_OFFSET + 8], "big")
        return base

    def _mapping(self, start: int, count: int) -> Mapping | None:
        """Map of the file that begins at a byte of the queue, asked for its first `count` units; None if it is gone."""
        mapping = self._mappings.get(start)
        if mapping is None or count * BATCH_UNIT_SIZE > mapping.whole_until:
            mapping = self._map(start)
        if mapping is not None:
            mapping.ask(0, count * BATCH_UNIT_SIZE)
        return mapping

    def unit(self, offset: int) -> Unit | None:
        """The record with a queue offset, as a unit of a consume queue; None if there is no such record."""
        found = self.units_from(offset)
        if found is None:
            return None
        address, _, mapping = found
        return Unit._make(decode_batch_unit(mapping.view, address - mapping.address)[:3])
