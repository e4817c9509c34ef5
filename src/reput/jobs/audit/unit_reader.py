"""Read the units at many slots of consume queues, and tell which of them are in use."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE
from reput.formats.paths import offset_to_file_name
from reput.jobs.audit.ascending_runs import Int64s
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, UNIT_TYPE


class UnitReader:
    """Reads units of the consume queues in a folder, whose files have `file_size` bytes; 0 if there are none."""

    def __init__(self, folder: str, file_size: int, files: FileLayer) -> None:
        self._folder = folder
        self._file_size = file_size
        self._files = files
        self._exists: dict[str, bool] = {}

    def read(self, names: Sequence[tuple[str, int]], queues: Int64s, slots: Int64s) -> npt.NDArray[np.void]:
        """Read the units at the slots of queues, which are numbers into `names`; zeros if there is no file."""
        units_of_a_file = max(self._file_size // UNIT_SIZE, 1)
        goes_on = (queues[1:] == queues[:-1]) & (slots[1:] == slots[:-1] + 1) & (slots[1:] % units_of_a_file != 0)
        starts = np.flatnonzero(np.append(True, ~goes_on))
        counts = np.diff(np.append(starts, queues.size))
        paths = [
            self._path(names[queue], slot - slot % units_of_a_file)
            for queue, slot in zip(queues[starts].tolist(), slots[starts].tolist(), strict=True)
        ]
        exists = np.array([path is not None for path in paths])
        positions = (slots[starts] % units_of_a_file) * UNIT_SIZE
        data = self._files.read_runs([path for path in paths if path], positions[exists], counts[exists] * UNIT_SIZE)
        if exists.all():
            return data.view(UNIT_TYPE)
        found = np.zeros(queues.size, UNIT_TYPE)
        found[np.repeat(exists, counts)] = data.view(UNIT_TYPE)
        return found

    def _path(self, name: tuple[str, int], first_slot: int) -> str | None:
        path = os.path.join(self._folder, name[0], str(name[1]), offset_to_file_name(first_slot * UNIT_SIZE))
        if path not in self._exists:
            self._exists[path] = self._file_size > 0 and self._files.exists(path)
        return path if self._exists[path] else None


def is_used(units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """bool[n], whether a unit of a queue or batch queue is of a message: it is neither empty nor a filler."""
    used: npt.NDArray[np.bool_] = units["size"] > 0
    if units.dtype == BATCH_UNIT_TYPE:
        used &= units["message_count"] > 0
        return used
    filler = np.ones(units.size, np.bool_)
    for name, value in FILLER._asdict().items():
        filler &= units[name] == value
    return used & ~filler
