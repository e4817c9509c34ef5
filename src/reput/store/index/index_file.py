"""One index file: mapped, written in place. Disk space is reserved before it is written: a full disk is an error."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files import File, FileLayer, Mapping
from reput.formats.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    PHY_OFFSET,
    IndexHeader,
    decode_header,
    encode_header,
    entry_position,
    file_size,
)
from reput.kernels.queues.index_file import BEGIN_TIMESTAMP, END_OFFSET, END_TIMESTAMP, INDEX_COUNT, IndexKeys, put_keys
from reput.kernels.queues.index_search import IndexFields, find_entries

#: Space for entries is reserved in steps of this many bytes.
RESERVE_STEP = 1 << 20


class KernelFields:
    """Native int64 numbers for a kernel; their address is taken once, as asking for it costs 1 us.

    Args:
        numbers: The numbers, addresses among them.
        alive: The object that these addresses point to, kept alive with the block.
    """

    __slots__ = ("_alive", "address")

    def __init__(self, numbers: Sequence[int], alive: object = None) -> None:
        block = np.array(numbers, np.int64)
        self._alive = block, alive
        self.address: int = block.ctypes.data


class IndexFile:
    """RocketMQ's `IndexFile`.

    The map is writable from the first put on: a start needs no space for it.

    Attributes:
        header: int64[6], the header's fields (see `reput.kernels.queues.index_file`); each put writes them to the map.
    """

    __slots__ = (
        "_entries",
        "_file",
        "_is_followed",
        "_is_put",
        "_lookup",
        "_mapping",
        "_reserved",
        "capacity",
        "header",
        "path",
        "slots",
    )

    def __init__(self, files: FileLayer, path: str, slots: int, capacity: int, *, writable: bool, create: bool) -> None:
        self.path = path
        self.slots = slots
        self.capacity = capacity
        self._file: File = files.open(
            path, writable=writable, create=create, size=file_size(slots, capacity) if create else None
        )
        self._entries = entry_position(slots, 0)
        self._reserved = 0
        self._is_followed = False
        self._is_put = create
        if create:
            try:
                self._file.allocate(0, self._entries)
            except BaseException:
                self._file.close()
                with suppress(StoreError):  # where it cannot be removed either, the next try makes this file
                    files.unlink(path)
                raise
            self._reserved = self._entries
        try:
            if create:
                files.sync_directory(path.rpartition("/")[0])
            self._mapping = self._map(writable=create)
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise
        self._lookup: tuple[object, tuple[KernelFields, int, int, bool]] | None = None

    @property
    def name(self) -> str:
        """The file's name; the order of the names is the order of the files."""
        return self.path.rpartition("/")[2]

    def _map(self, *, writable: bool) -> Mapping:
        return self._file.map(writable=writable, random=True, expected=file_size(self.slots, self.capacity))

    def _read_header(self) -> npt.NDArray[np.int64]:
        header = np.array(decode_header(self._file.read(0, HEADER_SIZE)), np.int64)
        header[INDEX_COUNT] = max(int(header[INDEX_COUNT]), 1)
        return header

    def follow(self) -> None:
        """Read the header that another process has written.

        The other process may go on putting: what a slot leads to is an entry, whatever `count` says.
        """
        self._is_followed = True
        if self._mapping.whole_until < self._mapping.size:
            self._mapping = self._map(writable=False)
        self.header = self._read_header()

    @property
    def _end_number(self) -> int:
        """Entries below this number are valid."""
        return self.capacity if self._is_followed else self.count

    @property
    def lookup(self) -> tuple[KernelFields, int, int, bool]:
        """`IndexFields`, first and last store time (ms), and whether there is no entry; cached until a key is put."""
        kept, header = self._lookup, self.header
        if kept is None or kept[0] is not header:
            begin, end, _, _, _, count = header.tolist()
            mapping = self._mapping
            block = KernelFields(IndexFields(mapping.fields, self.slots, self._end_number, begin), mapping)
            kept = self._lookup = header, (block, begin, end, count <= 1)
        return kept[1]

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return int(self.header[INDEX_COUNT]) >= self.capacity

    @property
    def begin_timestamp(self) -> int:
        """Store time (ms) of the first record with an entry."""
        return int(self.header[BEGIN_TIMESTAMP])

    @property
    def end_timestamp(self) -> int:
        """Store time (ms) of the last record with an entry."""
        return int(self.header[END_TIMESTAMP])

    @property
    def end_offset(self) -> int:
        """Commit log offset of the last record with an entry."""
        return int(self.header[END_OFFSET])

    @property
    def count(self) -> int:
        """Number of the next entry."""
        return int(self.header[INDEX_COUNT])

    @property
    def hole_bytes(self) -> int:
        """Bytes that the next put reserves for what is there: files of RocketMQ, and sparse copies, have holes."""
        return 0 if self._reserved else max(0, entry_position(self.slots, self.count) - self._file.allocated_bytes)

    def continue_from(self, previous: IndexFile) -> None:
        """Set the header to begin where the file before ends (`IndexService.getAndCreateLastIndexFile`)."""
        self.header[:4] = previous.end_timestamp, previous.end_timestamp, previous.end_offset, previous.end_offset

    def put(self, keys: IndexKeys, begin: int) -> int:
        """Put keys from number `begin` on; returns the number of the first key that did not fit.

        Raises:
            StoreFullError: No space for the entries; nothing has changed.
            StoreError: The disk cannot read a page; entries may have been put, and the header does not say so.
        """
        before = self.count
        count = min(keys.hashes.size - begin, self.capacity - before)
        end = self._entries + (before + count) * ENTRY_SIZE
        if end > self._reserved:  # at first from the begin on: RocketMQ's files, and copies, have holes
            step_end = max(self._reserved, entry_position(self.slots, before)) + RESERVE_STEP
            target = min(self._file.size, max(end, step_end))
            self._file.allocate(self._reserved, target - self._reserved)
            self._reserved = target
        if not self._is_put:
            self._mapping, self._is_put = self._map(writable=True), True
        header = self.header.copy()
        address, entries = self._mapping.address + HEADER_SIZE, self._mapping.address + self._entries
        columns = keys.hashes, keys.offsets, keys.timestamps
        fields = self._mapping.fields
        taken = int(put_keys(fields, address, entries, self.slots, self.capacity, header, *columns, begin))
        if taken < 0:
            self._mapping.refuse(-1 - taken)
        self._mapping.view[:40] = encode_header(IndexHeader._make(header.tolist()))
        self.header = header
        return taken

    def find(
        self,
        hashes: npt.NDArray[np.int32],
        wanted: npt.NDArray[np.int32],
        begin: int,
        end: int,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Find candidates for keys, newest first for each key: (key numbers int32[n], commit log offsets int64[n]).

        Args:
            hashes: int32[keys].
            wanted: int32[keys], how many candidates each key still takes; lowered by those found.
            begin, end: Bounds of the store time, ms.
        """
        room, mapping = max(64, 4 * hashes.size), self._mapping
        while True:
            numbers, offsets = np.empty(room, np.int32), np.empty(room, np.int64)
            left = wanted.copy()
            count = find_entries(
                mapping.fields, self.slots, self._end_number, int(self.header[0]), begin, end, hashes, left,
                room, numbers, offsets,
            )  # fmt: skip
            if count >= 0:
                wanted[:] = left
                return numbers[:count], offsets[:count]
            if count < -1:
                mapping.refuse(-2 - count)
            room *= 4

    def trailing_keys(self, offset: int) -> int:
        """Number of the last entries that belong to the record at a commit log offset."""
        number = self.count - 1
        while number >= 1:
            position = entry_position(self.slots, number) + PHY_OFFSET
            if int.from_bytes(self._file.read(position, 8), "big", signed=True) != offset:
                break
            number -= 1
        return self.count - 1 - number

    def flush(self) -> None:
        """Sync the file."""
        self._file.sync()

    def close(self) -> None:
        """Close the descriptor; the map lives as long as somebody reads it."""
        self._file.close()
