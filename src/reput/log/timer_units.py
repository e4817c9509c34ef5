"""Units of the timer log as arrays (docs/formats/timer.md), read without a store."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.paths import TIMER_LOG
from reput.formats.timer_log import FIELDS, UNIT_SIZE
from reput.log.directory import numbered_files

#: Units as an array of records, by RocketMQ's names of their fields.
UNITS = np.dtype([(field.name, f">{field.code}") for field in FIELDS])
_UNITS_AT_ONCE = 20_000


def units_from(root: str, position: int, files: FileLayer) -> Iterator[npt.NDArray[np.void]]:
    """`UNITS`[...] of a store directory's timer log, from the unit at a position on, in pieces."""
    folder = os.path.join(root, TIMER_LOG)
    for one in numbered_files(files, folder) if files.exists(folder) else ():
        at = max(position - one.start_offset, 0) // UNIT_SIZE * UNIT_SIZE
        while one.size - at >= UNIT_SIZE:
            with files.open(one.path) as file:
                count = min((one.size - at) // UNIT_SIZE, _UNITS_AT_ONCE)
                units = np.frombuffer(file.read(at, count * UNIT_SIZE), UNITS)
            whole = units[units["SIZE"] == UNIT_SIZE]
            yield whole
            if len(whole) < len(units):  # the end of the file, or of the log
                break
            at += units.nbytes
