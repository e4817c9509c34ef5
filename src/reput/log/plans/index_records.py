"""Selection of the records that may have a key, by the index files, and the proof that the entries can be believed.

The index has a hash and a log offset for each key, and nothing for a record without keys. It may lag the log, lack a
range for which it was switched off, or have lost pages in a power cut. So chains are not followed. All entries are
read, and believed if

- in each file the offsets ascend, and each entry names the previous entry of its slot: then none is lost or changed,
- each entry leads to a record that the consume queues prove (`reput.log.plans.queue_records`).

A record has all its entries if it has one, and the records before and after it have one, too: one thread writes the
entries in log order. Any other record may have any key, and is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files import FileLayer
from reput.formats.index_file import (
    DEFAULT_HASH_SLOT_NUM,
    DEFAULT_INDEX_NUM,
    ENTRY_SIZE,
    HEADER_SIZE,
    decode_header,
    entry_position,
    key_hash,
)
from reput.kernels.queues.unit_types import INDEX_ENTRY_TYPE
from reput.log.directory import IndexFilePath
from reput.log.geometry.index_geometry import index_geometry
from reput.log.plans.queue_records import Int64s, NotProven, QueueRecords

_READ_BYTES = (4 << 20) // ENTRY_SIZE * ENTRY_SIZE


class IndexNotProven(NotProven):
    """Raised when the index contradicts itself or the queues."""


class IndexedRecords:
    """Filter for the records that may have one of some keys; holds one batch of index entries at a time.

    Args:
        topics: all topics that records may have.
        keys: the keys that are looked for.
        index_files: all index files of the store.
    """

    def __init__(
        self, topics: Iterable[str], keys: Iterable[str], index_files: Sequence[IndexFilePath], files: FileLayer
    ) -> None:
        self._wanted = np.array(sorted({key_hash(topic, key) for topic in topics for key in keys}), np.int64)
        self._entries = _entries(index_files, files)
        self._rest = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._last_indexed = False

    def rows(self, records: QueueRecords, end: int) -> npt.NDArray[np.bool_]:
        """bool[n], which of a batch's proven records may have a key; to be called batch by batch in log order.

        Args:
            end: the end offset of the batch.

        Raises IndexNotProven.
        """
        indexed = np.zeros(records.offsets.size, np.bool_)
        matching = np.zeros(records.offsets.size, np.bool_)
        for hashes, offsets in self._before(end):
            rows = np.searchsorted(records.offsets, offsets)
            known = rows < records.offsets.size
            known[known] = records.offsets[rows[known]] == offsets[known]
            before = rows[~known] - 1
            inside = before[before >= 0]
            claimed = offsets[~known][before >= 0] < records.offsets[inside] + records.sizes[inside]
            if claimed.any():
                raise IndexNotProven("an index file leads into the middle of a record")
            indexed[rows[known]] = True
            matching[rows[known][np.isin(hashes[known], self._wanted)]] = True
        goes_on = bool((self._rest[1][:1] == end).any())  # the first record of the next batch has an entry
        before_it = np.append(self._last_indexed, indexed[:-1]) if indexed.size else indexed
        after_it = np.append(indexed[1:], goes_on) if indexed.size else indexed
        self._last_indexed = bool(indexed[-1:].any())
        return matching | ~(indexed & before_it & after_it)

    def check_rest(self) -> None:
        """Read the entries that are left, since a file proves itself only as a whole. Raises IndexNotProven."""
        for _ in self._entries:
            pass

    def _before(self, end: int) -> Iterator[tuple[Int64s, Int64s]]:
        """The next entries, up to the log offset `end`; what is left of their read stays in `_rest`."""
        while True:
            hashes, offsets = self._rest
            count = int(np.searchsorted(offsets, end))
            self._rest = (hashes[count:], offsets[count:])
            yield hashes[:count], offsets[:count]
            if count < offsets.size:
                return
            entries = next(self._entries, None)
            if entries is None:
                return
            self._rest = entries


def _entries(index_files: Sequence[IndexFilePath], files: FileLayer) -> Iterator[tuple[Int64s, Int64s]]:
    """Hashes and commit log offsets, int64[n] each, of all entries in log order."""
    written = [file for file in index_files if file.size]
    try:
        slots, _ = index_geometry(written, DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM, files)
    except StoreError as error:
        raise IndexNotProven(str(error)) from None
    first = entry_position(slots, 1)
    begins = [(_begin_offset(file, first, files), file) for file in written]
    last_offset = -1
    for _, (path, size) in sorted((begin, (file.path, file.size)) for begin, file in begins):
        with files.open(path) as file:
            count = decode_header(file.read(0, HEADER_SIZE)).index_count
            end = max(min(entry_position(slots, count), size), first)
            chains = _Chains(slots, (end - first) // ENTRY_SIZE)
            for position in range(first, end, _READ_BYTES):
                data = file.read(position, min(_READ_BYTES, end - position))
                entries = np.frombuffer(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE], INDEX_ENTRY_TYPE)
                hashes, offsets = entries["key_hash"].astype(np.int64), entries["phy_offset"].astype(np.int64)
                if (np.diff(offsets, prepend=last_offset) < 0).any():
                    raise IndexNotProven(f"{path} contradicts itself, or the index file before it")
                chains.add(hashes, entries["slot_value"].astype(np.int64))
                last_offset = int(offsets[-1]) if offsets.size else last_offset
                yield hashes, offsets
            if not chains.are_whole:
                raise IndexNotProven(f"{path} contradicts itself")


def _begin_offset(file: IndexFilePath, first: int, files: FileLayer) -> int:
    with files.open(file.path) as opened:
        entries = np.frombuffer(opened.read(first, ENTRY_SIZE).ljust(ENTRY_SIZE, b"\0"), INDEX_ENTRY_TYPE)
    return int(entries["phy_offset"][0])


class _Chains:
    """Check that each entry of a file names the previous entry of its slot; entries are numbered from 1.

    This holds if each entry names an earlier entry of its slot or none, no two entries name the same one, and only one
    entry of a slot names none: then the entries of a slot are one ascending chain.
    """

    def __init__(self, slots: int, count: int) -> None:
        self._slots = np.zeros(count + 1, np.int32)
        self._is_named = np.zeros(count + 1, np.bool_)
        self._has_first = np.zeros(slots, np.bool_)
        self._count = 0
        self._contradicts = False

    def add(self, hashes: Int64s, previous: Int64s) -> None:
        """Add the next entries of the file."""
        numbers = np.arange(self._count + 1, self._count + 1 + hashes.size)
        if (hashes < 0).any() or (previous < 0).any() or (previous >= numbers).any():
            self._contradicts = True
            return
        slots = (hashes % self._has_first.size).astype(np.int32)
        self._slots[numbers] = slots
        named = previous[previous > 0]
        self._contradicts |= bool((self._slots[named] != slots[previous > 0]).any())
        self._is_named[named] = True
        self._has_first[slots[previous == 0]] = True
        self._count += hashes.size

    @property
    def are_whole(self) -> bool:
        """Whether the entries of each slot are one chain."""
        # Each entry names another one or is the first of its slot. The sum is smaller where two entries name the same
        # one, or a slot has two first ones.
        marks = np.count_nonzero(self._is_named) + np.count_nonzero(self._has_first)
        return not self._contradicts and bool(marks == self._count)
