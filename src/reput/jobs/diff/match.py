"""Match the rows of two stores: rows with an equal partner, with a different partner, and without a partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.jobs.diff.rows import By, Int64s, Name, Rows

#: Kinds of differences: in the left store only; in the right store only; in both, with a difference.
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
        ("properties", pa.list_(pa.struct([("name", pa.string()), ("left", pa.string()), ("right", pa.string())]))),
    ]
)


class PropertyPair(NamedTuple):
    """A property that differs: its value on both sides, as far as it is shown; None if there is none."""

    name: str | None
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Differences in order, int64[n] each: kinds (numbers of MISSING, EXTRA, DIFFERENT), queues, records of both sides.

    `queues` are numbers into `names`. Offsets and sizes are -1 if a side has no record.
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
        """Count of differences of a kind."""
        return int(np.count_nonzero(self.kinds == _KINDS.index(kind)))

    def first(self, count: int) -> Match:
        """The first `count` differences."""
        columns = (
            self.kinds, self.queues, self.queue_offsets,
            self.left_offsets, self.left_sizes, self.right_offsets, self.right_sizes,
        )  # fmt: skip
        return Match(self.names, *(column[:count] for column in columns))

    @property
    def different(self) -> Int64s:
        """int64[n], the rows of kind DIFFERENT."""
        return np.flatnonzero(self.kinds == _KINDS.index(DIFFERENT))

    def table(
        self,
        fields: Sequence[list[str] | None] | None = None,
        properties: Sequence[list[PropertyPair] | None] | None = None,
    ) -> pa.Table:
        """Differences as a table with `SCHEMA`; of each row the names of differing fields, and differing properties."""
        pairs = [None if of_row is None else [pair._asdict() for pair in of_row] for of_row in properties or ()]
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
            pa.array(pairs or [None] * self.kinds.size, SCHEMA.field("properties").type),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def match_rows(by: By, left: Sequence[Rows], right: Sequence[Rows]) -> Match:
    """Match rows by their keys, within one queue or in the whole log.

    Of rows with the same key (a repeated queue offset; messages without a queue offset) equal rows are matched first;
    the remaining rows are matched in the order of the log.
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
    locations = {side: np.full((2, count), -1, np.int64) for side in (_LEFT, _RIGHT)}
    of_queues = np.empty((2, count), np.int64)
    for side in (_RIGHT, _LEFT):
        rows = sides[order] == side
        locations[side][:, at[rows]] = offsets[order[rows]], sizes[order[rows]]
        of_queues[:, at[rows]] = queues[order[rows]], queue_offsets[order[rows]]
    has_left, has_right = locations[_LEFT][0] >= 0, locations[_RIGHT][0] >= 0
    kinds = np.where(has_left & has_right, 2, np.where(has_left, 0, 1))
    return Match(tuple(names), kinds, *of_queues, *locations[_LEFT], *locations[_RIGHT])


def _columns(numbers: dict[Name, int], both: tuple[Sequence[Rows], Sequence[Rows]]) -> list[npt.NDArray[Any]]:
    """Columns of all rows of both sides: side, queue, and the columns of `Rows` from the keys on."""
    none = np.empty(0, np.int64)
    batches: list[tuple[npt.NDArray[Any], ...]] = [(none, none, none, np.empty(0, np.uint64), none, none, none)]
    for side, of_side in enumerate(both):
        for rows in of_side:
            queues = np.array([numbers[name] for name in rows.names], np.int64)[rows.queues]
            batches.append((np.full(queues.size, side, np.int64), queues, *rows[2:]))
    return [np.concatenate(column) for column in zip(*batches, strict=True)]


def _ranked(sides: Int64s, *columns: npt.NDArray[Any]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Rank rows sorted by columns and side. A group is rows with equal columns.

    Returns:
        For each row: its number among the rows of its side and group, the count of left rows in its group, the count of
        right rows in its group. And the first row of each group.
    """
    if not sides.size:
        none = np.empty(0, np.int64)
        return none, none, none, none
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    starts = np.flatnonzero(np.append(True, differs))
    sizes = np.diff(np.append(starts, sides.size))
    of_right = np.repeat(np.add.reduceat(sides, starts), sizes)
    of_left = np.repeat(sizes, sizes) - of_right
    ranks = np.arange(sides.size) - np.repeat(starts, sizes)
    return np.where(sides == _RIGHT, ranks - of_left, ranks), of_left, of_right, starts
