"""Rows of two stores side by side: which have a partner, and which do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.jobs.diff.rows import By, Int64s, Name, Rows

#: In the left store only; in the right one only; in both, but not the same.
MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
_KINDS = (MISSING, EXTRA, DIFFERENT)
_LEFT, _RIGHT = range(2)

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        ("left_offset", pa.int64()),
        ("left_size", pa.int64()),
        ("right_offset", pa.int64()),
        ("right_size", pa.int64()),
        ("fields", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Differences in order, int64[n] each: kinds (numbers of MISSING, EXTRA, DIFFERENT), queues, records of both sides.

    Offsets and sizes are -1 where a side has no record.
    """

    names: tuple[Name, ...]
    kinds: Int64s
    queues: Int64s
    queue_offsets: Int64s
    left_offsets: Int64s
    left_sizes: Int64s
    right_offsets: Int64s
    right_sizes: Int64s

    def count(self, kind: str) -> int:
        """How many of a kind."""
        return int(np.count_nonzero(self.kinds == _KINDS.index(kind)))

    def first(self, count: int) -> Match:
        """The first ones."""
        columns = (
            self.kinds, self.queues, self.queue_offsets,
            self.left_offsets, self.left_sizes, self.right_offsets, self.right_sizes,
        )  # fmt: skip
        return Match(self.names, *(column[:count] for column in columns))

    @property
    def different(self) -> Int64s:
        """The rows that both sides have."""
        return np.flatnonzero(self.kinds == _KINDS.index(DIFFERENT))

    def table(self, fields: Sequence[list[str] | None] | None = None) -> pa.Table:
        """By `SCHEMA`; `fields` one for each row."""
        topics = pa.array([topic.decode("utf-8", "replace") for topic, _ in self.names], pa.string())
        queue_ids = pa.array([queue_id for _, queue_id in self.names], pa.int32())
        columns = [
            pa.array(_KINDS).take(pa.array(self.kinds)),
            topics.take(pa.array(self.queues)),
            queue_ids.take(pa.array(self.queues)),
            pa.array(self.queue_offsets),
            *(
                pa.array(column, mask=column < 0)
                for column in (self.left_offsets, self.left_sizes, self.right_offsets, self.right_sizes)
            ),
            pa.array(fields or [None] * self.kinds.size, SCHEMA.field("fields").type),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def match_rows(by: By, left: Sequence[Rows], right: Sequence[Rows]) -> Match:
    """Compare rows by their keys: of one queue, or of the log.

    Rows with one key (a queue offset that repeats; messages without one) find their equals first; those that are left
    are compared in the order of the log.
    """
    names = sorted({name for rows in (*left, *right) for name in rows.names})
    numbers = {name: number for number, name in enumerate(names)}
    sides, queues, keys, hashes, offsets, sizes, queue_offsets = _columns(numbers, (left, right))
    groups = queues if by == "queue" else np.zeros_like(queues)
    order = np.lexsort((offsets, sides, hashes, keys, groups))
    ranks, of_left, of_right, _ = _ranked(sides[order], groups[order], keys[order], hashes[order])
    rest = order[ranks >= np.minimum(of_left, of_right)]
    order = rest[np.lexsort((offsets[rest], sides[rest], keys[rest], groups[rest]))]
    ranks, of_left, of_right, starts = _ranked(sides[order], groups[order], keys[order])
    # Each group of equal keys has as many differences as the side with more rows.
    firsts = np.cumsum(np.maximum(of_left, of_right)[starts]) - np.maximum(of_left, of_right)[starts]
    at = firsts[np.cumsum(np.isin(np.arange(order.size), starts)) - 1] + ranks if order.size else ranks
    count = int(np.maximum(of_left, of_right)[starts].sum())
    places = {side: np.full((2, count), -1, np.int64) for side in (_LEFT, _RIGHT)}
    told = np.empty((2, count), np.int64)
    for side in (_RIGHT, _LEFT):
        rows = sides[order] == side
        places[side][:, at[rows]] = offsets[order[rows]], sizes[order[rows]]
        told[:, at[rows]] = queues[order[rows]], queue_offsets[order[rows]]
    has_left, has_right = places[_LEFT][0] >= 0, places[_RIGHT][0] >= 0
    kinds = np.where(has_left & has_right, 2, np.where(has_left, 0, 1))
    return Match(tuple(names), kinds, *told, *places[_LEFT], *places[_RIGHT])


def _columns(numbers: dict[Name, int], both: tuple[Sequence[Rows], Sequence[Rows]]) -> list[npt.NDArray[Any]]:
    """Side, queue, and the columns of `Rows` from the keys on, of all rows."""
    none = np.empty(0, np.int64)
    parts: list[tuple[npt.NDArray[Any], ...]] = [(none, none, none, np.empty(0, np.uint64), none, none, none)]
    for side, some in enumerate(both):
        for rows in some:
            queues = np.array([numbers[name] for name in rows.names], np.int64)[rows.queues]
            parts.append((np.full(queues.size, side, np.int64), queues, *rows[2:]))
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _ranked(sides: Int64s, *columns: npt.NDArray[Any]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Of rows sorted by columns and side: each one's number among those of its side and group, how many the left and
    the right side have in its group; and where the groups start.
    """
    if not sides.size:
        none = np.empty(0, np.int64)
        return none, none, none, none
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    starts = np.flatnonzero(np.append(True, differs))
    sizes = np.diff(np.append(starts, sides.size))
    of_right = np.repeat(np.add.reduceat(sides, starts), sizes)
    of_left = np.repeat(sizes, sizes) - of_right
    places = np.arange(sides.size) - np.repeat(starts, sizes)
    return np.where(sides == _RIGHT, places - of_left, places), of_left, of_right, starts
