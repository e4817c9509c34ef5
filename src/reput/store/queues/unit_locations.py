"""Where the units of scanned records go: behind the last unit of each queue, cut where files end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.consume_queue import UnitRuns
from reput.kernels.consume_queue_ext import ExtRuns
from reput.kernels.unit_types import UNIT_TYPE
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.consume_queue_ext import ConsumeQueueExt, Run


class UnitPlaces(NamedTuple):
    """Where runs of units go, each cut where files end; of `numbers` one element a run, of the others one a piece.

    Attributes:
        numbers: The queues that have a run, by their number in the scan.
        owners: The queue.
        files: The first byte of the file, as its name says it.
        positions, sizes: Where in the file, and how many bytes.
        addresses: Where the units are.
    """

    numbers: npt.NDArray[np.int64]
    owners: list[ConsumeQueue]
    files: list[int]
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.int64]


def place_units(
    runs: UnitRuns, queues: Sequence[ConsumeQueue], next_offsets: npt.NDArray[np.int64], file_size: int
) -> UnitPlaces:
    """Each queue's units go behind its last one."""
    numbers = np.flatnonzero(runs.counts)
    begins, sizes = next_offsets[numbers] * UNIT_SIZE, runs.counts[numbers] * UNIT_SIZE
    first_files = begins // file_size
    counts = (begins + sizes - 1) // file_size - first_files + 1
    pieces = np.repeat(np.arange(numbers.size), counts)
    before = np.arange(pieces.size) - np.repeat(np.cumsum(counts) - counts, counts)
    files = (first_files[pieces] + before) * file_size
    piece_begins = np.maximum(files, begins[pieces])
    piece_ends = np.minimum(files + file_size, (begins + sizes)[pieces])
    addresses = runs.units.ctypes.data + runs.starts[numbers][pieces] + piece_begins - begins[pieces]
    owners = [queues[k] for k in numbers[pieces].tolist()]
    return UnitPlaces(numbers, owners, files.tolist(), piece_begins - files, piece_ends - piece_begins, addresses)


def place_ext_runs(
    runs: UnitRuns, queues: Sequence[ConsumeQueue], ext: ExtRuns
) -> tuple[list[Run], list[ConsumeQueueExt]]:
    """Where the ext units of each queue go, and to whom; the units' tags codes become their addresses."""
    base = runs.units.ctypes.data
    pieces: list[Run] = []
    owners: list[ConsumeQueueExt] = []
    for k in np.flatnonzero(runs.counts).tolist():
        queue_ext = queues[k].ext
        if queue_ext is not None:
            data, units = ext.data.ctypes.data + int(ext.starts[k]), base + int(runs.starts[k])
            pieces += queue_ext.run(ext.sizes_of(runs, k), data, units)
            owners.append(queue_ext)
    return pieces, owners


def advance(runs: UnitRuns, queues: list[ConsumeQueue], next_offsets: npt.NDArray[np.int64], place: UnitPlaces) -> None:
    """Count units that are in their files."""
    numbers = place.numbers
    counts = runs.counts[numbers]
    last_units = runs.units.view(UNIT_TYPE)[runs.starts[numbers] // UNIT_SIZE + counts - 1]
    physical_ends = (last_units["commit_log_offset"] + last_units["size"]).tolist()
    ends = (next_offsets[numbers] + counts).tolist()
    for k, end, physical_end in zip(numbers.tolist(), ends, physical_ends, strict=True):
        queue = queues[k]
        queue.max_physical_offset = physical_end
        queue.max_offset = end
    for queue, start in zip(place.owners, place.files, strict=True):
        queue.dirty.add(start)  # from now on, not before: a sync may have come in between
