"""Point reads: records at known offsets are read alone, in log order, neighbours with one system call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reput.files import DISK, FileLayer
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import read_records_at
from reput.log.directory import LogFile, open_listed
from reput.log.scan import MAX_ROWS, record_damage

#: Bytes between two records that are read together with them: a second system call would cost as much.
GAP_BYTES = 8 << 10
_BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Records of one file: commit log offsets, ascending, and sizes; int64[n] each."""

    file: LogFile
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def read_records(points: Points, *, files: FileLayer = DISK) -> Iterator[RecordColumns]:
    """Read the records at known offsets, without the column `queue`; each batch has a buffer of its own.

    Raises CorruptRecordError if a record is not proven by its own offset, size, inner lengths and CRC.
    """
    with open_listed(files, points.file.path) as file:
        for begin, end in _batches(points):
            offsets, sizes = points.offsets[begin:end], points.sizes[begin:end]
            firsts = run_starts(offsets, sizes)
            lasts = np.append(firsts[1:], offsets.size) - 1
            lengths = offsets[lasts] + sizes[lasts] - offsets[firsts]
            starts = np.cumsum(lengths) - lengths
            buffer = file.read_runs(offsets[firsts] - points.file.start_offset, lengths)
            run = np.repeat(np.arange(firsts.size), np.diff(np.append(firsts, offsets.size)))
            positions = starts[run] + offsets - offsets[firsts[run]]
            columns = read_records_at(buffer, positions, np.ascontiguousarray(offsets), check_crc=True)
            rows = min(columns.first_fault(), columns.rows)
            wrong = np.flatnonzero(columns["store_size"][:rows] != sizes[:rows])
            rows = int(wrong[0]) if wrong.size else rows
            if rows < offsets.size:
                at = int(positions[rows])
                size = int(sizes[rows])
                raise record_damage(points.file, int(offsets[rows]), buffer[at : at + size])
            yield columns


def run_starts(offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first record of each run of neighbours: records with at most GAP_BYTES between them."""
    gaps = offsets[1:] - offsets[:-1] - sizes[:-1]
    return np.append(0, np.flatnonzero(gaps > GAP_BYTES) + 1)


def _batches(points: Points) -> Iterator[tuple[int, int]]:
    """Batches (begin, end) of at most MAX_ROWS records and _BATCH_BYTES, gaps included; a larger record is alone."""
    gaps = points.offsets[1:] - points.offsets[:-1] - points.sizes[:-1]
    ends = np.cumsum(points.sizes + np.append(0, np.where(gaps > GAP_BYTES, 0, gaps)))
    begin = 0
    while begin < ends.size:
        limit = _BATCH_BYTES + (int(ends[begin - 1]) if begin else 0)
        end = min(max(int(np.searchsorted(ends, limit, "right")), begin + 1), begin + MAX_ROWS)
        yield begin, end
        begin = end
