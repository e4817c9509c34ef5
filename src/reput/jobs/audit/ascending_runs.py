"""Ascending runs of entries: find entries of index files and units of batch consume queues by commit log offset.

In such a file the commit log offsets of the entries ascend; after a crash, or if a bit has flipped, they fall back.
So a file is described by its ascending runs. In a run the entries of a range of the log are one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK, File

Int64s = npt.NDArray[np.int64]
Entries = npt.NDArray[Any]

#: Limit of runs: a file whose offsets fall back more often does not hold entries.
MAX_RUNS = 1_000
_OFFSET_SIZE = 8


@dataclass(frozen=True, slots=True)
class AscendingRun:
    """Entries [first, first + count) of a file, with commit log offsets from `begin` to `last` that never fall.

    `file` numbers the files of an `EntryFiles`.
    """

    file: int
    first: int
    count: int
    begin: int
    last: int


class RunFinder:
    """Finds the ascending runs of one file. Offsets are added block by block."""

    def __init__(self, file: int) -> None:
        self.runs: list[AscendingRun] = []
        self._file = file
        self._count = 0

    def add(self, offsets: Int64s) -> None:
        """Add the commit log offsets of the next entries."""
        if not offsets.size or len(self.runs) > MAX_RUNS:
            return
        starts = [0, *(np.flatnonzero(np.diff(offsets) < 0) + 1)[: MAX_RUNS + 1].tolist(), offsets.size]
        for begin, end in pairwise(starts):
            run = AscendingRun(self._file, self._count + begin, end - begin, int(offsets[begin]), int(offsets[end - 1]))
            before = self.runs[-1] if self.runs else None
            if begin == 0 and before is not None and before.last <= run.begin:
                run = replace(before, count=before.count + run.count, last=run.last)
                self.runs.pop()
            self.runs.append(run)
        self._count += offsets.size


class Slice(NamedTuple):
    """Adjacent entries of one file, from entry number `first` on."""

    file: int
    first: int
    entries: Entries


class EntryFiles:
    """Reads entries by commit log offset, for one thread. To be closed.

    Args:
        paths: the files.
        position: position of entry 0 in each file.
        kind: dtype of an entry.
        offset_field: position of the commit log offset in an entry.
        runs: ascending runs of all files, in log order as far as they have one.
    """

    def __init__(
        self, paths: Sequence[str], position: int, kind: np.dtype[Any], offset_field: int, runs: Sequence[AscendingRun]
    ) -> None:
        self._paths = paths
        self._position = position
        self._kind = kind
        self._offset_field = offset_field
        self._runs = runs
        self._begins = np.array([run.begin for run in runs], np.int64)
        self._lasts = np.array([run.last for run in runs], np.int64)
        self._open: tuple[int, File] | None = None
        self._last_found = (-1, -1, -1)

    def between(self, begin: int, end: int) -> Iterator[Slice]:
        """Entries with commit log offsets in [begin, end), a slice from each run."""
        for number in np.flatnonzero((self._begins < end) & (self._lasts >= begin)).tolist():
            run = self._runs[number]
            first = self._first_from(number, run, begin)
            stop = self._first_from(number, run, end)
            if first < stop:
                self._last_found = (number, end, stop)
                data = self._file(run.file).read(
                    self._position + first * self._kind.itemsize, (stop - first) * self._kind.itemsize
                )
                yield Slice(run.file, first, np.frombuffer(data, self._kind, len(data) // self._kind.itemsize))

    def _first_from(self, number: int, run: AscendingRun, offset: int) -> int:
        """Number of a run's first entry with a commit log offset of at least `offset`."""
        if self._last_found[:2] == (number, offset):
            return self._last_found[2]
        if offset <= run.begin:
            return run.first
        if offset > run.last:
            return run.first + run.count
        file, low, high = self._file(run.file), run.first, run.first + run.count
        while low < high:
            middle = (low + high) // 2
            position = self._position + middle * self._kind.itemsize + self._offset_field
            if int.from_bytes(file.read(position, _OFFSET_SIZE), "big", signed=True) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _file(self, number: int) -> File:
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = number, DISK.open(self._paths[number])
        return self._open[1]

    def close(self) -> None:
        """Close the open file, if there is one."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
