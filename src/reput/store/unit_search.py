"""Looking for a unit in each of many queues at once, by system calls: a start maps no queue, and the interpreter does
not wait for ten thousand files one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.consume_queue import UNIT_TYPE
from reput.store.consume_queue import ConsumeQueue

Offsets = npt.NDArray[np.int64]
#: Units as a structured array, see `UNIT_TYPE`.
Units = npt.NDArray[np.void]


def read_units(files: FileLayer, queues: Sequence[ConsumeQueue], offsets: Offsets) -> Units:
    """The unit at a queue offset of each queue; zeros where its file is shorter."""
    if not queues:
        return np.empty(0, UNIT_TYPE)
    positions = offsets * UNIT_SIZE
    inside = positions % np.array([queue.file_size for queue in queues], np.int64)
    starts = (positions - inside).tolist()
    paths = [queue.file_path(start) for queue, start in zip(queues, starts, strict=True)]
    return files.read_runs(paths, inside, np.full(inside.size, UNIT_SIZE, np.int64)).view(UNIT_TYPE)


def search_units(
    files: FileLayer,
    queues: Sequence[ConsumeQueue],
    first: Offsets,
    last: Offsets,
    guess: Offsets,
    is_before: Callable[[Units], npt.NDArray[np.bool_]],
) -> Offsets:
    """The first queue offset in [first, last) of each queue whose unit is not `is_before`; `last` where all are.

    A binary search. It begins at `guess` and right before it, so that two reads a queue prove a right guess.
    """
    first, last = first.copy(), last.copy()
    steps = 0
    while (open_ := np.flatnonzero(first < last)).size:
        low, high = first[open_], last[open_]
        middle = (low + high) // 2
        if steps < 2:
            middle = np.where(
                (low <= guess[open_] - steps) & (guess[open_] - steps < high), guess[open_] - steps, middle
            )
        before = is_before(read_units(files, [queues[i] for i in open_.tolist()], middle))
        first[open_] = np.where(before, middle + 1, low)
        last[open_] = np.where(before, high, middle)
        steps += 1
    return first
