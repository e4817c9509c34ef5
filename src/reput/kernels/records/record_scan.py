"""Scan: commit log bytes -> columns; the one function used by live dispatch, recovery, rebuild, audit and Spark.

The scan is pure: no files, no clock, no threads, and no errors about the bytes. It walks whole records from the
buffer's first byte, and returns where and why it stopped. A record counts only if its magic code is a message's, its
lengths add up, and its PHYSICALOFFSET is the offset where it lies. `CommitLog.checkMessageAndReturnSize` checks the
same except for the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.index_file import TOPIC_END
from reput.formats.java import INT32_MAX
from reput.formats.properties import DELAY_LEVELS_MS
from reput.formats.record_layout import BLANK_SIZE, SysFlag
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.java_hash import java_hash
from reput.kernels.machine.jit import inlined, kernel
from reput.kernels.machine.mapped_pages import asked_until
from reput.kernels.machine.memory import (
    copy_short,
    equal_bytes,
    load_i32,
    load_i32_native,
    load_u8,
    load_u64_native,
    prefetch,
    store_i32_native,
)
from reput.kernels.records.columns import (
    N_BODY_CRC,
    N_BODY_POSITION,
    N_BODY_SIZE,
    N_KEYS_POSITION,
    N_KEYS_SIZE,
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_QUEUE,
    N_QUEUE_ID,
    N_SIZE,
    N_STATUS,
    N_SYS_FLAG,
    N_TAGS_POSITION,
    N_TAGS_SIZE,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    N_UNIQUE_KEY_POSITION,
    N_UNIQUE_KEY_SIZE,
    NARROW,
    W_STORE_TIMESTAMP,
    W_TAGS_CODE,
    WIDE,
    RecordColumns,
    RecordStatus,
    ScanStop,
)
from reput.kernels.records.property_crc import carries_property_crc, property_crc_fits
from reput.kernels.records.record_header import READ, read_record, stop_at
from reput.kernels.records.record_properties import delay_level, find_tags_and_keys, hash_keys

_TRANSACTION, _ROLLBACK = SysFlag.TRANSACTION_MASK, SysFlag.TRANSACTION_ROLLBACK
_BAD_BODY_CRC, _BAD_PROPERTY_CRC = RecordStatus.BAD_BODY_CRC, RecordStatus.BAD_PROPERTY_CRC
_END, _FULL, _UNREADABLE = int(ScanStop.END_OF_BUFFER), int(ScanStop.FULL), int(ScanStop.UNREADABLE)
_TOPIC_END = np.uint32(ord(TOPIC_END))
_SCHEDULE_TOPIC = np.frombuffer(SCHEDULE_TOPIC.encode(), np.uint8).copy()
#: More keys than one record can have: it has at most 32 767 bytes of properties.
_MAX_KEYS_OF_A_RECORD = 16_384
#: A scan ends with `ScanStop.FULL` when its queues fill three quarters of these slots. More slots would not stay in the
#: cache: with a million a scan with keys over 10 000 queues took 530 ns a record.
_MAX_QUEUE_SLOTS = 1 << 16
#: For each queue of a scan one cache line: queue id, size of the topic, and the topic if it is short. The topic in the
#: queue's first record lies anywhere in the log: over 10 000 queues each record waited for it, 270 ns instead of 140.
QUEUE_LINE_SIZE = 64
_LINE_TOPIC_SIZE = QUEUE_LINE_SIZE - 8
#: Records of one queue lie far apart. Headers are prefetched this many records in advance, and the bytes after the
#: headers a little later, when the size is known. 1000 records of 455 bytes: 50 to 70 us instead of 230.
_HEADS_AHEAD = 24
_BODIES_AHEAD = 12
_PREFETCHED_BYTES = 1024
#: Padding after each column: without it the columns of one row would share a cache set when a column's size is a power
#: of two, which costs 25 to 30 ns a record.
_PADDING_BYTES = 192
#: The last of the skips of a scan, where no record begins.
_NO_SKIP = np.array([[-1, -1]], np.int64)


class ScanLevel(IntEnum):
    """Fields that a scan extracts; each level includes the lower ones. Nanoseconds a record: 59, 83, 99, 116."""

    HEADER = 0
    QUEUES = 1
    PROPERTIES = 2
    KEYS = 3


@njit
def _mix(state, word):  # type: ignore[no-untyped-def]
    state = (state ^ word) * np.uint64(0x9FB21C651E98DF25)
    return state ^ (state >> np.uint64(32))


@njit
def hash_queue(topic, size, queue_id):  # type: ignore[no-untyped-def]
    """64-bit hash of (topic, queue id), never 0."""
    state = np.uint64(size) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(queue_id) * np.uint64(0xD6E8FEB86659FD93)
    if size >= 8:
        i = 0
        while i + 8 < size:
            state = _mix(state, load_u64_native(topic + i))
            i += 8
        state = _mix(state, load_u64_native(topic + size - 8))
    else:
        word = np.uint64(0)
        for i in range(size):
            word = (word << np.uint64(8)) | np.uint64(load_u8(topic + i))
        state = _mix(state, word)
    return state if state else np.uint64(1)


@inlined
def _queue_number(base, narrow, row, table_hash, table_queue, queue_rows, lines, queues):  # type: ignore[no-untyped-def]
    """Number of a row's queue by open addressing, verified by the bytes; `queues` for a new queue.

    `lines` is the address of `QUEUE_LINE_SIZE` bytes for each queue.
    """
    topic, size = base + narrow[N_TOPIC_POSITION, row], np.int64(narrow[N_TOPIC_SIZE, row])
    queue_id = narrow[N_QUEUE_ID, row]
    hashed = hash_queue(topic, size, queue_id)
    mask = np.uint64(table_hash.size - 1)
    slot = hashed & mask
    while table_hash[slot]:
        if table_hash[slot] == hashed:
            queue = table_queue[slot]
            line = lines + np.int64(queue) * QUEUE_LINE_SIZE
            if load_i32_native(line) == queue_id and load_i32_native(line + 4) == size:
                known = line + 8 if size <= _LINE_TOPIC_SIZE else base + narrow[N_TOPIC_POSITION, queue_rows[queue]]
                if equal_bytes(topic, known, size):
                    return queue
        slot = (slot + np.uint64(1)) & mask
    table_hash[slot] = hashed
    table_queue[slot] = queues
    queue_rows[queues] = row
    line = lines + np.int64(queues) * QUEUE_LINE_SIZE
    store_i32_native(line, queue_id)
    store_i32_native(line + 4, np.int32(size))
    if size <= _LINE_TOPIC_SIZE:
        copy_short(line + 8, topic, size)
    return queues


@njit
def _clear_table(base, narrow, table_hash, queue_rows, queues):  # type: ignore[no-untyped-def]
    """Clear the slots of a scan's queues: only those that the queues can have taken."""
    mask = np.uint64(table_hash.size - 1)
    for queue in range(queues):
        row = queue_rows[queue]
        topic, size = base + narrow[N_TOPIC_POSITION, row], np.int64(narrow[N_TOPIC_SIZE, row])
        slot = hash_queue(topic, size, narrow[N_QUEUE_ID, row]) & mask
        while table_hash[slot]:
            table_hash[slot] = np.uint64(0)
            slot = (slot + np.uint64(1)) & mask


