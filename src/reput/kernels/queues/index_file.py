"""Keys -> slots and entries of one index file; `index_search` finds them again.

A file has a header, slots and entries (docs/formats/index-file.md). A slot holds the number of its newest entry, an
entry the number of the previous entry of its slot. Entries are written directly into a mapped file whose blocks are
reserved: the entry first, its slot after it, so that a reader never meets a slot that leads to no entry.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.index_file import ENTRY_SIZE, PHY_OFFSET, SLOT_SIZE, SLOT_VALUE, TIME_DIFF
from reput.formats.java import INT32_MAX
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.mapped_pages import is_readable
from reput.kernels.machine.memory import (
    load_i32,
    load_i64_native,
    prefetch,
    store_i32,
    store_i64,
)
from reput.kernels.records.columns import (
    W_COMMIT_LOG_OFFSET,
    W_STORE_TIMESTAMP,
    RecordColumns,
)

_SLOT, _ENTRY = SLOT_SIZE, ENTRY_SIZE
_MAX_SECONDS = np.int64(INT32_MAX)
_SLOTS_AHEAD = 32
#: Elements of the header's array, in the order of the fields on disk.
BEGIN_TIMESTAMP, END_TIMESTAMP, BEGIN_OFFSET, END_OFFSET, SLOT_COUNT, INDEX_COUNT = range(6)


@kernel("int64(int64, int64, int64, int64, int64, int64[::1], int32[::1], int64[::1], int64[::1], int64)")
def put_keys(  # type: ignore[no-untyped-def]
    map_fields, slot_table, entries, slots, capacity, header, hashes, offsets, timestamps, begin
):
    """Put keys from number `begin` on until all are in or the file is full (`IndexFile.putKey`); returns the next one.

    Args:
        map_fields: Address of the map's `MapFields`; 0 for a copy in memory.
        slot_table: Address of `slots` slots, in the mapped file or in a copy in memory.
        entries: Address of entry 0, which need not exist itself: only the entries that are put, up to number `capacity`
            - 1, need memory.
        header: int64[6], the header's fields; updated.
        hashes: int32[keys]; `offsets` and `timestamps` (ms): int64[keys], of the keys' records.

    Returns:
        The number of the next key; -1 - position if a page of the map cannot be read: its key has no entry.
    """
    number = max(header[INDEX_COUNT], 1)
    file = load_i64_native(map_fields) if map_fields else np.int64(0)
    key = begin
    while key < hashes.size and number < capacity:
        if key + _SLOTS_AHEAD < hashes.size:  # slots lie anywhere in 20 MB: without this each one is waited for
            prefetch(slot_table + (np.int64(hashes[key + _SLOTS_AHEAD]) % slots) * _SLOT)
        hashed = np.int64(hashes[key])
        slot, entry = slot_table + (hashed % slots) * _SLOT, entries + number * _ENTRY
        if not is_readable(map_fields, slot - file, slot - file + _SLOT):
            return file - slot - 1
        if not is_readable(map_fields, entry - file, entry - file + _ENTRY):
            return file - entry - 1
        previous = np.int64(load_i32(slot))
        if previous <= 0 or previous > number:
            previous = np.int64(0)
        seconds = np.int64(0)
        if header[BEGIN_TIMESTAMP] > 0 and timestamps[key] > header[BEGIN_TIMESTAMP]:
            seconds = min((timestamps[key] - header[BEGIN_TIMESTAMP]) // 1000, _MAX_SECONDS)
        store_i32(entry, hashed)
        store_i64(entry + PHY_OFFSET, offsets[key])
        store_i32(entry + TIME_DIFF, seconds)
        store_i32(entry + SLOT_VALUE, previous)
        store_i32(slot, number)
        if number <= 1:
            header[BEGIN_OFFSET], header[BEGIN_TIMESTAMP] = offsets[key], timestamps[key]
        header[SLOT_COUNT] += previous == 0
        header[END_OFFSET], header[END_TIMESTAMP] = offsets[key], timestamps[key]
        number += 1
        key += 1
    header[INDEX_COUNT] = number
    return key


@kernel("void(int64, int64, int64, int64, int64)")
def take_back_keys(slot_table, entries, slots, begin, end):  # type: ignore[no-untyped-def]
    """Restore the slots as they were before the entries from number `begin` up to `end` were put."""
    for number in range(end - 1, begin - 1, -1):
        entry = entries + number * _ENTRY
        store_i32(slot_table + (np.int64(load_i32(entry)) % slots) * _SLOT, load_i32(entry + SLOT_VALUE))


class IndexKeys(NamedTuple):
    """Keys of some scanned rows, one element for each key, in log order."""

    hashes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]


def index_keys(columns: RecordColumns) -> IndexKeys:
    """Keys of a scan at `ScanLevel.KEYS`: hash, commit log offset and store timestamp of each."""
    rows = columns.key_rows
    return IndexKeys(
        columns.key_hashes.copy(), columns.wide[W_COMMIT_LOG_OFFSET][rows], columns.wide[W_STORE_TIMESTAMP][rows]
    )


class IndexTable:
    """Index file that is being built: its header and slots are in memory, its entries are returned as they are put.

    Args:
        slots: Number of slots; entries have numbers up to `capacity` - 1.
        previous_timestamp, previous_offset: End timestamp and end offset of the previous file; 0 for the first file.

    Attributes:
        header: int64[6], the header's fields.
        slot_table: uint8[4 * slots], as in the file.
    """

    __slots__ = ("capacity", "header", "slot_table", "slots")

    def __init__(self, slots: int, capacity: int, previous_timestamp: int = 0, previous_offset: int = 0) -> None:
        self.slots = slots
        self.capacity = capacity
        times, offsets = (previous_timestamp,) * 2, (previous_offset,) * 2
        self.header = np.array([*times, *offsets, 0, 1], np.int64)
        self.slot_table = np.zeros(slots * _SLOT, np.uint8)

    @property
    def count(self) -> int:
        """Number of the next entry."""
        return int(self.header[INDEX_COUNT])

    def put(self, keys: IndexKeys, begin: int) -> tuple[int, npt.NDArray[np.uint8]]:
        """Put keys from number `begin` on, as many as fit.

        Returns:
            (number of the next key, uint8[20 * entries]: the new entries, from number `count` before the call on)
        """
        first = self.count
        entries = np.empty(min(keys.hashes.size - begin, self.capacity - first) * _ENTRY, np.uint8)
        taken = put_keys(
            0, self.slot_table.ctypes.data, entries.ctypes.data - first * _ENTRY, self.slots, self.capacity,
            self.header, keys.hashes, keys.offsets, keys.timestamps, begin,
        )  # fmt: skip
        return int(taken), entries

    def take_back(self, header: npt.NDArray[np.int64], entries: npt.NDArray[np.uint8]) -> None:
        """Undo the last `put`, given the header before it and the entries that it returned."""
        begin, end = int(header[INDEX_COUNT]), self.count
        take_back_keys(self.slot_table.ctypes.data, entries.ctypes.data - begin * _ENTRY, self.slots, begin, end)
        self.header = header
