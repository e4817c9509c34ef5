"""One consume queue: the 20-byte units of one topic and queue id, in files that are named by their first byte.

Units are written by system calls, since the files stay sparse: a full disk is an error. They are read through maps.
`ConsumeQueueStore` does what is done for many queues in one call: find the ends, write, sync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reput.config.message_store import OS_PAGE_SIZE
from reput.files import FileLayer, Mapping
from reput.formats.consume_queue import FILLER, UNIT, UNIT_SIZE, Unit, encode_unit
from reput.kernels.queues.consume_queue_ext import last_ext_address
from reput.store.queues.folder import QueueFolder
from reput.store.statistics import TopicCounts

if TYPE_CHECKING:
    from reput.formats.consume_queue_ext import ExtUnit
    from reput.store.queues.consume_queue_ext import ConsumeQueueExt


class ConsumeQueue(QueueFolder):
    """RocketMQ's `ConsumeQueue`. Offsets count messages; positions are bytes in one file.

    Args:
        on_new_name: Called with each folder that has a new name in it that is not synced yet.
        on_map: Called after a file was mapped.

    Attributes:
        synced_offset: `max_offset` at the time when the last sync began.
        ext: The extension with the ext units that the queue's units point to; None if there is no extension.
    """

    __slots__ = ("_on_map", "_on_new_name", "_writing_path", "_writing_start", "ext", "synced_offset")

    def __init__(
        self,
        files: FileLayer,
        path: str,
        topic: str,
        queue_id: int,
        file_size: int,
        *,
        on_new_name: Callable[[str], None],
        on_map: Callable[[], None],
        on_dirty: Callable[[ConsumeQueue], None],
        counts: TopicCounts,
    ) -> None:
        super().__init__(files, path, topic, queue_id, file_size, counts, on_dirty)
        self._on_new_name = on_new_name
        self._on_map = on_map
        self._writing_start = -1
        self._writing_path = ""
        self.synced_offset = 0
        self.ext: ConsumeQueueExt | None = None

    # -- loading

    def start_with(self, starts: list[int], max_offset: int, max_physical_offset: int) -> None:
        """Take over existing files, and the offsets that were read from them."""
        self._starts = starts
        self.max_offset = self.synced_offset = max_offset
        self.max_physical_offset = max_physical_offset
        self.min_offset = min(starts[0] // UNIT_SIZE, max_offset)

    def cut(self) -> None:
        """Zero the bytes after the last unit, so that a later start does not take them for units.

        The file that takes the next unit stays: making ten thousand files right after their removal takes seconds.
        """
        self._wipe_from(self.end_position, [start for start in self._starts if start > self.end_position])

    def write_again(self) -> None:
        """See `QueueFolder.write_again`; the extension does not say how far it was synced, so all of it is written."""
        if self.ext is not None:
            self.ext.write_again()
        super().write_again()

    # -- writing

    def path_to_write(self, start: int) -> str:
        """Path of the file that begins at a byte of the queue; the file is made if it is missing."""
        if start != self._writing_start:
            if start not in self._starts:
                for folder in self._files.add_directories(self.path):
                    self._on_new_name(folder)
                self._make_file(start)
                self._on_new_name(self.path)
            self._writing_start, self._writing_path = start, self.file_path(start)
        return self._writing_path

    def path_to_append(self, offset: int, count: int) -> str:
        """Path of the file that has the last unit, if `count` units at a queue offset follow there; else ''."""
        inside = offset * UNIT_SIZE - self._writing_start
        fit = offset == self.max_offset and 0 <= inside <= self.file_size - count * UNIT_SIZE
        return self._writing_path if fit else ""

    def append(self, count: int, physical_end: int) -> None:
        """Count units that were written where `path_to_append` says."""
        self.max_physical_offset = physical_end
        self.max_offset += count
        self.mark_dirty(self._writing_start)

    def fill_to(self, offset: int) -> None:
        """Write filler units up to a queue offset; in a new queue from the start of the file (`fillPreBlank`).

        A failure leaves `max_offset` as it was.
        """
        end = self.max_offset
        if end == 0 and not self._starts:
            position = offset * UNIT_SIZE
            end = (position - position % self.file_size) // UNIT_SIZE
            self.min_offset = offset
        while end < offset:
            position = end * UNIT_SIZE
            start = position - position % self.file_size
            count = min(offset - end, (start + self.file_size - position) // UNIT_SIZE)
            with self._files.open(self.path_to_write(start), writable=True) as file:
                file.write(position - start, encode_unit(*FILLER) * count)
            end += count
            self.mark_dirty(start)
        self.max_offset = end

    def begin_at(self, offset: int) -> None:
        """Let the next message get a queue offset, in a queue whose messages the log does not have any more."""
        self._wipe_from(0, list(self._starts))
        self.max_offset = self.synced_offset = 0
        self._writing_start, self._writing_path = -1, ""
        self.fill_to(offset)
        self.min_offset = offset

    def take_back(self, offset: int) -> None:
        """Remove the units from a queue offset on: the record of the last one has a wrong queue offset.

        A failure leaves `max_offset` as it was.
        """
        end, self.max_offset = self.max_offset, offset  # before the units are gone, for readers
        self.min_offset = min(self.min_offset, offset)
        self._writing_start, self._writing_path = -1, ""
        try:
            self.cut()
        except BaseException:
            self.max_offset = end
            raise

    @property
    def end_position(self) -> int:
        """Byte of the queue after the last unit."""
        return self.max_offset * UNIT_SIZE

    @property
    def unsynced_pages(self) -> int:
        """Pages of 4096 bytes that were written since the last sync."""
        return (self.max_offset - self.synced_offset) * UNIT_SIZE // OS_PAGE_SIZE

    # -- retention

    @property
    def begin_position(self) -> int:
        """Byte of the queue at which the unit of `min_offset` begins."""
        return self.min_offset * UNIT_SIZE

    def delete_expired(self) -> dict[str, int]:
        """Delete the files that end before `begin_position`, oldest first (`ConsumeQueue.deleteExpiredFile`).

        The last file always stays: it knows the queue offset of the next message. Called while no flush runs.

        Returns:
            Path and size of each deleted file.
        """
        deleted = {}
        while len(self._starts) > 1 and self._starts[0] + self.file_size <= self.begin_position:
            deleted[self._delete_first()] = self.file_size
        return deleted

    def drop_mappings(self) -> None:
        """Drop the maps; each map lives as long as somebody reads it."""
        super().drop_mappings()
        if self.ext is not None:
            self.ext.drop_mappings()

    # -- reading

    def units_from(self, offset: int) -> tuple[int, int, Mapping] | None:
        """Find the unit at a queue offset: its address, the number of units from it to its file's end, and their map.

        The units stay mapped as long as the map is held, which is to be asked for them. None if there is no such
        unit.
        """
        count = self.max_offset - offset
        if count <= 0:
            return None
        position = offset * UNIT_SIZE
        inside = position % self.file_size
        in_file = (self.file_size - inside) // UNIT_SIZE
        if count > in_file:
            count = in_file
        mapping = self._mappings.get(position - inside)
        if mapping is None or inside + count * UNIT_SIZE > mapping.whole_until:
            mapping = self._map(position - inside)
            if mapping is None:
                return None
        return mapping.address + inside, count, mapping

    def is_at_hand(self, offset: int) -> bool:
        """Whether `units_from` needs no disk: the file is mapped, or the last one, which is being written."""
        start = offset * UNIT_SIZE
        start -= start % self.file_size
        return start in self._mappings or self._starts[-1:] == [start]

    def roll_next_file(self, offset: int) -> int:
        """Queue offset at which a pull without a unit goes on: the first of the next file (`rollNextFile`)."""
        units = self.file_size // UNIT_SIZE
        return offset - offset % units + units

    def _map(self, start: int) -> Mapping | None:
        mapping = super()._map(start)
        if mapping is not None:
            self._on_map()
        return mapping

    def unit(self, offset: int) -> Unit | None:
        """The unit at a queue offset; None if there is no such unit."""
        found = self.units_from(offset)
        if found is None:
            return None
        inside = offset * UNIT_SIZE % self.file_size
        found[2].ask_now(inside, inside + UNIT_SIZE)
        return Unit._make(UNIT.unpack_from(found[2].view, inside))

    def ext_unit(self, offset: int) -> ExtUnit | None:
        """The ext unit of the unit at a queue offset; None if the unit has no ext unit, or it is lost."""
        unit = self.unit(offset)
        return self.ext.unit(unit.tags_code) if unit is not None and self.ext is not None else None

    def recover_ext(self) -> None:
        """Bring the extension in step with the units; see `ConsumeQueueExt.recover`."""
        if self.ext is not None:
            self.ext.recover(self._last_ext_address())

    def _last_ext_address(self) -> int:
        """The last ext address among the units; 0 if no unit holds one. Mostly the last unit holds one."""
        for start in reversed(self._starts):
            found = self.units_from(start // UNIT_SIZE)
            if found is not None:
                units, count, mapping = found
                mapping.ask(0, count * UNIT_SIZE)
                if address := int(last_ext_address(units, count)):
                    return address
        return 0