@inlined
def _tags_code(base, narrow, wide, row, is_schedule, delays):  # type: ignore[no-untyped-def]
    """Tags code: the hash of TAGS, sign extended; for a delayed message the time of delivery, ms
    (`computeDeliverTimestamp`).
    """
    if is_schedule:
        level = delay_level(base + narrow[N_PROPERTIES_POSITION, row], np.int64(narrow[N_PROPERTIES_SIZE, row]))
        level = min(level, delays.size)
        if level > 0:
            return wide[W_STORE_TIMESTAMP, row] + delays[level - 1]
    tags, size = base + narrow[N_TAGS_POSITION, row], np.int64(narrow[N_TAGS_SIZE, row])
    return np.int64(np.int32(java_hash(np.uint32(0), tags, size)))


@inlined
def _check_crcs(base, p, narrow, row, require_property_crc):  # type: ignore[no-untyped-def]
    """Set the status of a record if its body CRC or its property CRC differs from that of the bytes."""
    body, body_size = base + narrow[N_BODY_POSITION, row], np.int64(narrow[N_BODY_SIZE, row])
    if body_size and body_crc(body, body_size) != narrow[N_BODY_CRC, row]:  # as RocketMQ, which skips empty bodies
        narrow[N_STATUS, row] = _BAD_BODY_CRC
    store_size = np.int64(narrow[N_SIZE, row])
    if carries_property_crc(p, store_size, narrow[N_PROPERTIES_SIZE, row]):
        if not property_crc_fits(p, store_size):
            narrow[N_STATUS, row] |= _BAD_PROPERTY_CRC
    elif require_property_crc:
        narrow[N_STATUS, row] |= _BAD_PROPERTY_CRC


