"""Build index files: tasks spill the keys of their splits, then each index file is built from its range of keys.

The chains of an index file follow the order of the log, so one task builds a file, in log order. Which keys go to which
file is known beforehand: a file takes `max_index_num - 1` keys (docs/formats/index-file.md).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reput.files import DISK
from reput.formats.index_file import HEADER_SIZE, IndexHeader, encode_header, entry_position, file_size
from reput.formats.paths import index_file_name_after
from reput.jobs.rebuild.spill_file import SpillFile
from reput.kernels.queues.index_file import IndexKeys, IndexTable, index_keys
from reput.kernels.records.columns import RecordColumns

#: RocketMQ names an index file by the local time of its creation, but only the order of names counts. By the clock of
#: UTC-12 our names sort before those of files that a broker makes later, wherever it runs, and do not depend on where
#: the job runs.
_NAME_UTC_OFFSET_S = -12 * 3600
#: Milliseconds of the year 9000: later times, and times before 1970, come from damaged records and make no name.
_LAST_NAME_MS = 221_845_392_000_000
#: Bytes of one key in a spill file: int64 offset, int64 timestamp, int32 hash.
_KEY_SIZE = 20


@dataclass(frozen=True, slots=True)
class KeyChunk:
    """Keys at a position of a spill file: all offsets, then all timestamps (int64), then all hashes (int32)."""

    path: str
    position: int
    key_count: int

    def read(self) -> IndexKeys:
        """Read the keys, in log order."""
        data = np.empty(self.key_count * _KEY_SIZE, np.uint8)
        with DISK.open(self.path) as file:
            file.read_into(self.position, data.data)
        offsets, timestamps, hashes = np.split(data, [8 * self.key_count, 16 * self.key_count])
        return IndexKeys(hashes.view(np.int32), offsets.view(np.int64), timestamps.view(np.int64))

    def timestamp_and_offset(self, number: int) -> tuple[int, int]:
        """Store timestamp (ms) and commit log offset of one key."""
        with DISK.open(self.path) as file:
            offset, timestamp = (file.read(self.position + 8 * index, 8) for index in (number, self.key_count + number))
        return int(np.frombuffer(timestamp, np.int64)[0]), int(np.frombuffer(offset, np.int64)[0])


class KeySpill:
    """Spill file for the keys of one task. `chunks` are the positions of the keys, in log order."""

    def __init__(self, path: str) -> None:
        self.chunks: list[KeyChunk] = []
        self._file = SpillFile(path)

    def put(self, columns: RecordColumns) -> None:
        """Add the keys of a scan at `ScanLevel.KEYS`; rolled back messages have none (`IndexService.buildIndex`)."""
        keys = index_keys(columns)
        if not keys.hashes.size:
            return
        self.chunks.append(KeyChunk(self._file.path, self._file.position, keys.hashes.size))
        for column in (keys.offsets, keys.timestamps, keys.hashes):
            self._file.write(column.data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class IndexFilePlan:
    """One index file: its path, the last time and offset of the file before it, and its keys.

    `chunks` hold `key_count` keys of this file, after `skip` keys of the file before it.
    """

    path: str
    max_hash_slot_num: int
    max_index_num: int
    previous_timestamp: int
    previous_offset: int
    chunks: tuple[KeyChunk, ...]
    skip: int
    key_count: int

    def run(self) -> int:
        """Build and sync the file; returns the bytes in use.

        The file is built beside the spilled keys, under a unique name, and renamed when it is whole: a second attempt
        of the task must not continue the file of the first attempt, which may still be writing.
        """
        unfinished = f"{self.chunks[0].path}-{uuid.uuid4().hex}"
        slots = self.max_hash_slot_num
        used = entry_position(slots, self.key_count + 1)
        table = IndexTable(slots, self.max_index_num, self.previous_timestamp, self.previous_offset)
        with DISK.open(unfinished, writable=True, create=True, size=file_size(slots, self.max_index_num)) as file:
            file.allocate(0, used)
            begin = self.skip
            for chunk in self.chunks:
                position = entry_position(slots, table.count)
                file.write(position, table.put(chunk.read(), begin)[1].data)
                begin = 0
            file.write(HEADER_SIZE, table.slot_table.data)
            file.write(0, encode_header(IndexHeader(*table.header.tolist())))
            file.sync()
        DISK.rename(unfinished, self.path)
        return used


def plan_index_files(
    folder: str,
    chunks: Sequence[KeyChunk],
    max_hash_slot_num: int,
    max_index_num: int,
    *,
    taken: int = 0,
    last: tuple[str, int, int] = ("", 0, 0),
) -> list[IndexFilePlan]:
    """Divide the keys of all chunks, in log order, among index files in a folder.

    Args:
        folder: of the new files.
        chunks: all keys.
        max_hash_slot_num: hash slots of a file.
        max_index_num: entries of a file.
        taken: count of keys that are in an index file already.
        last: name, end timestamp (ms) and end offset of the index file before them; ("", 0, 0) without one.
    """
    plans: list[IndexFilePlan] = []
    capacity = max_index_num - 1
    ends = np.cumsum([0, *(chunk.key_count for chunk in chunks)])
    total = int(ends[-1])

    def find(number: int) -> tuple[int, int]:
        """The chunk of a key, and the key's number in it."""
        chunk = int(np.searchsorted(ends, number, "right")) - 1
        return chunk, number - int(ends[chunk])

    def timestamp_and_offset(number: int) -> tuple[int, int]:
        chunk, inside = find(number)
        return chunks[chunk].timestamp_and_offset(inside)

    name, *before = last
    for begin in range(taken, total, capacity):
        end = min(begin + capacity, total)
        (first, skip), (final, _) = find(begin), find(end - 1)
        timestamp, _ = timestamp_and_offset(begin)
        name = index_file_name_after(name, min(max(timestamp, 0), _LAST_NAME_MS), _NAME_UTC_OFFSET_S)
        previous = timestamp_and_offset(begin - 1) if begin else (before[0], before[1])
        plans.append(
            IndexFilePlan(
                os.path.join(folder, name), max_hash_slot_num, max_index_num, *previous,
                tuple(chunks[first : final + 1]), skip, end - begin,
            )
        )  # fmt: skip
    return plans
