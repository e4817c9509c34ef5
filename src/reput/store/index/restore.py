"""Index files taken back to a mark: what was put behind it goes, and the slots follow from the entries that stay."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptIndexFileError, StoreError
from reput.files import FileLayer
from reput.formats.index_file import HEADER_SIZE, encode_header, entry_position
from reput.formats.paths import INDEX
from reput.kernels.unit_types import INDEX_ENTRY_TYPE
from reput.log.dispatch_marks import IndexMark

#: Entries at once: 20 M of them would take half a gigabyte.
_STEP = 1 << 20


def slots_of(files: FileLayer, path: str, mark: IndexMark, slots: int, capacity: int) -> npt.NDArray[np.uint8]:
    """uint8[4 * slots], the slots that follow from the entries before a mark; nothing is changed.

    Raises:
        StoreError: the file that the mark names is gone.
        CorruptIndexFileError: an entry before the mark is of a later record.
    """
    file_path, end = os.path.join(path, INDEX, mark.name), max(mark.header.index_count, 1)
    if not files.exists(file_path) or end > capacity:
        raise StoreError(
            f"{file_path}: the index was dispatched into it up to entry {end}, and there is no such file, or it "
            f"has fewer entries; remove the queues, the index and config/ of {path}, and dispatch anew"
        )
    table = np.zeros(slots, ">i4")
    with files.open(file_path) as file:
        view = file.map(random=True).view
        for begin in range(1, end, _STEP):
            count = min(_STEP, end - begin)
            found = np.frombuffer(view, INDEX_ENTRY_TYPE, count, entry_position(slots, begin))
            if (found["phy_offset"] > mark.header.end_phy_offset).any():
                raise CorruptIndexFileError(
                    file_path, entry_position(slots, begin), "an entry of a record behind the one that was indexed "
                    f"last; remove the queues, the index and config/ of {path}, and dispatch anew",
                )  # fmt: skip
            table[found["key_hash"] % slots] = np.arange(begin, begin + count)  # of equal slots the last one stays
    return table.view(np.uint8)


def restore_index(files: FileLayer, path: str, mark: IndexMark | None, slots: int, capacity: int) -> None:
    """Leave of the index below `path` what a mark says, synced; None: nothing.

    The entries before the mark are on the disk. Slots and header may be those of later puts, or half written: a slot
    leads to the newest entry of its hashes, so they are made again.

    Raises:
        StoreError: the file that the mark names is gone; nothing was changed.
        CorruptIndexFileError: an entry before the mark is of a later record; nothing was changed.
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