_MATRICES = "int64[:, ::1], int32[:, ::1]"


@kernel(f"void(int64, int64, int64, int64, int64, int64, boolean, boolean, int64[:, ::1], {_MATRICES}, int64[::1])")
def _scan_headers(  # type: ignore[no-untyped-def]
    base, size, left, page_size, base_offset, max_rows, check_crc, require_property_crc, skips, wide, narrow, result
):
    """`_scan` at `ScanLevel.HEADER`, compiled in a third of the time: all that a look at a store needs."""
    end, p, row, stop = base + size, base, 0, _FULL
    skip, skipped = 0, base + skips[0, 0]
    limit = base if page_size else end  # of a map, up to where its pages were asked for
    while row < max_rows:
        if p == skipped:
            p, skip = base + skips[skip, 1], skip + 1
            skipped = base + skips[skip, 0]
        stop = stop_at(read_record(base, p, limit, base_offset + (p - base), wide, narrow, row), p, base + left)
        if stop == _END and limit < end:
            limit = asked_until(limit, end, page_size)
            if limit:
                continue
            stop = _UNREADABLE
        if stop != READ:
            break
        stop = _FULL
        if check_crc:
            _check_crcs(base, p, narrow, row, require_property_crc)
        p += np.int64(narrow[N_SIZE, row])
        row += 1
    result[0], result[1], result[2], result[3], result[4] = row, p - base, stop, 0, 0


@kernel(
    "void(int64, int64, int64, int64, int64, int64, int64, boolean, boolean, int64[:, ::1], int64[::1], boolean, "
    f"{_MATRICES}, uint64[::1], int32[::1], int32[::1], int64, uint32[::1], uint8[::1], uint8[::1], int32[::1], "
    "int32[::1], int64[::1])"
)
def _scan(  # type: ignore[no-untyped-def]
    base, size, left, page_size, base_offset, max_rows, level, check_crc, require_property_crc, skips, delays,
    index_tags, wide, narrow, table_hash, table_queue, queue_rows, lines, queue_hash, queue_is_schedule,
    schedule_topic, key_hashes,
    key_rows, result,
):  # fmt: skip
    end, p, row, keys, queues, stop = base + size, base, 0, 0, 0, _FULL
    most_queues = table_hash.size * 3 // 4
    skip, skipped = 0, base + skips[0, 0]
    limit = base if page_size else end  # of a map, up to where its pages were asked for
    while row < max_rows:
        if p == skipped:
            p, skip = base + skips[skip, 1], skip + 1
            skipped = base + skips[skip, 0]
        stop = stop_at(read_record(base, p, limit, base_offset + (p - base), wide, narrow, row), p, base + left)
        if stop == _END and limit < end:
            limit = asked_until(limit, end, page_size)
            if limit:
                continue
            stop = _UNREADABLE
        if stop != READ:
            break
        stop = _FULL
        if queues >= most_queues:
            break
        if check_crc:
            _check_crcs(base, p, narrow, row, require_property_crc)
        queue = np.int64(_queue_number(base, narrow, row, table_hash, table_queue, queue_rows, lines, queues))
        narrow[N_QUEUE, row] = queue
        if queue == queues:
            queues += 1
            topic, topic_size = base + narrow[N_TOPIC_POSITION, row], np.int64(narrow[N_TOPIC_SIZE, row])
            hashed = java_hash(np.uint32(0), topic, topic_size)
            queue_hash[queue] = np.uint32(hashed * np.uint32(31) + _TOPIC_END)
            same = topic_size == schedule_topic.size
            for i in range(schedule_topic.size if same else 0):
                same = same and load_u8(topic + i) == schedule_topic[i]
            queue_is_schedule[queue] = same
        if level >= 2:
            text, text_size = base + narrow[N_PROPERTIES_POSITION, row], np.int64(narrow[N_PROPERTIES_SIZE, row])
            find_tags_and_keys(base, text, text_size, limit, narrow, row)
            wide[W_TAGS_CODE, row] = _tags_code(base, narrow, wide, row, queue_is_schedule[queue], delays)
            if level >= 3 and narrow[N_SYS_FLAG, row] & _TRANSACTION != _ROLLBACK:
                found = hash_keys(
                    queue_hash[queue],
                    base + narrow[N_UNIQUE_KEY_POSITION, row], np.int64(narrow[N_UNIQUE_KEY_SIZE, row]),
                    base + narrow[N_KEYS_POSITION, row], np.int64(narrow[N_KEYS_SIZE, row]),
                    base + narrow[N_TAGS_POSITION, row], np.int64(narrow[N_TAGS_SIZE, row]) if index_tags else 0,
                    key_hashes, keys,
                )  # fmt: skip
                if found < 0:
                    break
                key_rows[keys:found] = row
                keys = found
        p += np.int64(narrow[N_SIZE, row])
        row += 1
    _clear_table(base, narrow, table_hash, queue_rows, queues)
    if queues and queue_rows[queues - 1] >= row:
        queues -= 1  # the only row of this queue did not fit
    result[0], result[1], result[2], result[3], result[4] = row, p - base, stop, queues, keys


