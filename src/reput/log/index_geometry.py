"""How many slots and entries index files have, found out from the files: their length alone does not say it.

RocketMQ's index files do not carry the two numbers (`maxHashSlotNum`, `maxIndexNum`), and many pairs make one length:
five slots less are one entry more. But the first entry has the offset that the header names, and the slot of each
entry's hash leads to it or to a newer one, which rules out other pairs. A file with next to nothing in it may fit many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import StoreFormatError
from reput.files import DISK, FileLayer
from reput.formats.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    decode_header,
    file_size,
)
from reput.log.directory import IndexFilePath, open_listed

_PROBES = 64
#: Slot counts that are looked at in one go.
_CHUNK = 1 << 20
#: An entry more takes the space of so many slots.
_STEP = ENTRY_SIZE // SLOT_SIZE


def index_geometry(
    found: Sequence[IndexFilePath], slots: int, entries: int, files: FileLayer = DISK
) -> tuple[int, int]:
    """Slots and entries of a store's index files.

    Args:
        found: The files, oldest first; empty ones, which a kill leaves, say nothing.
        slots, entries: The configured numbers. They count unless the files prove others.
        files: The file layer.

    Raises:
        StoreFormatError: The files do not tell; the numbers must be given.
    """
    written = [entry for entry in found if entry.size]
    if not written:
        return slots, entries
    path, size = written[0].path, written[0].size
    if any(entry.size != size for entry in written):
        sizes = sorted({entry.size for entry in written})
        raise StoreFormatError(f"{path}: index files of different sizes ({sizes}) lie in one store; move index/ away")
    with open_listed(files, path) as file:
        header = decode_header(file.read(0, HEADER_SIZE))
        data = np.frombuffer(file.map(random=True).view, np.uint8)
        has_configured_size = size == file_size(slots, entries)
        if has_configured_size and _possible(data, header, np.array([slots])).size:
            return slots, entries
        candidates = _candidates(data, header)
    if candidates.size == 1:
        return int(candidates[0]), _entries(size, int(candidates[0]))
    if has_configured_size and not candidates.size:
        return slots, entries  # damaged: whatever is found by it is compared with the log
    fitting = ", ".join(f"{number} and {_entries(size, number)}" for number in candidates[:3].tolist())
    raise StoreFormatError(
        f"{path}: {size} bytes, which {slots} slots and {entries} entries do not make, and its content does not tell "
        f"the numbers{f' ({candidates.size} pairs fit it: {fitting}, ...)' if fitting else ''}: give "
        "max_hash_slot_num and max_index_num"
    )


def _entries(size: int, slots: int) -> int:
    return (size - HEADER_SIZE - SLOT_SIZE * slots) // ENTRY_SIZE


def _candidates(data: npt.NDArray[np.uint8], header: IndexHeader) -> npt.NDArray[np.int64]:
    """int64, the slot counts that make this length and agree with the content."""
    room = data.size - HEADER_SIZE
    most = (room - ENTRY_SIZE * max(header.index_count, 2)) // SLOT_SIZE
    if header.index_count <= 1 or room % SLOT_SIZE:
        return np.empty(0, np.int64)
    first = (room // SLOT_SIZE - 1) % _STEP + 1
    chunks = [np.empty(0, np.int64)]
    for begin in range(first, most + 1, _STEP * _CHUNK):
        end = min(begin + _STEP * _CHUNK, most + 1)
        chunks.append(_possible(data, header, np.arange(begin, end, _STEP, dtype=np.int64)))
    return np.concatenate(chunks)


def _possible(data: npt.NDArray[np.uint8], header: IndexHeader, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Those slot counts under which header, newest entries and their slots agree; all where there is no entry."""
    count = header.index_count
    if count <= 1:
        return slots
    slots = slots[HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * count <= data.size]
    slots = slots[_int64(data, HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE + 4) == header.begin_phy_offset]
    for number in range(count - 1, max(0, count - 1 - _PROBES), -1):
        entry = HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number
        hashes, offsets = _int32(data, entry), _int64(data, entry + 4)
        newest = _int32(data, HEADER_SIZE + SLOT_SIZE * (np.maximum(hashes, 0) % slots))
        # An older entry's slot leads to it or to a newer one; a live writer may have made some since.
        is_led_to = (newest >= number) & (newest < (data.size - HEADER_SIZE - SLOT_SIZE * slots) // ENTRY_SIZE)
        slots = slots[(hashes >= 0) & (offsets >= header.begin_phy_offset) & is_led_to]
    return slots


def _int32(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the big-endian int32 at each position."""
    return _numbers(data, positions, ">i4")


def _int64(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the big-endian int64 at each position."""
    return _numbers(data, positions, ">i8")


def _numbers(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    columns = np.stack([data[positions + i] for i in range(np.dtype(kind).itemsize)], axis=1)
    return np.ascontiguousarray(columns).view(kind).reshape(-1).astype(np.int64)
