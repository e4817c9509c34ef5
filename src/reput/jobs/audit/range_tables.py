"""Ranges of slots, entries or offsets as tables: a queue may have as many of them as units."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.jobs.audit.ascending_runs import Int64s

NO_RANGES: Int64s = np.empty((0, 2), np.int64)


class RangeTable:
    """int64[n, columns] that counts by its content: a resumed task is known by the `repr` of its item."""

    __slots__ = ("rows",)

    def __init__(self, rows: Int64s) -> None:
        self.rows = np.ascontiguousarray(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeTable) and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash(self.rows.tobytes())

    def __repr__(self) -> str:
        digest = hashlib.blake2b(self.rows.tobytes(), digest_size=16).hexdigest()
        return f"Table({self.rows.shape}, {digest})"


def union(ranges: Int64s) -> Int64s:
    """int64[m, 2], the union of ranges [begin, end), int64[n, 2], in order; adjacent ones are joined."""
    if not len(ranges):
        return NO_RANGES
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ranges[:, 1])
    starts = np.flatnonzero(np.append(True, ranges[1:, 0] > ends[:-1]))
    lasts = np.append(starts[1:], len(ranges)) - 1
    return np.stack([ranges[starts, 0], ends[lasts]], axis=1)


def is_inside(ranges: Int64s, numbers: Int64s) -> npt.NDArray[np.bool_]:
    """bool[n], whether a number is in one of the ranges of a `union`."""
    if not len(ranges):
        return np.zeros(numbers.size, np.bool_)
    at = np.searchsorted(ranges[:, 0], numbers, "right") - 1
    return np.asarray((at >= 0) & (numbers < ranges[at, 1]))


def gaps(ranges: Int64s, begin: int, end: int) -> Int64s:
    """int64[m, 2], what the ranges of a `union` leave of [begin, end)."""
    some = ranges[np.searchsorted(ranges[:, 1], begin, "right") : np.searchsorted(ranges[:, 0], end)]
    found = np.stack([np.append(begin, some[:, 1]), np.append(some[:, 0], end)], axis=1)
    return found[found[:, 0] < found[:, 1]]


class NumberBlock(NamedTuple):
    """Numbers [begin, end) that are read at once, and bool[end - begin], which of them are in no range."""

    begin: int
    end: int
    is_free: npt.NDArray[np.bool_]


def free_blocks(ranges: Int64s, begin: int, end: int, first_size: int, size: int) -> Iterator[NumberBlock]:
    """Blocks that have all numbers of [begin, end) that are in no range of a `union`.

    Args:
        first_size, size: numbers of the first and of each further block.
    """
    free = gaps(ranges, begin, end)
    at = begin
    while (number := int(np.searchsorted(free[:, 1], at, "right"))) < len(free):
        at = max(at, int(free[number, 0]))
        stop = min(at + first_size, end)
        some = free[number : np.searchsorted(free[:, 0], stop)]
        steps = np.zeros(stop - at + 1, np.int8)
        steps[np.maximum(some[:, 0], at) - at] = 1
        steps[np.minimum(some[:, 1], stop) - at] = -1
        yield NumberBlock(at, stop, np.cumsum(steps[:-1], dtype=np.int8) > 0)
        at, first_size = stop, size


def adjacent(firsts: Int64s, counts: Int64s, *kinds: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Starts of groups of adjacent ranges of the same kinds, given in order; their firsts, and their counts."""
    goes_on = firsts[1:] == firsts[:-1] + counts[:-1]
    for kind in kinds:
        goes_on &= kind[1:] == kind[:-1]
    starts = np.flatnonzero(np.append(True, ~goes_on)[: firsts.size])
    return starts, firsts[starts], np.add.reduceat(counts, starts) if starts.size else counts