@kernel(f"int64(int64, int64, int64[::1], int64[::1], boolean, {_MATRICES})")
def _read_at(base, size, positions, offsets, check_crc, wide, narrow):  # type: ignore[no-untyped-def]
    count = positions.size
    for i in range(min(_HEADS_AHEAD, count)):
        prefetch(base + positions[i])
        prefetch(base + positions[i] + 64)
    for i in range(count):
        if i + _HEADS_AHEAD < count:
            prefetch(base + positions[i + _HEADS_AHEAD])
            prefetch(base + positions[i + _HEADS_AHEAD] + 64)
        if i + _BODIES_AHEAD < count:
            p = positions[i + _BODIES_AHEAD]
            if 0 <= p <= size - BLANK_SIZE:
                for line in range(p + 128, p + min(np.int64(load_i32(base + p)), _PREFETCHED_BYTES), 64):
                    prefetch(base + line)
        p = positions[i]
        if p < 0 or p > size or read_record(base, base + p, base + size, offsets[i], wide, narrow, i) != READ:
            return i
        if check_crc:
            _check_crcs(base, base + p, narrow, i, False)
        text, text_size = base + narrow[N_PROPERTIES_POSITION, i], np.int64(narrow[N_PROPERTIES_SIZE, i])
        find_tags_and_keys(base, text, text_size, base + size, narrow, i)
        tags, tags_size = base + narrow[N_TAGS_POSITION, i], np.int64(narrow[N_TAGS_SIZE, i])
        wide[W_TAGS_CODE, i] = np.int64(np.int32(java_hash(np.uint32(0), tags, tags_size)))
    return positions.size


