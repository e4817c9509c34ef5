"""Which records may have a key, by the index files, and the proof that they may be believed.

The index knows a hash and a place for each key, and says nothing of a record without keys. It may be behind the log,
lack a stretch for which it was switched off, or have lost pages in a power cut. So chains are not followed; all entries
are read, and believed where

- in each file the places ascend, and each entry names the entry before it of its slot, so that none is lost or changed,
- each entry leads to a record that the consume queues prove (`reput.log.queue_records`).

A record has all its entries if it has one, and the records before and behind it have one too: one thread makes them in
the order of the log. Any other record may have any key, and is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files import FileLayer
from reput.formats.index_file import (
    DEFAULT_HASH_SLOT_NUM,
    DEFAULT_INDEX_NUM,
    HEADER_SIZE,
    decode_header,
    entry_position,
    key_hash,
)
from reput.log.directory import IndexFilePath
from reput.log.index_geometry import index_geometry
from reput.log.queue_records import MOST_UNITS, Int64s, NotProven, QueueRecords

_ENTRY = np.dtype([("key_hash", ">i4"), ("offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])


def rows_with_keys(
    records: QueueRecords, keys: Iterable[str], index_files: Sequence[IndexFilePath], files: FileLayer
) -> npt.NDArray[np.bool_]:
    """bool[n], the records that may have one of the keys: all that the index does not rule out.

    Raises NotProven where the index contradicts itself or the queues.
    """
    topics = {topic for topic, _ in records.names}
    wanted = np.array(sorted({key_hash(topic, key) for topic in topics for key in keys}), np.int64)
    indexed = np.zeros(records.offsets.size, np.bool_)
    matching = np.zeros(records.offsets.size, np.bool_)
    if records.offsets.size:
        for hashes, offsets in _entries(index_files, files):
            rows = np.searchsorted(records.offsets, offsets)
            known = rows < records.offsets.size
            known[known] = records.offsets[rows[known]] == offsets[known]
            before = rows[~known] - 1
            inside = before[before >= 0]
            claimed = offsets[~known][before >= 0] < records.offsets[inside] + records.sizes[inside]
            if claimed.any():
                raise NotProven("an index file leads into the middle of a record")
            indexed[rows[known]] = True
            matching[rows[known][np.isin(hashes[known], wanted)]] = True
    complete: npt.NDArray[np.bool_] = indexed & np.append(indexed[1:], False) & np.append(False, indexed[:-1])
    return matching | ~complete


def _entries(index_files: Sequence[IndexFilePath], files: FileLayer) -> Iterable[tuple[Int64s, Int64s]]:
    """Hashes and commit log offsets of each file that proves itself, int64[n] each."""
    written = [file for file in index_files if file.size]
    if not written:
        return
    try:
        slots, _ = index_geometry(written, DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM, files)
    except StoreError as error:
        raise NotProven(str(error)) from None
    total = 0
    for path, size in ((file.path, file.size) for file in written):
        with files.open(path) as file:
            count = decode_header(file.read(0, HEADER_SIZE)).index_count
            total += max(count, 0)
            if total > MOST_UNITS * 2:
                raise NotProven(f"the index has more than {MOST_UNITS * 2} entries")
            first = entry_position(slots, 1)
            data = file.read(first, max(min(entry_position(slots, count), size) - first, 0))
        entries = np.frombuffer(data[: len(data) // _ENTRY.itemsize * _ENTRY.itemsize], _ENTRY)
        hashes, offsets = entries["key_hash"].astype(np.int64), entries["offset"].astype(np.int64)
        if (offsets[1:] < offsets[:-1]).any() or not _is_chained(hashes, entries["previous"].astype(np.int64), slots):
            raise NotProven(f"{path} contradicts itself")
        yield hashes, offsets


def _is_chained(hashes: Int64s, previous: Int64s, slots: int) -> bool:
    """Whether each entry names the one before it in its slot; entries count from 1."""
    if (hashes < 0).any():
        return False
    slot = (hashes % slots).astype(np.int32)
    of_slot = np.argsort(slot, kind="stable")
    same = np.diff(slot[of_slot]) == 0
    expected = np.zeros(hashes.size, np.int64)
    expected[of_slot[1:][same]] = of_slot[:-1][same] + 1
    return bool((expected == previous).all())
