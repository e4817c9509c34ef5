"""Restore the index to a mark: later entries are removed, and the slots are made again from the entries before it."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptIndexFileError, StoreError
from reput.files import FileLayer
from reput.formats.index_file import HEADER_SIZE, encode_header, entry_position
from reput.formats.paths import INDEX
from reput.kernels.queues.unit_types import INDEX_ENTRY_TYPE
from reput.log.dispatch_marks import IndexMark

#: Entries at a time: 20 M entries would take half a gigabyte.
_STEP = 1 << 20


def slots_of(files: FileLayer, path: str, mark: IndexMark, slots: int, capacity: int) -> npt.NDArray[np.uint8]:
    """Make the slots that lead to the entries before a mark: uint8[4 * slots]. Nothing is changed.

    Raises:
        StoreError: The file that the mark names is gone, or too small.
        CorruptIndexFileError: An entry before the mark belongs to a record after the mark.
    """
    file_path, end = os.path.join(path, INDEX, mark.name), max(mark.header.index_count, 1)
    lacking = StoreError(
        f"{file_path}: the index was dispatched up to entry {end} of this file, and the file is gone, or has fewer "
        f"entries; remove the queues, the index and config/ of {path}, and dispatch anew"
    )
    if not files.exists(file_path) or end > capacity:
        raise lacking
    table = np.zeros(slots, ">i4")
    with files.open(file_path) as file:
        for begin in range(1, end, _STEP):
            count = min(_STEP, end - begin)
            data = file.read(entry_position(slots, begin), count * INDEX_ENTRY_TYPE.itemsize)
            if len(data) < count * INDEX_ENTRY_TYPE.itemsize:
                raise lacking
            entries = np.frombuffer(data, INDEX_ENTRY_TYPE)
            if (entries["phy_offset"] > mark.header.end_phy_offset).any():
                raise CorruptIndexFileError(
                    file_path, entry_position(slots, begin), "an entry of a record after the record that was indexed "
                    f"last; remove the queues, the index and config/ of {path}, and dispatch anew",
                )  # fmt: skip
            table[entries["key_hash"] % slots] = np.arange(begin, begin + count)  # in a slot the newest entry stays
    return table.view(np.uint8)


def restore_index(files: FileLayer, path: str, mark: IndexMark | None, slots: int, capacity: int) -> None:
    """Cut the index below `path` to a mark, and sync it; without a mark all index files are removed.

    The entries before the mark are on the disk. Slots and header may be of later puts, or half written, so they
    are written again: a slot leads to the newest entry of its hashes.

    Raises:
        StoreError: The file that the mark names is gone, or too small; nothing was changed.
        CorruptIndexFileError: An entry before the mark belongs to a record after the mark; nothing was changed.
    """
    folder = os.path.join(path, INDEX)
    names = [entry.name for entry in files.list_directory(folder)] if files.is_directory(folder) else []
    table = slots_of(files, path, mark, slots, capacity) if mark is not None else None
    for name in sorted(names, reverse=True):
        if mark is None or name > mark.name:
            files.unlink(os.path.join(folder, name))
    if mark is not None and table is not None:
        with files.open(os.path.join(folder, mark.name), writable=True) as file:
            file.zero_from(entry_position(slots, max(mark.header.index_count, 1)))
            file.write(HEADER_SIZE, table.data)
            file.write(0, encode_header(mark.header))
            file.sync()
