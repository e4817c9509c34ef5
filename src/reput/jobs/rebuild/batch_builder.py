"""Build batch consume queues: tasks spill their units, then the units of each queue are written in log order.

The position of a unit does not depend on its queue offset, but on the count of units before it. So no task knows the
positions of its units before the units of all earlier tasks are known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from reput.files import DISK, File
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.paths import offset_to_file_name, topic_folder_name
from reput.kernels.queues.batch_consume_queue import NO_BATCH_QUEUE, group_batch_units
from reput.kernels.records.columns import RecordColumns
from reput.log.queue_types import QueueTypes

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
    """

    def __init__(self, path: str, types: QueueTypes) -> None:
        self.chunks: dict[QueueKey, list[UnitChunk]] = {}
        self.undeclared: set[str] = set()
        self._path = path
        self._types = types
        self._file: File | None = None
        self._position = 0
        self._pending: dict[QueueKey, list[bytes]] = {}
        self._bytes = 0

    def put(self, columns: RecordColumns) -> None:
        """Add the units of scanned records (`ScanLevel.PROPERTIES` or above)."""
        self.undeclared |= self._types.undeclared(columns)
        if not self._types.batch:
            return
        keys = [(topic_folder_name(topic), queue_id) for topic, queue_id in columns.queues()]
        last_offsets = np.array([-1 if topic in self._types.batch else NO_BATCH_QUEUE for topic, _ in keys], np.int64)
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

    def _spill(self) -> None:
        if self._file is None:
            self._file = DISK.open(self._path, writable=True, create=True)
        for key, units in self._pending.items():
            content = b"".join(units)
            self._file.write(self._position, content)
            self.chunks.setdefault(key, []).append(UnitChunk(self._path, self._position, len(content)))
            self._position += len(content)
        self._pending.clear()
        self._bytes = 0

    def close(self) -> None:
        """Spill the remaining units, and close the file. It is removed with the job, so it is not synced."""
        if self._pending:
            self._spill()
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, slots=True)
class BatchQueueFinish:
    """Last step for one batch consume queue: write and sync its files."""

    folder: str
    file_size: int
    chunks: tuple[UnitChunk, ...]

    def run(self) -> int:
        """Write and sync the queue; returns the bytes of its units."""
        DISK.make_directories(self.folder)
        end = 0
        file: File | None = None
        for chunk in self.chunks:
            with DISK.open(chunk.path) as spilled:
                data = memoryview(spilled.read(chunk.position, chunk.size))
            while data:
                inside = end % self.file_size
                if file is None or inside == 0:
                    self._close(file)
                    path = os.path.join(self.folder, offset_to_file_name(end))
                    file = DISK.open(path, writable=True, create=True, size=self.file_size)
                fitting = data[: self.file_size - inside]
                file.write(inside, fitting)
                data, end = data[len(fitting) :], end + len(fitting)
        self._close(file)
        DISK.sync_directory(self.folder)
        return end

    def _close(self, file: File | None) -> None:
        if file is not None:
            file.sync()
            file.close()
