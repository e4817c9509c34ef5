"""Locations of new units, and their writes: after the last unit of each queue, cut where files end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.queues.consume_queue import UnitRuns
from reput.kernels.queues.consume_queue_ext import ExtRuns
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.consume_queue_ext import ConsumeQueueExt, Run


class UnitLocations(NamedTuple):
    """Files and positions that runs of units go to, each run cut where a file ends.

    `numbers` has an element for each run, all others for each write: the units of a run that go to one file.

    Attributes:
        numbers: The queues that have a run, by their number in the scan.
        owners: The queue.
        files: First byte of the file in the queue, as the file's name says.
        positions, sizes: Position in the file, and number of bytes.
        addresses: Memory address of the units.
    """

    numbers: npt.NDArray[np.int64]
    owners: list[ConsumeQueue]
    files: list[int]
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.int64]


def locate_units(
    runs: UnitRuns, queues: Sequence[ConsumeQueue], next_offsets: npt.NDArray[np.int64], file_size: int
) -> UnitLocations:
    """Locate each queue's new units: they go after its last unit."""
    numbers = np.flatnonzero(runs.counts)
    begins, sizes = next_offsets[numbers] * UNIT_SIZE, runs.counts[numbers] * UNIT_SIZE
    first_files = begins // file_size
    counts = (begins + sizes - 1) // file_size - first_files + 1
    writes = np.repeat(np.arange(numbers.size), counts)
    before = np.arange(writes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    files = (first_files[writes] + before) * file_size
    write_begins = np.maximum(files, begins[writes])
    write_ends = np.minimum(files + file_size, (begins + sizes)[writes])
    addresses = runs.units.ctypes.data + runs.starts[numbers][writes] + write_begins - begins[writes]
    owners = [queues[k] for k in numbers[writes].tolist()]
    return UnitLocations(numbers, owners, files.tolist(), write_begins - files, write_ends - write_begins, addresses)


def locate_ext_units(
    runs: UnitRuns, queues: Sequence[ConsumeQueue], ext: ExtRuns
) -> tuple[list[Run], list[ConsumeQueueExt]]:
    """Locate each queue's new ext units, and return their extensions; the units' tags codes become ext addresses."""
    base = runs.units.ctypes.data
    writes: list[Run] = []
    owners: list[ConsumeQueueExt] = []
    for k in np.flatnonzero(runs.counts).tolist():
        queue_ext = queues[k].ext
        if queue_ext is not None:
            data, units = ext.data.ctypes.data + int(ext.starts[k]), base + int(runs.starts[k])
            writes += queue_ext.run(ext.sizes_of(runs, k), data, units)
            owners.append(queue_ext)
    return writes, owners


def advance(
    runs: UnitRuns, queues: list[ConsumeQueue], next_offsets: npt.NDArray[np.int64], located: UnitLocations
) -> None:
    """Count units that were written to their files."""
    numbers = located.numbers
    counts = runs.counts[numbers]
    last_units = runs.units.view(UNIT_TYPE)[runs.starts[numbers] // UNIT_SIZE + counts - 1]
    physical_ends = (last_units["commit_log_offset"] + last_units["size"]).tolist()
    ends = (next_offsets[numbers] + counts).tolist()
    for k, end, physical_end in zip(numbers.tolist(), ends, physical_ends, strict=True):
        queue = queues[k]
        queue.max_physical_offset = physical_end
        queue.max_offset = end
    for queue, start in zip(located.owners, located.files, strict=True):
        queue.mark_dirty(start)


def write_units(
    files: FileLayer,
    runs: UnitRuns,
    queues: list[ConsumeQueue],
    next_offsets: npt.NDArray[np.int64],
    file_size: int,
    ext: ExtRuns | None,
) -> None:
    """Write each queue's units after its last unit, one run for each file, with their ext units, and count them."""
    located = locate_units(runs, queues, next_offsets, file_size)
    if not located.numbers.size:
        return
    paths = [queue.path_to_write(start) for queue, start in zip(located.owners, located.files, strict=True)]
    addresses, sizes, positions = located.addresses, located.sizes, located.positions
    extended: list[ConsumeQueueExt] = []
    if ext is not None:  # ext units before the units, in one call: a write that fails is done again as a whole
        ext_runs, extended = locate_ext_units(runs, queues, ext)
        ext_table = np.array([run[1:] for run in ext_runs], np.int64).reshape(-1, 3)
        paths = [*(run.path for run in ext_runs), *paths]
        addresses = np.concatenate([ext_table[:, 0], addresses])
        sizes = np.concatenate([ext_table[:, 1], sizes])
        positions = np.concatenate([ext_table[:, 2], positions])
    files.write_runs(paths, addresses, sizes, positions)
    advance(runs, queues, next_offsets, located)
    for queue_ext in extended:
        queue_ext.advance()
