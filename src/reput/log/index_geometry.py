"""How many slots and entries index files have, found out from the files: their length alone does not say it.

RocketMQ's index files do not carry the two numbers (`maxHashSlotNum`, `maxIndexNum`). But the newest entry is where
they say it is, and the slot of its hash leads to it; that rules out all other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import StoreFormatError
from reput.files import DISK, FileLayer
from reput.formats.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, decode_header, file_size
from reput.log.directory import IndexFilePath

_PROBES = 64


def index_geometry(
    found: Sequence[IndexFilePath], slots: int, entries: int, files: FileLayer = DISK
) -> tuple[int, int]:
    """Slots and entries of a store's index files.

    Args:
        found: The files, oldest first.
        slots, entries: What to assume where the files' length fits it: the configured numbers.
        files: The file layer.

    Raises:
        StoreFormatError: The files do not tell; the numbers must be given.
    """
    if not found or all(entry.size in (0, file_size(slots, entries)) for entry in found):
        return slots, entries
    path, size = found[0].path, found[0].size
    if any(entry.size not in (0, size) for entry in found):
        sizes = sorted({entry.size for entry in found})
        raise StoreFormatError(f"{path}: index files of different sizes ({sizes}) lie in one store; move index/ away")
    with files.open(path) as file:
        count = decode_header(file.read(0, HEADER_SIZE)).index_count
        candidates = _candidates(np.frombuffer(file.map(random=True).view, np.uint8), count)
    if candidates.size == 1:
        return int(candidates[0]), (size - HEADER_SIZE - SLOT_SIZE * int(candidates[0])) // ENTRY_SIZE
    raise StoreFormatError(
        f"{path}: {size} bytes, which {slots} slots and {entries} entries do not make, and its content does not tell "
        "the numbers: give max_hash_slot_num and max_index_num"
    )


def _candidates(data: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.int64]:
    """int64, the slot counts under which the newest entries are led to by their slots."""
    most = (data.size - HEADER_SIZE) // SLOT_SIZE
    slots: npt.NDArray[np.int64] = np.arange(1, most + 1, dtype=np.int64)
    slots = slots[(data.size - HEADER_SIZE - SLOT_SIZE * slots) % ENTRY_SIZE == 0]
    for number in range(count - 1, max(0, count - 1 - _PROBES), -1):
        entry = HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number
        slots = slots[entry + ENTRY_SIZE <= data.size]
        hashes = _int32(data, HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number)
        newest = _int32(data, HEADER_SIZE + SLOT_SIZE * (np.maximum(hashes, 0) % slots))
        # An older entry's slot leads to it or to a newer one.
        slots = slots[(hashes >= 0) & (newest >= number) & (newest < count)]
    return slots if count > 1 else slots[:0]


def _int32(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the big-endian int32 at each position."""
    columns = np.stack([data[positions + i] for i in range(4)], axis=1)
    return np.ascontiguousarray(columns).view(">i4").reshape(-1).astype(np.int64)
