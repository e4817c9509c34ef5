"""Numbers of slots and entries of index files, found by the files' content: their length does not determine them.

RocketMQ's index files do not store the two numbers (`maxHashSlotNum`, `maxIndexNum`), and many pairs make the same
length: five slots less are one entry more. But the first entry must have the offset that the header names, the newest
one the header's last offset or a later one, and the slot of each entry's hash must lead to that entry or to a newer
one; this rules out other pairs. A nearly empty file may fit many pairs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import StoreFormatError
from reput.files import DISK, FileLayer, Mapping
from reput.formats.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    PHY_OFFSET,
    SLOT_SIZE,
    SLOT_VALUE,
    IndexHeader,
    decode_header,
    file_size,
)
from reput.formats.java import INT32_MAX
from reput.log.directory import IndexFilePath, open_listed, usual_size

_PROBES = 64
#: Slot counts tested in one call.
_CHUNK = 1 << 20
#: Largest index file: Java cannot map a longer one, so RocketMQ has made none.
_MOST_BYTES = INT32_MAX
#: This many slots take the space of one entry.
_STEP = ENTRY_SIZE // SLOT_SIZE


def index_geometry(
    listing: Sequence[IndexFilePath], slots: int, entries: int, files: FileLayer = DISK
) -> tuple[int, int]:
    """Slots and entries of a store's index files.

    Args:
        listing: The files, oldest first; empty files, which a kill leaves, are ignored.
        slots, entries: The configured numbers. They count unless the files prove others.
        files: The file layer.

    Raises:
        StoreFormatError: A file was cut, or the files do not determine the numbers: then they must be given.
    """
    written = [entry for entry in listing if entry.size]
    if not written:
        return slots, entries
    path, size = written[0].path, written[0].size
    _check_sizes(written)
    expected = file_size(slots, entries)
    fitting = fitting_slots(written[0], slots, entries, files)
    if fitting.size == 1:
        return int(fitting[0]), entries_of(size, int(fitting[0]))
    if size == expected and not fitting.size:
        return slots, entries  # damaged: everything that is read from it is compared with the log
    made = f"{path}: {size} bytes, expected {expected}, which {slots} hash slots and {entries} entries make"
    count = _header(written[0], files).index_count
    if not fitting.size and (count > 1 or count < 0):
        raise StoreFormatError(
            f"{made}; its header counts {count - 1} entries, which fit its content for no number of slots: it was cut, "
            f"or is damaged; {build_index_again(path)}"
        )
    pairs = ", ".join(f"{number} and {entries_of(size, number)}" for number in fitting[:3].tolist())
    raise StoreFormatError(
        f"{made}, and its content does not have the numbers"
        f"{f' ({fitting.size} pairs fit it: {pairs}, ...)' if pairs else ''}: give maxHashSlotNum and "
        "maxIndexNum (to a command: --set maxHashSlotNum=N --set maxIndexNum=N); or, if the file was cut: "
        f"{build_index_again(path)}"
    )


def fitting_slots(entry: IndexFilePath, slots: int, entries: int, files: FileLayer = DISK) -> npt.NDArray[np.int64]:
    """int64[n], the slot counts that agree with length and content of an index file; empty for a damaged file.

    If the configured count agrees, it alone is returned.
    """
    if entry.size < HEADER_SIZE:
        return np.empty(0, np.int64)
    header = _header(entry, files)
    with open_listed(files, entry.path) as file:
        data = file.map(random=True)
    configured = np.array([slots])
    if entry.size == file_size(slots, entries) and _possible(data, header, configured).size:
        return configured
    return _candidates(data, header) if entry.size <= _MOST_BYTES else np.empty(0, np.int64)


def _header(entry: IndexFilePath, files: FileLayer) -> IndexHeader:
    """The header of an index file; missing bytes of a cut header count as zero."""
    with open_listed(files, entry.path) as file:
        return decode_header(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))


def build_index_again(path: str) -> str:
    """Advice for a damaged index file."""
    return (
        f"index files derive from the log: move {os.path.dirname(path)} away, and the next start for writing builds "
        "them again; `reput rebuild` builds them elsewhere, of the numbers that its --set gives"
    )


def _check_sizes(written: Sequence[IndexFilePath]) -> None:
    """Raises StoreFormatError for a file without the most frequent size; of two as frequent sizes the larger counts."""
    usual = usual_size(entry.size for entry in written)
    for entry in written:
        if entry.size != usual:
            raise StoreFormatError(
                f"{entry.path}: {entry.size} bytes long, but the files beside it {usual}; it was cut, or comes from "
                f"elsewhere; {build_index_again(entry.path)}"
            )


def entries_of(size: int, slots: int) -> int:
    """Number of entries of an index file of `size` bytes and `slots` slots."""
    return (size - HEADER_SIZE - SLOT_SIZE * slots) // ENTRY_SIZE


def _candidates(data: Mapping, header: IndexHeader) -> npt.NDArray[np.int64]:
    """int64[n], the slot counts that make this length and agree with the content."""
    room = data.size - HEADER_SIZE
    most = (room - ENTRY_SIZE * max(header.index_count, 2)) // SLOT_SIZE
    if header.index_count <= 1 or room % SLOT_SIZE:
        return np.empty(0, np.int64)
    first = (room // SLOT_SIZE - 1) % _STEP + 1
    chunks = [np.empty(0, np.int64)]
    for begin in range(first, most + 1, _STEP * _CHUNK):
        end = min(begin + _STEP * _CHUNK, most + 1)
        chunks.append(_possible(data, header, np.arange(begin, end, _STEP, dtype=np.int64)))
    found = np.concatenate(chunks)
    if found.size > 1:  # zeros are entries of slot 0, and fit where the newest entry is of slot 0, too
        newest = _int64(data, HEADER_SIZE + SLOT_SIZE * found + ENTRY_SIZE * (header.index_count - 1) + PHY_OFFSET)
        ends = newest >= header.end_phy_offset  # the header of a live or killed writer may be one entry behind
        found = found[ends] if ends.any() else found
    if found.size > 1:  # numbers in slots may make an entry of that offset, but not chains of the zeros before it
        linked = _linked(data, header.index_count, found)
        found = linked if linked.size else found
    return found


def _linked(data: Mapping, count: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The slot counts for which each newest entry leads to the entry before it, if both are of one slot."""
    for number in range(count - 1, max(1, count - 1 - _PROBES), -1):
        entry = HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number
        slot, slot_before = (np.maximum(_int32(data, one), 0) % slots for one in (entry, entry - ENTRY_SIZE))
        slots = slots[(slot != slot_before) | (_int32(data, entry + SLOT_VALUE) == number - 1)]
    return slots


