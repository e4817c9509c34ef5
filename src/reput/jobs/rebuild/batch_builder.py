"""Build batch consume queues: tasks spill their units, then the units of each queue are written in log order.

The position of a unit does not depend on its queue offset, but on the count of units before it. So no task knows the
positions of its units before the units of all earlier tasks are known, nor whether all of them count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK, File
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit
from reput.formats.message_batch import INNER_BATCH
from reput.formats.paths import offset_to_file_name, topic_folder_name
from reput.jobs.rebuild.spill_file import SpillFile
from reput.jobs.record_faults import has_units, queue_fault, record_damage, wrong_queue_offsets
from reput.kernels.queues.batch_consume_queue import NO_BATCH_QUEUE, group_batch_units
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.log.batch_jumps import NO_UNITS, BatchUnits, judge_units
from reput.log.damages import NO_DAMAGES
from reput.log.queue_jumps import WITNESSES
from reput.log.queue_types import QueueTypes
from reput.log.scan import OnDamage

#: Bytes of units that a task holds in memory before it spills them.
_SPILL_BYTES = 32 << 20

#: Topic and queue id.
QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class UnitChunk:
    """`size` bytes of units of one queue, in log order, at a position of a spill file."""

    path: str
    position: int
    size: int


class BatchUnitSpill:
    """Spill file for the units of one task.

    Attributes:
        chunks: by queue, in log order; complete after `close`.
        undeclared: topics of inner batches that `types` does not know: the queues must be built again with them.
        damages: with `OnDamage.SKIP`, whole records that cannot have a unit; they are left out.
    """

    def __init__(self, path: str, types: QueueTypes, *, on_damage: OnDamage = OnDamage.RAISE) -> None:
        self.damages = NO_DAMAGES
        self._on_damage = on_damage
        self.chunks: dict[QueueKey, list[UnitChunk]] = {}
        self.undeclared: set[str] = set()
        self._file = SpillFile(path)
        self._types = types
        self._pending: dict[QueueKey, list[bytes]] = {}
        self._bytes = 0

    def put(self, columns: RecordColumns, log_path: str) -> None:
        """Add the units of scanned records (`ScanLevel.PROPERTIES` or above) of the log file `log_path`.

        Raises:
            CorruptRecordError: a queue offset that a log of this size cannot hold, unless damage is skipped.
        """
        self.undeclared |= self._types.undeclared(columns)
        if not self._types.batch:
            return
        keys = [(topic_folder_name(topic), queue_id) for topic, queue_id in columns.queues()]
        last_offsets = np.array([-1 if topic in self._types.batch else NO_BATCH_QUEUE for topic, _ in keys], np.int64)
        self._look_for_damage(columns, last_offsets, log_path)
        runs = group_batch_units(columns, last_offsets)
        view = runs.units.data
        for k in np.flatnonzero(runs.counts).tolist():
            topic, queue_id = keys[k]
            assert topic is not None
            begin, size = int(runs.starts[k]), int(runs.counts[k]) * BATCH_UNIT_SIZE
            self._pending.setdefault((topic, queue_id), []).append(view[begin : begin + size].tobytes())
            self._bytes += size
        if self._bytes >= _SPILL_BYTES:
            self._spill()

    def _look_for_damage(self, columns: RecordColumns, last_offsets: npt.NDArray[np.int64], log_path: str) -> None:
        wrong = wrong_queue_offsets(columns) & has_units(columns)
        if not wrong.any():
            return
        wrong &= (last_offsets != NO_BATCH_QUEUE)[columns["queue"]]
        if self._on_damage is OnDamage.SKIP:  # of the others an inner batch may tell, and the queue's next records
            wrong &= (columns["queue_offset"] < 0) & ((columns["sys_flag"] & INNER_BATCH) != INNER_BATCH)
        for row in np.flatnonzero(wrong).tolist():
            damage = record_damage(log_path, columns, row, queue_fault(columns, row))
            if self._on_damage is not OnDamage.SKIP:
                raise damage.error()
            self.damages = self.damages.followed_by([damage])

    def _spill(self) -> None:
        for key, units in self._pending.items():
            content = b"".join(units)
            chunk = UnitChunk(self._file.path, self._file.write(content), len(content))
            self.chunks.setdefault(key, []).append(chunk)
        self._pending.clear()
        self._bytes = 0

    def close(self) -> None:
        """Spill the remaining units, and close the file."""
        self._spill()
        self._file.close()


class FinishedBatchQueue(NamedTuple):
    """A batch consume queue that was written.

    Attributes:
        written: bytes of its units.
        misnumbered: records that got none, as the next records contradict their queue offset: commit log offsets of
            begin and end, and that queue offset.
    """

    written: int
    misnumbered: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class BatchQueueFinish:
    """Last step for one batch consume queue: write and sync its files.

    Units are left out as `judge_units` says. Here all units of the queue are known, in log order.
    """

    folder: str
    file_size: int
    chunks: tuple[UnitChunk, ...]

    def run(self) -> FinishedBatchQueue:
        """Write and sync the queue; without a unit that counts it gets no folder."""
        end = 0
        file: File | None = None
        misnumbered: list[tuple[int, int, int]] = []
        for units in self._judged(misnumbered):
            data = memoryview(units.tobytes())
            while data:
                inside = end % self.file_size
                if file is None or inside == 0:
                    self._close(file)
                    DISK.make_directories(self.folder)
                    path = os.path.join(self.folder, offset_to_file_name(end))
                    file = DISK.open(path, writable=True, create=True, size=self.file_size)
                fitting = data[: self.file_size - inside]
                file.write(inside, fitting)
                data, end = data[len(fitting) :], end + len(fitting)
        if file is not None:
            self._close(file)
            DISK.sync_directory(self.folder)
        return FinishedBatchQueue(end, tuple(misnumbered))

    def _judged(self, misnumbered: list[tuple[int, int, int]]) -> Iterator[BatchUnits]:
        """Units that count, chunk by chunk; the last few of a chunk wait, as witnesses of those before them."""
        waiting, last = NO_UNITS, None
        for number, chunk in enumerate(self.chunks, 1):
            with DISK.open(chunk.path) as spilled:
                units = np.frombuffer(spilled.read(chunk.position, chunk.size), BATCH_UNIT_TYPE)
            units = np.concatenate([waiting, units], dtype=BATCH_UNIT_TYPE)  # big-endian, as they are
            known = units.size if number == len(self.chunks) else max(units.size - WITNESSES, 0)
            units, waiting = units[:known], units[known:]
            judged = judge_units(units, last, following=waiting)
            ends = units["commit_log_offset"] + units["size"]
            wrong = np.stack([units["commit_log_offset"], ends, units["base_offset"]], axis=1)[judged.wrong]
            misnumbered += map(tuple, wrong.tolist())
            counting = units[judged.counts]
            if counting.size:
                last = BatchUnit._make(counting[-1].item())
                yield counting

    def _close(self, file: File | None) -> None:
        if file is not None:
            file.sync()
            file.close()
