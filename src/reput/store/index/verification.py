"""Verification of index files after a kill: how far their entries are what dispatch would write.

Nothing is changed but by `VerifiedIndexFile.repair`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.files import File, FileLayer
from reput.formats.index_file import HEADER_SIZE, IndexHeader, encode_header, entry_position
from reput.kernels.queues.index_file import END_OFFSET, END_TIMESTAMP, IndexKeys, IndexTable

#: Bytes of a block that is compared at a time. Its buffer stays in the processor's cache: new memory for all entries of
#: an index file costs more than reading and comparing them.
_BLOCK_SIZE = 1 << 16


class VerifiedIndexFile:
    """One index file, as far as its entries were verified.

    A kill in the middle of a put leaves a header and slots that do not fit the entries: `repair` writes them again.
    """

    def __init__(self, files: FileLayer, path: str, table: IndexTable) -> None:
        self._files = files
        self._file = files.open(path)
        self._is_whole = False
        self.path = path
        self.table = table

    def verify(self, keys: IndexKeys, begin: int) -> int:
        """Verify the entries of keys from number `begin` on; returns the number of the next key to verify.

        All keys that the file has room for are verified, or none: `begin` is returned if an entry is missing.
        """
        header, position = self.table.header.copy(), entry_position(self.table.slots, self.table.count)
        taken, entries = self.table.put(keys, begin)
        if _holds(self._file, position, entries):
            return taken
        self.table.take_back(header, entries)
        return begin

    def seal(self) -> bool:
        """Whether a full file has the header and slots that fit its entries; their copy in memory is dropped then."""
        self._is_whole = _holds(self._file, HEADER_SIZE, self.table.slot_table) and _holds(self._file, 0, self._header)
        if self._is_whole:
            self.table.slot_table = self.table.slot_table[:0]
        return self._is_whole

    @property
    def _header(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(encode_header(IndexHeader(*self.table.header.tolist())), np.uint8)

    def repair(self) -> None:
        """Zero the bytes after the verified entries, and write slots and header if they differ."""
        if self._is_whole:
            return
        with self._files.open(self.path, writable=True) as file:
            file.zero_from(entry_position(self.table.slots, self.table.count))
            for position, data in ((HEADER_SIZE, self.table.slot_table), (0, self._header)):
                if not _holds(file, position, data):
                    file.write(position, data.data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _holds(file: File, position: int, data: npt.NDArray[np.uint8]) -> bool:
    """Whether a file has these bytes at a position."""
    block = np.empty(_BLOCK_SIZE, np.uint8)
    for begin in range(0, data.size, _BLOCK_SIZE):
        expected = data[begin : begin + _BLOCK_SIZE]
        read = block[: expected.size]
        if file.read_into(position + begin, read.data) < read.size or not np.array_equal(read, expected):
            return False
    return True


class IndexCheck:
    """Comparison of index files, one after the other, with keys in log order.

    Args:
        files: The file layer.
        paths: The files, oldest first.
        slots: Slots of each file.
        capacity: Entries of each file; their numbers go up to `capacity` - 1.
        previous_timestamp, previous_offset: The end of the index file before the first one; 0 if there is none.
        begun: The first file, as far as an interrupted start has verified it.

    Attributes:
        checked: The files that were compared so far; only the last one can be without a verified entry.
    """

    def __init__(
        self,
        files: FileLayer,
        paths: Sequence[str],
        slots: int,
        capacity: int,
        previous_timestamp: int = 0,
        previous_offset: int = 0,
        begun: VerifiedIndexFile | None = None,
    ) -> None:
        self._files = files
        self._paths = paths
        self._slots = slots
        self._capacity = capacity
        self._previous = previous_timestamp, previous_offset
        self.checked: list[VerifiedIndexFile] = [] if begun is None else [begun]

    @property
    def last(self) -> VerifiedIndexFile | None:
        """The last file with verified entries."""
        return next((file for file in reversed(self.checked) if file.table.count > 1), None)

    def sync(self) -> None:
        """Sync the files with verified entries."""
        self._files.sync_files([file.path for file in self.checked])

    def verify(self, keys: IndexKeys) -> int:
        """Verify keys that follow the keys before; returns how many have entries. In one file all count, or none."""
        taken = 0
        while taken < keys.hashes.size:
            if not self._has_room():
                break
            begin, taken = taken, self.checked[-1].verify(keys, taken)
            if taken == begin:
                break
        return taken

    def _has_room(self) -> bool:
        """Whether there is a file for the next entry; after a file that is full and whole this is the next file."""
        last = self.checked[-1] if self.checked else None
        if last is not None:
            if last.table.count < self._capacity:
                return True
            if not last.seal():
                return False
            self._previous = int(last.table.header[END_TIMESTAMP]), int(last.table.header[END_OFFSET])
        if len(self.checked) == len(self._paths):
            return False
        table = IndexTable(self._slots, self._capacity, *self._previous)
        self.checked.append(VerifiedIndexFile(self._files, self._paths[len(self.checked)], table))
        return True

    def close(self) -> None:
        """Close the files."""
        for file in self.checked:
            file.close()