def _possible(data: Mapping, header: IndexHeader, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The slot counts for which header, newest entries and their slots agree; all if the file has no entry."""
    count = header.index_count
    if count <= 1:
        return slots
    slots = slots[HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * count <= data.size]
    slots = slots[_int64(data, HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE + PHY_OFFSET) == header.begin_phy_offset]
    for number in range(count - 1, max(0, count - 1 - _PROBES), -1):
        entry = HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number
        hashes, offsets = _int32(data, entry), _int64(data, entry + PHY_OFFSET)
        newest = _int32(data, HEADER_SIZE + SLOT_SIZE * (np.maximum(hashes, 0) % slots))
        # The slot of an older entry leads to it or to a newer one; a live writer may have added newer ones since.
        is_led_to = (newest >= number) & (newest < (data.size - HEADER_SIZE - SLOT_SIZE * slots) // ENTRY_SIZE)
        slots = slots[(hashes >= 0) & (offsets >= header.begin_phy_offset) & is_led_to]
    return slots


def _int32(data: Mapping, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the big-endian int32 at each position."""
    return _numbers(data, positions, ">i4")


def _int64(data: Mapping, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the big-endian int64 at each position."""
    return _numbers(data, positions, ">i8")


def _numbers(data: Mapping, positions: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    if positions.size:
        data.ask(int(positions.min()), int(positions.max()) + size)
    found: npt.NDArray[np.uint8] = np.frombuffer(data.view, np.uint8)[positions[:, None] + np.arange(size)]
    return found.view(kind).reshape(-1).astype(np.int64)
