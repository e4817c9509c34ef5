"""Records of a small pass of dispatch -> consume queue units, index keys and tags codes, if their queues are known.

The columns of `record_scan` serve passes of any size, and what is done with them costs 100 us before the first record.
`read_small_pass` does the same for up to 256 plain records in one call. It changes nothing but its own memory, and ends
before a record that is not plain: the plain way (`store.dispatch.reput`), which is the oracle, goes on there.

Plain is a record with one unit in a queue of the table: no transaction, no inner batch, no gap and no repeat.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.consume_queue import SIZE, TAGS_CODE, UNIT_SIZE
from reput.formats.message_batch import INNER_BATCH
from reput.formats.record_layout import SysFlag
from reput.kernels.machine.java_hash import java_hash
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    equal_bytes,
    store_i32,
    store_i32_native,
    store_i64,
)
from reput.kernels.machine.shared_words import get, put
from reput.kernels.queues.index_file import IndexKeys
from reput.kernels.queues.index_search import topic_hash
from reput.kernels.records.columns import (
    N_KEYS_POSITION,
    N_KEYS_SIZE,
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_QUEUE_ID,
    N_SIZE,
    N_SYS_FLAG,
    N_TAGS_POSITION,
    N_TAGS_SIZE,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    N_UNIQUE_KEY_POSITION,
    N_UNIQUE_KEY_SIZE,
    NARROW,
    W_COMMIT_LOG_OFFSET,
    W_QUEUE_OFFSET,
    W_STORE_TIMESTAMP,
    WIDE,
)
from reput.kernels.records.record_header import READ, read_record
from reput.kernels.records.record_properties import find_tags_and_keys, hash_keys
from reput.kernels.records.record_scan import hash_queue
from reput.kernels.records.size_ranges import SIZE_RANGES, size_range

_ODD_FLAGS = int(SysFlag.TRANSACTION_MASK | INNER_BATCH)
_UNIT = UNIT_SIZE
_SIZES = SIZE_RANGES
_WIDE_COUNT, _NARROW_COUNT = len(WIDE), len(NARROW)
#: Records and index keys of a small pass, at the most.
MOST_ROWS, MOST_KEYS = 256, 1024

#: Words that Python and the kernel share: int64 at an address, by their positions in bytes.
(
    _END, _RUN_COUNT, _KEY_COUNT, _TIMESTAMP,  # results: address after the last record, and its store timestamp (ms)
    _ENTRIES, _MASK, _INDEX_TAGS, _FILE_SIZE,
    _RUNS, _UNITS, _NUMBERS, _CODES, _HASHES, _KEY_OFFSETS, _KEY_TIMES,
) = range(0, 15 * 8, 8)  # fmt: skip
_WORDS = 15

#: A queue of the table, in int64 words: hash (0: no queue), name, hash of `topic#`, number, and its run in this call.
_E_HASH, _E_QUEUE_ID, _E_TOPIC, _E_TOPIC_SIZE, _E_TOPIC_HASH, _E_NUMBER, _E_RUN = range(0, 7 * 8, 8)
_ENTRY_WORDS = 8
_FIRST_ENTRIES = 256

#: A run, the units of one queue, is a column of int64[16, MOST_ROWS]: the queue's number, the queue offset of the first
#: unit, number of units, bytes of their records, log offset after the last record; where the units are, their bytes,
#: and their position in their file; the queue's entry; number of records in each range of sizes.
_SIZES_AT, _RUN_WORDS = 9, 9 + SIZE_RANGES
_WORD = 8 * MOST_ROWS
(
    _R_NUMBER, _R_OFFSET, _R_COUNT, _R_RECORD_BYTES, _R_END, _R_ADDRESS, _R_SIZE, _R_POSITION, _R_ENTRY, _R_SIZES,
) = range(0, (_SIZES_AT + 1) * _WORD, _WORD)  # fmt: skip
_ROW_RUN, _ROW_OFFSET, _ROW_SIZE, _ROW_CODE = range(4)


@njit
def _find_queue(words, topic, size, queue_id):  # type: ignore[no-untyped-def]
    """Address of a queue of the table; 0: the table lacks it."""
    hashed, mask = np.int64(hash_queue(topic, size, queue_id)), get(words, _MASK)
    slot = hashed & mask
    while True:
        entry = get(words, _ENTRIES) + 8 * _ENTRY_WORDS * slot
        found = get(entry, _E_HASH)
        if found == 0:
            return np.int64(0)
        if (
            found == hashed
            and get(entry, _E_QUEUE_ID) == queue_id
            and get(entry, _E_TOPIC_SIZE) == size
            and equal_bytes(get(entry, _E_TOPIC), topic, size)
        ):
            return entry
        slot = (slot + 1) & mask


@kernel("int64(int64, int64, int64)", short=True)
def queue_hash(topic, size, queue_id):  # type: ignore[no-untyped-def]
    """Hash of a queue, for the table."""
    return np.int64(hash_queue(topic, size, np.int32(queue_id)))


@kernel("int64(int64, int64, int64, int64)", allocates=True, short=True)
def read_small_pass(words, base, size, offset):  # type: ignore[no-untyped-def]
    """Read the plain records from the address `base` on, `size` bytes, the first of which is at `offset` of the log.

    Returns:
        Number of records; the words of `SmallPass` have the rest.
    """
    wide, narrow = np.empty((_WIDE_COUNT, 1), np.int64), np.empty((_NARROW_COUNT, 1), np.int32)
    hashes, rows = np.empty(MOST_KEYS, np.int32), np.empty((MOST_ROWS, 4), np.int64)
    end, p, row, keys, runs = base + size, base, 0, 0, 0
    first_run = get(words, _RUNS)
    while row < MOST_ROWS and read_record(base, p, end, offset + (p - base), wide, narrow, 0) == READ:
        if narrow[N_SYS_FLAG, 0] & _ODD_FLAGS:
            break
        topic, topic_size = base + narrow[N_TOPIC_POSITION, 0], np.int64(narrow[N_TOPIC_SIZE, 0])
        entry = _find_queue(words, topic, topic_size, narrow[N_QUEUE_ID, 0])
        if entry == 0:
            break
        number = get(entry, _E_RUN)  # 0: the queue's first record of this call
        run = first_run + 8 * (number - 1 if number else runs)
        if number and wide[W_QUEUE_OFFSET, 0] != get(run, _R_OFFSET) + get(run, _R_COUNT):
            break
        text, text_size = base + narrow[N_PROPERTIES_POSITION, 0], np.int64(narrow[N_PROPERTIES_SIZE, 0])
        find_tags_and_keys(base, text, text_size, end, narrow, 0)
        tags, tags_size = base + narrow[N_TAGS_POSITION, 0], np.int64(narrow[N_TAGS_SIZE, 0])
        found = hash_keys(
            np.uint32(get(entry, _E_TOPIC_HASH)),
            base + narrow[N_UNIQUE_KEY_POSITION, 0], np.int64(narrow[N_UNIQUE_KEY_SIZE, 0]),
            base + narrow[N_KEYS_POSITION, 0], np.int64(narrow[N_KEYS_SIZE, 0]),
            tags, tags_size if get(words, _INDEX_TAGS) else 0, hashes, keys,
        )  # fmt: skip
        if found < 0:
            break
        record_offset, record_size = wide[W_COMMIT_LOG_OFFSET, 0], np.int64(narrow[N_SIZE, 0])
        for key in range(keys, found):
            store_i32_native(get(words, _HASHES) + 4 * key, hashes[key])
            put(get(words, _KEY_OFFSETS), 8 * key, record_offset)
            put(get(words, _KEY_TIMES), 8 * key, wide[W_STORE_TIMESTAMP, 0])
        keys = found
        if not number:
            runs += 1
            put(entry, _E_RUN, runs)
            put(run, _R_NUMBER, get(entry, _E_NUMBER))
            put(run, _R_OFFSET, wide[W_QUEUE_OFFSET, 0])
            put(run, _R_COUNT, 0)
            put(run, _R_RECORD_BYTES, 0)
            put(run, _R_ENTRY, entry)
            for word in range(_SIZES):
                put(run, _R_SIZES + _WORD * word, 0)
        sizes = _R_SIZES + _WORD * size_range(record_size)
        put(run, sizes, get(run, sizes) + 1)
        put(run, _R_COUNT, get(run, _R_COUNT) + 1)
        put(run, _R_RECORD_BYTES, get(run, _R_RECORD_BYTES) + record_size)
        put(run, _R_END, record_offset + record_size)
        rows[row, _ROW_RUN], rows[row, _ROW_OFFSET], rows[row, _ROW_SIZE] = run, record_offset, record_size
        rows[row, _ROW_CODE] = np.int64(np.int32(java_hash(np.uint32(0), tags, tags_size)))
        put(words, _TIMESTAMP, wide[W_STORE_TIMESTAMP, 0])
        p += record_size
        row += 1
    units = get(words, _UNITS)
    for i in range(runs):
        run = first_run + 8 * i
        put(run, _R_ADDRESS, units)
        put(run, _R_SIZE, 0)
        put(run, _R_POSITION, get(run, _R_OFFSET) * _UNIT % get(words, _FILE_SIZE))
        units += _UNIT * get(run, _R_COUNT)
        put(get(run, _R_ENTRY), _E_RUN, 0)
    for i in range(row):
        run = rows[i, _ROW_RUN]
        unit = get(run, _R_ADDRESS) + get(run, _R_SIZE)
        store_i64(unit, rows[i, _ROW_OFFSET])
        store_i32(unit + SIZE, np.int32(rows[i, _ROW_SIZE]))
        store_i64(unit + TAGS_CODE, rows[i, _ROW_CODE])
        put(run, _R_SIZE, get(run, _R_SIZE) + _UNIT)
        store_i32_native(get(words, _NUMBERS) + 4 * i, np.int32((run - first_run) // 8))
        store_i32_native(get(words, _CODES) + 4 * i, np.int32(rows[i, _ROW_CODE]))
    put(words, _END, p)
    put(words, _RUN_COUNT, runs)
    put(words, _KEY_COUNT, keys)
    return row


class QueueRuns(NamedTuple):
    """Units of some records, one run for each queue; the arrays are int64[runs], valid until the next `read`."""

    #: The queues, by their number in the table.
    numbers: list[int]
    #: Queue offset of the first unit.
    offsets: list[int]
    #: Number of units.
    counts: list[int]
    #: Bytes of the records.
    record_bytes: list[int]
    #: Commit log offset after the last record.
    ends: list[int]
    #: Number of records in each range of `SIZE_BOUNDS`.
    size_counts: list[list[int]]
    #: Memory address of the units, their bytes, and their position in a queue file.
    addresses: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]


class SmallPass:
    """Memory of `read_small_pass`: the queues that it knows, and what it has read.

    Args:
        queue_file_size: Bytes of a consume queue file.
        index_tags: Whether tags are keys, too (`DispatchRules.indexes_tags`).
    """

    def __init__(self, queue_file_size: int, *, index_tags: bool) -> None:
        self._array = np.zeros(_WORDS, np.int64)
        self._words = self._array.data  # faster to index from Python
        self._address: int = self._array.ctypes.data
        self._topics: list[npt.NDArray[np.uint8]] = []
        self._runs = np.empty((_RUN_WORDS, MOST_ROWS), np.int64)
        self._units = np.empty(MOST_ROWS * UNIT_SIZE, np.uint8)
        self._numbers, self._codes = np.empty(MOST_ROWS, np.int32), np.empty(MOST_ROWS, np.int32)
        keys = np.empty(MOST_KEYS, np.int32), np.empty(MOST_KEYS, np.int64), np.empty(MOST_KEYS, np.int64)
        self._keys = IndexKeys(*keys)
        self._words[_FILE_SIZE // 8], self._words[_INDEX_TAGS // 8] = queue_file_size, index_tags
        for word, data in (
            (_RUNS, self._runs), (_UNITS, self._units), (_NUMBERS, self._numbers), (_CODES, self._codes),
            (_HASHES, keys[0]), (_KEY_OFFSETS, keys[1]), (_KEY_TIMES, keys[2]),
        ):  # fmt: skip
            self._words[word // 8] = data.ctypes.data
        self._entries = np.zeros((0, _ENTRY_WORDS), np.int64)
        self._make_entries(_FIRST_ENTRIES)

    def add_queue(self, topic: bytes, queue_id: int) -> int:
        """Know a queue, which is new to the table, from now on; returns its number, from 0 on."""
        number = len(self._topics)
        if 2 * number >= len(self._entries):
            self._make_entries(2 * len(self._entries))
        name = np.frombuffer(topic, np.uint8)
        self._topics.append(name)
        hashed = _kernels.queue_hash(name.ctypes.data, name.size, queue_id)
        self._fill([hashed, queue_id, name.ctypes.data, name.size, int(topic_hash(topic)), number, 0, 0])
        return number

    def _make_entries(self, count: int) -> None:
        before, self._entries = self._entries, np.zeros((count, _ENTRY_WORDS), np.int64)
        self._words[_ENTRIES // 8], self._words[_MASK // 8] = self._entries.ctypes.data, count - 1
        for entry in before[before[:, _E_HASH // 8] != 0].tolist():
            self._fill(entry)

    def _fill(self, entry: list[int]) -> None:
        mask = len(self._entries) - 1
        slot = entry[_E_HASH // 8] & mask
        while self._entries[slot, _E_HASH // 8]:
            slot = (slot + 1) & mask
        self._entries[slot] = entry

    def read(self, address: int, size: int, offset: int) -> int:
        """Read the plain records of `size` bytes at an address, the first of which is at `offset` of the log.

        Returns:
            The number of records, `MOST_ROWS` at the most.
        """
        return int(_kernels.read_small_pass(self._address, address, size, offset))

    @property
    def end_address(self) -> int:
        """Address after the last record."""
        return self._words[_END // 8]

    @property
    def store_timestamp(self) -> int:
        """Store time (ms) of the last record."""
        return self._words[_TIMESTAMP // 8]

    @property
    def runs(self) -> QueueRuns:
        """The units of the records."""
        runs = self._runs[:, : self._words[_RUN_COUNT // 8]]
        numbers, offsets, counts, record_bytes, ends = runs[:5].tolist()
        size_counts = runs[_SIZES_AT:].T.tolist()
        return QueueRuns(numbers, offsets, counts, record_bytes, ends, size_counts, runs[5], runs[6], runs[7])

    @property
    def keys(self) -> IndexKeys:
        """Index keys of the records; valid until the next `read`."""
        count = self._words[_KEY_COUNT // 8]
        hashes, offsets, timestamps = self._keys
        return IndexKeys(hashes[:count], offsets[:count], timestamps[:count])

    def tags(self, rows: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Copies of int32[rows]: the number of each record's run, and the low half of its tags code."""
        return self._numbers[:rows].copy(), self._codes[:rows].copy()


_kernels = sys.modules[__name__]
