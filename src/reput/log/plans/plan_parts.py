"""Parts of a plan: what one task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from reput.files import FileLayer
from reput.log.point_reads import Points
from reput.log.reads.batches import read_points, read_split
from reput.log.selection import Selection
from reput.log.splits import Split

T = TypeVar("T")

#: A range of one file that begins at a record, or single records of one file.
Part = Split | Points


def read_part(part: Part, selection: Selection, files: FileLayer) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part. Raises as `read_log` does."""
    if isinstance(part, Points):
        return read_points(part, selection, files=files)
    return read_split(part, selection, files=files)


def part_bytes(part: Part) -> int:
    """Log bytes of a part."""
    return int(part.sizes.sum()) if isinstance(part, Points) else part.end - part.begin


def part_range(part: Part) -> tuple[int, int]:
    """Log offsets of a part's first byte and after its last one."""
    if isinstance(part, Points):
        return int(part.offsets[0]), int(part.offsets[-1] + part.sizes[-1])
    return part.begin, part.end


def cut_part(part: Part, size: int) -> list[Part]:
    """A part in parts of about `size` bytes if its records are known; a split stays whole."""
    if isinstance(part, Split) or part_bytes(part) <= size:
        return [part]
    rows = np.searchsorted(np.cumsum(part.sizes), np.arange(size, part_bytes(part), size), "right")
    cuts = np.unique([0, *rows.tolist(), part.offsets.size]).tolist()
    return [Points(part.file, part.offsets[begin:end], part.sizes[begin:end]) for begin, end in pairwise(cuts)]


def part_groups(parts: Sequence[tuple[T, Part]], size: int) -> list[list[tuple[T, Part]]]:
    """Adjacent parts, each with something of its own, in groups of up to `size` bytes, one for a task."""
    groups: list[list[tuple[T, Part]]] = []
    left = 0
    for own, part in parts:
        for cut in cut_part(part, size):
            if part_bytes(cut) > left:
                groups.append([])
                left = size
            groups[-1].append((own, cut))
            left -= part_bytes(cut)
    return groups


def part_before(part: Part, end: int) -> list[Part]:
    """The records of a part before the log offset `end`, which is a record's start."""
    if isinstance(part, Split):
        return [replace(part, end=min(part.end, end))] if part.begin < end else []
    count = int(np.searchsorted(part.offsets, end))
    return [Points(part.file, part.offsets[:count], part.sizes[:count])] if count else []
