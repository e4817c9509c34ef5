"""Write consume queue units of scanned records to the files of a rebuild, in independent tasks.

The slot of a unit is its queue offset, so tasks share the files without a lock: each writes its own slots. The merge
checks from the `WrittenRange`s whether the slots of all tasks join without a gap or an overlap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK
from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.formats.java import INT64_MAX
from reput.formats.paths import offset_to_file_name, topic_folder_name
from reput.jobs.rebuild.ext_builder import ExtChunk, ExtLayout, ExtSpill
from reput.jobs.record_faults import has_units, misnumbered_fault, queue_fault, record_damage, wrong_queue_offsets
from reput.kernels.queues.consume_queue import UnitRuns, group_units
from reput.kernels.queues.consume_queue_ext import bit_maps_of, encode_ext_units
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.records.columns import RecordColumns
from reput.log.damages import NO_DAMAGES
from reput.log.queue_jumps import Jump, has_room, judge_jump, next_queue_offsets
from reput.log.scan import OnDamage

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps

_FILLER = encode_unit(*FILLER)
#: A next queue offset that makes every row a repeat: `group_units` takes none of the queue.
_NO_QUEUE = INT64_MAX


@dataclass(frozen=True, slots=True)
class FurtherUnits:
    """Settings of the units that tasks write besides a unit for each message.

    Attributes:
        ext_file_size: size in bytes of the files of consume queue extensions; None without extensions.
        bit_maps: bit maps of ext units, as for `MessageStore.open`; picklable if a task runs in another process.
        multi_dispatch: whether the queues that INNER_MULTI_DISPATCH names get units.
        enable_lmq: whether light message queues have queue id 0.
        any_topic: whether messages of retry and system topics have units in these queues, too.
    """

    ext_file_size: int | None = None
    bit_maps: BitMaps | None = None
    multi_dispatch: bool = False
    enable_lmq: bool = False
    any_topic: bool = False


_NOTHING_FURTHER = FurtherUnits()


@dataclass(slots=True)
class WrittenRange:
    """Slots [first_offset, next_offset) of one queue that a task has written; `units` of them are no fillers."""

    topic: str
    queue_id: int
    first_offset: int
    next_offset: int
    units: int = 0


class _Jump(NamedTuple):
    """A record that left a gap, and whose next records do not decide yet.

    Its commit log offset, the queue's end before it, and int64[n], the queue offsets of the records since then.
    """

    offset: int
    expected: int
    following: npt.NDArray[np.int64]


class UnitWriter:
    """Writes units into queue files below a folder, each file `file_size` bytes long and sparse.

    Within its records the writer follows `ConsumeQueue.putMessagePositionInfo`: a unit before its queue's next offset
    is a repeat and is dropped, and a gap is filled with filler units, so that each unit stands at its own queue offset.

    Topics in `batch_topics` are left out: they have batch consume queues, see `BatchUnitSpill`.

    Attributes:
        ranges: slots that were written, by (topic, queue id).
        ext: ext units of the written units, if `further` asks for them; they are spilled to the file `ext_path`.
        damages: records whose queue offset the queue's next records contradict, and with `OnDamage.SKIP` whole records
            that cannot have a unit; they are left out.
        misnumbered: commit log offsets of records that have a unit here, and turned out to have a wrong queue offset:
            what was written is to be written again without them.
    """

    def __init__(
        self,
        folder: str,
        file_size: int,
        batch_topics: Set[str] = frozenset(),
        further: FurtherUnits = _NOTHING_FURTHER,
        ext_path: str = "",
        *,
        on_damage: OnDamage = OnDamage.RAISE,
        misnumbered: Set[int] = frozenset(),
    ) -> None:
        self.damages = NO_DAMAGES
        self.misnumbered: set[int] = set()
        self._known_misnumbered = np.array(sorted(misnumbered), np.int64)
        self._jumps: dict[tuple[str, int], _Jump] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._on_damage = on_damage
        self.ranges: dict[tuple[str, int], WrittenRange] = {}
        self._batch_topics = batch_topics
        self._folder = folder
        self._file_size = file_size
        #: Path of each file that was made, by topic, queue id and first byte.
        self._made: dict[tuple[str, int, int], str] = {}
        self._further = further
        self.ext = ExtSpill(ext_path)

    def put(self, columns: RecordColumns, log_path: str) -> None:
        """Write the units of scanned records (`ScanLevel.PROPERTIES` or above) of the log file `log_path`.

        Raises:
            CorruptRecordError: a queue offset that a log of this size cannot hold, or a topic that cannot name a
                folder, unless damage is skipped. No unit of these records is written then; units of earlier calls are.
        """
        if not columns.rows:
            return
        further, sources = self._further, None
        ext_file_size = further.ext_file_size
        bit_maps = bit_maps_of(further.bit_maps, columns) if ext_file_size is not None else None
        if further.multi_dispatch:
            columns, sources = add_multi_dispatch_rows(
                columns, enable_lmq=further.enable_lmq, any_topic=further.any_topic
            )
        names = [topic_folder_name(topic) for topic, _ in columns.queues()]
        has_unit = self._without_damage(columns, names, _rows_with_unit(columns, names, self._batch_topics), log_path)
        has_unit = self._judged_firsts(columns, names, has_unit, log_path)
        queues = self._queues_of(columns, names, has_unit)
        if self._jumps:
            self._judge_jumps(columns, queues)
        next_offsets = np.array([queue.next_offset if queue else _NO_QUEUE for queue in queues], np.int64)
        row, before = 0, next_offsets.copy()
        while row < columns.rows:
            runs = group_units(columns, next_offsets, row, with_rows=ext_file_size is not None)
            self._write(runs, queues, next_offsets)
            if ext_file_size is not None:
                ext = encode_ext_units(runs, columns, sources, bit_maps, ext_file_size)
                for k in np.flatnonzero(runs.counts).tolist():
                    written = queues[k]
                    assert written is not None
                    self.ext.put((written.topic, written.queue_id), int(next_offsets[k]), runs, ext, k)
            next_offsets += runs.counts
            row = runs.stop_row
            if row < columns.rows:
                k = int(columns["queue"][row])
                if self._counts(columns, row, queues[k], int(next_offsets[k]), log_path):
                    following = int(columns["queue_offset"][row])
                    self._fill(queues[k], int(next_offsets[k]), following)
                    next_offsets[k] = following
        ends = _ends_of_last_units(columns, has_units(columns), next_offsets)
        for k, queue in enumerate(queues):
            if queue:
                queue.next_offset = int(next_offsets[k])
                if next_offsets[k] != before[k] or (queue.topic, queue.queue_id) not in self._ends:
                    self._ends[queue.topic, queue.queue_id] = int(ends[k])

    def close(self) -> None:
        """Close the spill file of ext units; nothing is synced."""
        self.ext.close()

    def _without_damage(
        self, columns: RecordColumns, names: list[str | None], has_unit: npt.NDArray[np.bool_] | None, log_path: str
    ) -> npt.NDArray[np.bool_] | None:
        """`has_unit` without rows that cannot have a unit, which are raised or added to `damages`."""
        wrong = wrong_queue_offsets(columns)
        if self._known_misnumbered.size:
            wrong |= np.isin(columns["commit_log_offset"], self._known_misnumbered)
        if None in names:  # hostile bytes must not lead out of the rebuild's folder
            wrong |= np.isin(columns["queue"], [k for k, name in enumerate(names) if name is None])
        if has_unit is not None:
            wrong &= has_unit
        if not wrong.any():
            return has_unit
        for row in np.flatnonzero(wrong).tolist():
            is_known = np.isin(columns["commit_log_offset"][row], self._known_misnumbered)
            says = int(columns["queue_offset"][row])
            fault = misnumbered_fault(says) if is_known else queue_fault(columns, row)
            damage = record_damage(log_path, columns, row, fault)
            if self._on_damage is not OnDamage.SKIP and not is_known:
                raise damage.error()
            self.damages = self.damages.followed_by([damage])
        columns["queue_offset"][wrong] = -1  # a repeat at any next offset
        return ~wrong if has_unit is None else has_unit & ~wrong

    def _judged_firsts(
        self, columns: RecordColumns, names: list[str | None], has_unit: npt.NDArray[np.bool_] | None, log_path: str
    ) -> npt.NDArray[np.bool_] | None:
        """`has_unit` without the first records of queues that the next records of their queue contradict."""
        queues = columns.queues()
        new = [
            name is not None and (name, queue_id) not in self.ranges
            for (_, queue_id), name in zip(queues, names, strict=True)
        ]
        if not any(new):
            return has_unit
        rows = np.arange(columns.rows) if has_unit is None else np.flatnonzero(has_unit)
        rows = rows[np.argsort(columns["queue"][rows], kind="stable")]
        numbers, offsets = columns["queue"][rows], columns["queue_offset"][rows]
        is_first = np.append(True, numbers[1:] != numbers[:-1])[: rows.size] & np.array(new)[numbers]
        goes_on = np.append((numbers[1:] == numbers[:-1]) & (offsets[1:] == offsets[:-1] + 1), False)[: rows.size]
        for at in np.flatnonzero(is_first & ~goes_on).tolist():
            number = int(numbers[at])
            for row in rows[at : np.searchsorted(numbers, number, "right")].tolist():
                following = next_queue_offsets(columns, number, row + 1)
                jump = judge_jump(int(columns["queue_offset"][row]), -1, following)
                if jump is Jump.UNKNOWN:
                    topic = names[number]
                    assert topic is not None
                    self._jumps[topic, queues[number][1]] = _Jump(int(columns["commit_log_offset"][row]), -1, following)
                if jump is not Jump.WRONG:
                    break
                self._leave_out(columns, row, log_path)
                has_unit = np.ones(columns.rows, np.bool_) if has_unit is None else has_unit
                has_unit[row] = False
        return has_unit

    def _judge_jumps(self, columns: RecordColumns, queues: list[WrittenRange | None]) -> None:
        """Judge jumps that were the last thing known of their queue by the queue's next records."""
        for k, queue in enumerate(queues):
            if queue is None or (jump := self._jumps.get((queue.topic, queue.queue_id))) is None:
                continue
            if jump.offset >= columns["commit_log_offset"][0]:  # its first record, which these have
                continue
            following = np.concatenate([jump.following, next_queue_offsets(columns, k, 0)])
            judged = judge_jump(queue.next_offset - 1, jump.expected, following)
            if (
                judged is Jump.WRONG
            ):  # the next pass is without it; this one goes on as that will, and finds all of them
                self.misnumbered.add(jump.offset)
                queue.next_offset = jump.expected if jump.expected >= 0 else int(following[0])
                queue.first_offset = min(queue.first_offset, queue.next_offset)
            if judged is Jump.UNKNOWN:
                self._jumps[queue.topic, queue.queue_id] = jump._replace(following=following[-2:])
            else:
                del self._jumps[queue.topic, queue.queue_id]

    def _counts(
        self, columns: RecordColumns, row: int, queue: WrittenRange | None, expected: int, log_path: str
    ) -> bool:
        """Whether a gap is left before a record's unit; else the record gets none."""
        assert queue is not None
        key, k = (queue.topic, queue.queue_id), int(columns["queue"][row])
        queue_offset, offset = int(columns["queue_offset"][row]), int(columns["commit_log_offset"][row])
        following = next_queue_offsets(columns, k, row + 1)
        jump = judge_jump(queue_offset, expected, following)
        if jump is Jump.UNKNOWN:
            next_offsets = np.full(columns.queue_rows.size, expected)
            rows = has_units(columns) & (np.arange(columns.rows) < row)
            begin = int(_ends_of_last_units(columns, rows, next_offsets)[k]) or self._ends.get(key, 0)
            jump = jump if has_room(queue_offset, expected, begin, offset) else Jump.WRONG
        if jump is Jump.WRONG:
            self._leave_out(columns, row, log_path)
            return False
        if jump is Jump.UNKNOWN:
            self._jumps[key] = _Jump(offset, expected, following)
        return True

    def _leave_out(self, columns: RecordColumns, row: int, log_path: str) -> None:
        damage = record_damage(log_path, columns, row, misnumbered_fault(int(columns["queue_offset"][row])))
        self.damages = self.damages.followed_by([damage])
        columns["queue_offset"][row] = -1  # a repeat at any next offset

    def _queues_of(
        self, columns: RecordColumns, names: list[str | None], has_unit: npt.NDArray[np.bool_] | None
    ) -> list[WrittenRange | None]:
        """Range of each queue of the scan, begun for new queues; None for queues without units in the scan."""
        first_rows = columns.queue_rows
        if has_unit is not None:
            first_rows = np.full(first_rows.size, -1, np.int32)
            rows = np.flatnonzero(has_unit)[::-1]
            first_rows[columns["queue"][rows]] = rows  # NumPy keeps the last of equal indexes: the queue's first row
        ranges: list[WrittenRange | None] = []
        for k, ((_, queue_id), name) in enumerate(zip(columns.queues(), names, strict=True)):
            row = int(first_rows[k])
            if row < 0 or name is None:
                ranges.append(None)
                continue
            queue = self.ranges.get((name, queue_id))
            if queue is None:
                offset = int(columns["queue_offset"][row])
                queue = self.ranges[name, queue_id] = WrittenRange(name, queue_id, offset, offset)
                DISK.add_directories(queue_folder(self._folder, queue))
            ranges.append(queue)
        return ranges

    def _write(self, runs: UnitRuns, queues: list[WrittenRange | None], next_offsets: npt.NDArray[np.int64]) -> None:
        base = runs.units.ctypes.data
        writes: list[tuple[str, int, int, int]] = []
        for k in np.flatnonzero(runs.counts).tolist():
            queue = queues[k]
            assert queue is not None
            queue.units += int(runs.counts[k])
            address, position = base + int(runs.starts[k]), int(next_offsets[k]) * UNIT_SIZE
            left = int(runs.counts[k]) * UNIT_SIZE
            while left:
                inside = position % self._file_size
                size = min(left, self._file_size - inside)
                writes.append((self._file(queue, position - inside), address, size, inside))
                address, position, left = address + size, position + size, left - size
        _write_runs(writes)

    def _fill(self, queue: WrittenRange | None, offset: int, end: int) -> None:
        assert queue is not None
        while offset < end:
            inside = offset * UNIT_SIZE % self._file_size
            count = min(end - offset, (self._file_size - inside) // UNIT_SIZE)
            with DISK.open(self._file(queue, offset * UNIT_SIZE - inside), writable=True) as file:
                file.write(inside, _FILLER * count)
            offset += count

    def _file(self, queue: WrittenRange, start: int) -> str:
        """Path of the queue file that begins at position `start` of the queue. The first task to need it makes it."""
        path = self._made.get((queue.topic, queue.queue_id, start))
        if path is None:
            path = os.path.join(queue_folder(self._folder, queue), offset_to_file_name(start))
            DISK.open(path, writable=True, create=True, size=self._file_size).close()
            self._made[queue.topic, queue.queue_id, start] = path
        return path


@dataclass(frozen=True, slots=True)
class QueueFinish:
    """Last step for some queues, once all units are written: extensions, the head of the first file, and sync."""

    folder: str
    file_size: int
    queues: tuple[WrittenRange, ...]
    ext_folder: str = ""
    ext_file_size: int | None = None
    ext_chunks: tuple[tuple[ExtChunk, ...], ...] = ()

    def run(self) -> int:
        """Finish and sync the queues; returns the bytes of the files in use."""
        used = 0
        if self.ext_file_size is not None:
            for queue, chunks in zip(self.queues, self.ext_chunks, strict=True):
                folders = queue_folder(self.folder, queue), queue_folder(self.ext_folder, queue)
                used += ExtLayout(folders[0], self.file_size, folders[1], self.ext_file_size).run(chunks)
        for queue in self.queues:
            folder = queue_folder(self.folder, queue)
            begin = queue.first_offset * UNIT_SIZE
            head = begin - begin % self.file_size
            end = queue.next_offset * UNIT_SIZE
            for start in range(head, end, self.file_size):
                with DISK.open(os.path.join(folder, offset_to_file_name(start)), writable=True) as file:
                    if start < begin:
                        file.write(0, _FILLER * ((begin - start) // UNIT_SIZE))
                    file.sync()
            used += end - head
        DISK.sync_directories(folders_above(self.folder, self.queues))
        return used


def queue_folder(folder: str, queue: WrittenRange) -> str:
    """Folder of a queue's files."""
    return os.path.join(folder, queue.topic, str(queue.queue_id))


def folders_above(folder: str, queues: Iterable[WrittenRange]) -> list[str]:
    """Folders with the names of queues' files, of queues and of topics; after their sync a new queue's names stay."""
    of_queues = {queue_folder(folder, queue) for queue in queues}
    return sorted(of_queues | {os.path.dirname(path) for path in of_queues} | {folder})


def _ends_of_last_units(
    columns: RecordColumns, rows: npt.NDArray[np.bool_], next_offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """int64[queues], commit log offset after the record of each queue's last unit; 0 if no row has it.

    Records without a unit, as they repeat a queue offset or are left out, do not count: dispatch does not see them.
    """
    found = np.flatnonzero(rows & (columns["queue_offset"] == next_offsets[columns["queue"]] - 1))[::-1]
    ends = np.zeros(next_offsets.size, np.int64)
    ends[columns["queue"][found]] = (columns["commit_log_offset"] + columns["store_size"])[found]  # the first row's
    return ends


def _rows_with_unit(
    columns: RecordColumns, names: list[str | None], batch_topics: Set[str]
) -> npt.NDArray[np.bool_] | None:
    """bool[rows], False for prepared and rolled back messages, and for batch topics; None if all have a unit."""
    with_unit = has_units(columns)
    if batch_topics:
        with_unit &= ~np.isin(columns["queue"], [k for k, name in enumerate(names) if name in batch_topics])
    return None if with_unit.all() else with_unit


def _write_runs(runs: list[tuple[str, int, int, int]]) -> None:
    """Write runs of units, each a (path, address, size, position), in one call."""
    if runs:
        paths, addresses, sizes, positions = zip(*runs, strict=True)
        DISK.write_runs(paths, np.array(addresses, np.int64), np.array(sizes, np.int64), np.array(positions, np.int64))
