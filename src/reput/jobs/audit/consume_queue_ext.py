"""Read ext units for an audit: the tags code of a unit that holds the address of an ext unit."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.files import DISK
from reput.formats.consume_queue_ext import MAX_ADDRESS, MIN_UNIT_SIZE, encode_address
from reput.formats.paths import offset_to_file_name
from reput.kernels.queues.unit_types import EXT_HEAD_TYPE

Int64s = npt.NDArray[np.int64]

_FIRST_ADDRESS = np.uint64(encode_address(0) & (1 << 64) - 1)


class ExtFiles:
    """Reads the heads of ext units, many in one call.

    Args:
        folder: path of `consumequeue_ext`.
        file_size: size of each ext file, in bytes.
    """

    def __init__(self, folder: str, file_size: int) -> None:
        self._folder = folder
        self._file_size = file_size
        self._exists: dict[str, bool] = {}

    def resolve(
        self,
        names: Sequence[tuple[str, int]],
        queues: Int64s,
        tags_codes: Int64s,
        timestamps: Int64s,
    ) -> npt.NDArray[np.bool_]:
        """Replace addresses of ext units by the tags codes of the ext units.

        Args:
            names: topic and queue id of each queue.
            queues: int64[n], numbers into `names`; units of one queue are adjacent.
            tags_codes: int64[n], changed.
            timestamps: int64[n], the store timestamps that the ext units must have.

        Returns:
            bool[n], units whose ext unit is missing, contradicts itself, or has another store timestamp.
        """
        wrong = tags_codes <= MAX_ADDRESS
        rows = np.flatnonzero(wrong)
        if not rows.size:
            return wrong
        offsets = (tags_codes[rows].view(np.uint64) - _FIRST_ADDRESS).astype(np.int64)
        starts, positions = offsets - offsets % self._file_size, offsets % self._file_size
        is_first = np.append(True, (np.diff(queues[rows]) != 0) | (np.diff(starts) != 0))
        groups, firsts = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
        paths = [
            self._path(names[queue], start)
            for queue, start in zip(queues[rows[firsts]].tolist(), starts[firsts].tolist(), strict=True)
        ]
        exists = np.array([path is not None for path in paths])
        begins = np.minimum.reduceat(positions, firsts)
        sizes = np.maximum.reduceat(positions, firsts) + MIN_UNIT_SIZE - begins
        data = DISK.read_runs([path for path in paths if path], begins[exists], sizes[exists])
        bases = np.zeros(sizes.size, np.int64)
        bases[exists] = np.cumsum(sizes[exists]) - sizes[exists]
        readable = exists[groups]
        at = (bases[groups] + positions - begins[groups])[readable]
        heads = data[at[:, None] + np.arange(MIN_UNIT_SIZE)].reshape(-1).view(EXT_HEAD_TYPE)
        is_whole = (heads["size"] >= MIN_UNIT_SIZE) & (heads["bit_map_size"] == heads["size"] - MIN_UNIT_SIZE)
        units = rows[readable]
        is_whole &= heads["store_timestamp"] == timestamps[units]
        tags_codes[units[is_whole]] = heads["tags_code"][is_whole]
        wrong[units[is_whole]] = False
        return wrong

    def _path(self, name: tuple[str, int], start: int) -> str | None:
        topic, queue_id = name
        path = os.path.join(self._folder, topic, str(queue_id), offset_to_file_name(start))
        if path not in self._exists:
            self._exists[path] = DISK.exists(path)
        return path if self._exists[path] else None