class RecordScanner:
    """Scanner of buffers into columns; reuses its memory (136 bytes a row and 8 a key) from scan to scan.

    Args:
        max_rows: Largest number of records of a scan; at more it stops with `ScanStop.FULL`.
        level: What is extracted beside the header.
        delays_ms: The delays of the delay levels, for units of SCHEDULE_TOPIC_XXXX.
        index_tags: Whether tags are keys, too (`DispatchRules.indexes_tags`).
    """

    def __init__(
        self,
        max_rows: int = 32_768,
        *,
        level: ScanLevel = ScanLevel.KEYS,
        delays_ms: Sequence[int] = DELAY_LEVELS_MS,
        index_tags: bool = False,
    ) -> None:
        queues = max_rows if level >= ScanLevel.QUEUES else 0
        keys = 4 * max_rows + _MAX_KEYS_OF_A_RECORD if level >= ScanLevel.KEYS else 0
        slots = min(1 << (2 * queues).bit_length(), _MAX_QUEUE_SLOTS)
        self._level = level
        self._delays = np.array(delays_ms, np.int64)
        self._index_tags = index_tags
        self._max_rows = max_rows
        self._wide = np.empty((len(WIDE), max_rows + _PADDING_BYTES // 8), np.int64)
        self._narrow = np.empty((len(NARROW), max_rows + _PADDING_BYTES // 4), np.int32)
        self._table = np.zeros(slots, np.uint64), np.empty(slots, np.int32)
        self._queue_rows = np.empty(queues, np.int32)
        self._queue_lines = np.empty(slots * QUEUE_LINE_SIZE, np.uint8)
        self._queue_marks = np.empty(queues, np.uint32), np.empty(queues, np.uint8)
        self._keys = np.empty(keys, np.int32), np.empty(keys, np.int32)
        self._result = np.empty(5, np.int64)

    def scan(
        self,
        buffer: npt.NDArray[np.uint8],
        base_offset: int,
        *,
        left: int | None = None,
        check_crc: bool = False,
        require_property_crc: bool = False,
        page_size: int = 0,
        skips: npt.NDArray[np.int64] | None = None,
    ) -> RecordColumns:
        """Scan the whole records from the buffer's start on.

        Args:
            buffer: uint8[size], contiguous, under 2 GiB; a record, or a skip, must start at its first byte.
            base_offset: Commit log offset of the first byte.
            left: Bytes of the log file from the buffer's start to the file's end, which tells a blank record; None: the
                buffer ends where the file does.
            check_crc: Compare each body with BODYCRC, and each record that has a property CRC with that. A difference
                sets `RecordStatus.BAD_BODY_CRC` or `BAD_PROPERTY_CRC`; the scan goes on.
            require_property_crc: With `check_crc`, a record without a property CRC gets `BAD_PROPERTY_CRC`, too.
            page_size: Of a map, whose pages are asked for before they are read (`ScanStop.UNREADABLE`); 0 for memory.
            skips: int64[n, 2], damage that is passed over (`reput.kernels.records.record_search`): ascending positions
                where it begins, in place of a record, and where the next record begins.

        Raises ValueError for a longer buffer.
        """
        if buffer.size > INT32_MAX:
            raise ValueError(f"{buffer.size} bytes to scan; positions of records are int32")
        left = buffer.size if left is None else left
        skips = _NO_SKIP if skips is None else np.concatenate([skips, _NO_SKIP])
        if self._level == ScanLevel.HEADER:
            _scan_headers(
                buffer.ctypes.data, buffer.size, left, page_size, base_offset, self._max_rows, check_crc,
                require_property_crc, skips, self._wide, self._narrow, self._result,
            )  # fmt: skip
        else:
            _scan(
                buffer.ctypes.data, buffer.size, left, page_size, base_offset, self._max_rows, int(self._level),
                check_crc, require_property_crc, skips, self._delays, self._index_tags, self._wide, self._narrow,
                *self._table,
                self._queue_rows, self._queue_lines.ctypes.data, *self._queue_marks, _SCHEDULE_TOPIC, *self._keys,
                self._result,
            )  # fmt: skip
        rows, consumed, stop, queues, keys = self._result.tolist()
        return RecordColumns(
            buffer,
            base_offset,
            consumed,
            ScanStop(stop),
            self._wide[:, :rows],
            self._narrow[:, :rows],
            self._queue_rows[:queues],
            self._keys[0][:keys],
            self._keys[1][:keys],
        )


def read_records_at(
    buffer: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    *,
    check_crc: bool = False,
) -> RecordColumns:
    """Read the records at given positions of a buffer, up to the first that does not prove itself.

    Header and properties columns are filled, `queue` is not; `tags_code` is the hash of TAGS for every topic.

    Args:
        buffer: uint8[size].
        positions: int64[n], where the records start.
        offsets: int64[n], the commit log offsets that the records must have.
        check_crc: as in `RecordScanner.scan`.
    """
    wide = np.empty((len(WIDE), positions.size), np.int64)
    narrow = np.empty((len(NARROW), positions.size), np.int32)
    rows = _read_at(buffer.ctypes.data, buffer.size, positions, offsets, check_crc, wide, narrow)
    none = np.empty(0, np.int32)
    return RecordColumns(buffer, 0, 0, ScanStop.END_OF_BUFFER, wide[:, :rows], narrow[:, :rows], none, none, none)
