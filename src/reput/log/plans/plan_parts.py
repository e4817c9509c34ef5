"""Parts of a plan: what one task reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from reput.files import FileLayer
from reput.log.points import Points
from reput.log.reads.reader import read_points, read_split
from reput.log.selection import Selection
from reput.log.splits import Split

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


def cut_part(part: Part, size: int) -> list[Part]:
    """A part in parts of about `size` bytes if its records are known; a split stays whole."""
    if isinstance(part, Split) or part_bytes(part) <= size:
        return [part]
    rows = np.searchsorted(np.cumsum(part.sizes), np.arange(size, part_bytes(part), size), "right")
    cuts = np.unique([0, *rows.tolist(), part.offsets.size]).tolist()
    return [Points(part.file, part.offsets[begin:end], part.sizes[begin:end]) for begin, end in pairwise(cuts)]


def part_before(part: Part, end: int) -> list[Part]:
    """The records of a part before the log offset `end`, which is a record's start."""
    if isinstance(part, Split):
        return [replace(part, end=min(part.end, end))] if part.begin < end else []
    count = int(np.searchsorted(part.offsets, end))
    return [Points(part.file, part.offsets[:count], part.sizes[:count])] if count else []
