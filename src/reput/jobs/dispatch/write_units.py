"""Write the units of a batch to the queues of a store or a replica, in tasks: each has some queues of its own.

A scan has built the units in files of a scratch folder, and the merge has proven them. Here they are copied to their
slots, with ext units, and synced. The batch counts once its mark is written, so a task may end anywhere, or run twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reput.files import DISK
from reput.files.attempts import attempt
from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.formats.paths import offset_to_file_name
from reput.jobs.dispatch.join import QueueUnits
from reput.jobs.rebuild.ext_builder import ExtLayout
from reput.jobs.rebuild.unit_writer import folders_above, queue_folder

#: Units of a task, at the most, but for a queue that has more; and its queues.
_UNITS_OF_A_TASK, _QUEUES_OF_A_TASK = 1 << 20, 256
#: Bytes of units that a task holds in memory, and a queue file.
_COPIED_BYTES = 32 << 20
_FILLER = encode_unit(*FILLER)


@dataclass(frozen=True, slots=True)
class UnitsTarget:
    """Folders of a batch's units.

    Attributes:
        built: folder of the queues that the scan has built.
        folder: folder of the queues, `consumequeue`.
        file_size: bytes of a queue file.
        ext_folder: folder of the extensions.
        ext_file_size: bytes of a file of an extension; None without extensions.
        permit: of the batch's attempts (`reput.files.attempts`).
    """

    built: str
    folder: str
    file_size: int
    ext_folder: str
    ext_file_size: int | None
    permit: str


def groups_of(queues: Sequence[QueueUnits]) -> list[tuple[QueueUnits, ...]]:
    """Queues of each task, of about as many units each."""
    groups: list[list[QueueUnits]] = []
    units = _UNITS_OF_A_TASK
    for queue in queues:
        if units >= _UNITS_OF_A_TASK or len(groups[-1]) == _QUEUES_OF_A_TASK:
            groups.append([])
            units = 0
        groups[-1].append(queue)
        units += queue.written.units
    return [tuple(group) for group in groups]


@dataclass(frozen=True, slots=True)
class UnitsStep:
    """Step of the last phase for some queues: their units to their slots, their ext units, and sync."""

    target: UnitsTarget
    queues: tuple[QueueUnits, ...]

    def run(self) -> None:
        """Write and sync.

        Raises:
            StoreFullError: no space.
            StoreStateError: the dispatcher does not wait for this step any more; nothing was written.
        """
        target, written = self.target, [queue.written for queue in self.queues]
        with attempt(target.permit, DISK):
            paths = [path for queue in self.queues for path in _make_files(target, queue)]
            _copy(target, self.queues)
            if target.ext_file_size is not None:
                for queue in self.queues:
                    folder = queue_folder(target.folder, queue.written)
                    ext_folder = queue_folder(target.ext_folder, queue.written)
                    layout = ExtLayout(folder, target.file_size, ext_folder, target.ext_file_size)
                    layout.run(queue.ext_chunks, queue.ext_end)
            DISK.sync_files(paths)
            DISK.sync_directories(folders_above(target.folder, written))


def _make_files(target: UnitsTarget, queue: QueueUnits) -> list[str]:
    """Make the files that a queue lacks; returns all files that its units go to.

    A file is synced before the next one is made: a power cut must not leave a file after a gap.
    """
    written, folder, size = queue.written, queue_folder(target.folder, queue.written), target.file_size
    DISK.add_directories(folder)
    begin, end = written.first_offset * UNIT_SIZE, written.next_offset * UNIT_SIZE
    paths: list[str] = []
    for start in range(begin - begin % size, end, size):
        path = os.path.join(folder, offset_to_file_name(start))
        if start > queue.last_file:
            last = paths[-1] if paths else os.path.join(folder, offset_to_file_name(max(queue.last_file, 0)))
            if paths or queue.last_file >= 0:
                with DISK.open(last, writable=True) as file:
                    file.sync()
                DISK.sync_directory(folder)
            with DISK.open(path, writable=True, create=True, size=size) as file:
                if start < begin and queue.last_file < 0:  # a queue that begins here
                    file.write(0, _FILLER * ((begin - start) // UNIT_SIZE))
        paths.append(path)
    return paths


def _copy(target: UnitsTarget, queues: Sequence[QueueUnits]) -> None:
    """Copy units from the built files to the queues' files, in few reads and writes of many files."""
    names, sizes, positions = [], [], []
    for queue in queues:
        position, end = queue.written.first_offset * UNIT_SIZE, queue.written.next_offset * UNIT_SIZE
        folder = os.path.join(queue.written.topic, str(queue.written.queue_id))
        while position < end:
            inside = position % target.file_size
            size = min(end - position, target.file_size - inside)
            names.append(os.path.join(folder, offset_to_file_name(position - inside)))
            sizes.append(size)
            positions.append(inside)
            position += size
    of_sizes, of_positions = np.array(sizes, np.int64), np.array(positions, np.int64)
    parts = np.cumsum(of_sizes) // _COPIED_BYTES  # a queue alone may have half a gigabyte of units
    for part in np.split(np.arange(of_sizes.size), np.flatnonzero(np.diff(parts)) + 1):
        chosen = [names[run] for run in part.tolist()]
        units = DISK.read_runs(
            [os.path.join(target.built, name) for name in chosen], of_positions[part], of_sizes[part]
        )
        addresses = units.ctypes.data + np.cumsum(of_sizes[part]) - of_sizes[part]
        paths = [os.path.join(target.folder, name) for name in chosen]
        DISK.write_runs(paths, addresses, of_sizes[part], of_positions[part])
