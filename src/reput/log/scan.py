"""Scan of commit log files, and the decision where the log ends.

Files are read by `preadv`, window by window, into one buffer that is reused. `preadv` is faster than a map here, and a
file that shrinks or fails during the read cannot kill the process.

The reader takes no lock. It may meet a record that is being written, or, in a killed store, a record that was never
finished. A record counts only if its size, magic code, own offset, inner lengths and body CRC prove it. The first
record that fails ends the log, unless a later record proves itself: then the bytes before the later record are damage,
and the damage is reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import DISK, File, FileLayer
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.formats.record import decode_record
from reput.formats.record_layout import BLANK_SIZE, MIN_RECORD_SIZE, MagicCode
from reput.kernels.columns import RecordColumns, RecordStatus, ScanStop
from reput.kernels.record_scan import DEFAULT_DELAYS_MS, RecordScanner, ScanLevel, find_record
from reput.log.directory import LogFile, numbered_files, open_listed
from reput.log.splits import Split, SplitResult, SplitStop

#: Records a batch. Just below a power of two: columns that lie a power of two apart share cache sets, which costs 25 ns
#: a record.
MAX_ROWS = 32_752
WINDOW_BYTES = 4 << 20
_SEARCH_BYTES = 16 << 20
#: A record that fails although a later record is whole is read again: its writer may copy bytes out of order.
_REREADS = 4
_REREAD_PAUSE_S = 0.005
#: With more damages than this, failed records are not being written: they are read again without a pause.
_DAMAGES_WITH_PAUSE = 8
_BLANK_MAGIC = int(MagicCode.BLANK)


class OnDamage(Enum):
    """What a scan does at a record that does not prove itself."""

    #: The log ends at the record; no later record is looked for.
    END = "end"
    #: Raise CorruptRecordError if a later record proves itself; otherwise the log ends at the record.
    RAISE = "raise"
    #: Go on at a later record that proves itself, and add the skipped bytes to `SplitScan.damages`; without a later
    #: record the log ends here.
    SKIP = "skip"


def scan_split(
    split: Split,
    *,
    level: ScanLevel,
    check_crc: bool = True,
    max_rows: int = MAX_ROWS,
    window_bytes: int = WINDOW_BYTES,
    delays_ms: Sequence[int] = DEFAULT_DELAYS_MS,
    index_tags: bool = False,
    on_damage: OnDamage = OnDamage.RAISE,
    double_buffered: bool = False,
    files: FileLayer = DISK,
) -> SplitScan:
    """Scan the records that start in a split; nothing is read before the iteration over the result starts.

    Args:
        level: what is extracted beside the header.
        check_crc: whether a body must agree with BODYCRC for its record to count.
        max_rows: the largest number of records in a batch.
        window_bytes: bytes of one read; a longer record is read whole all the same.
        delays_ms, index_tags: as in `RecordScanner`.
        on_damage: what happens at a record that does not prove itself.
        double_buffered: a batch stays valid until the second batch after it is asked for, not only the next: another
            thread can read the next batch while this one is used.
    """
    scanners = [
        RecordScanner(max_rows, level=level, delays_ms=delays_ms, index_tags=index_tags)
        for _ in range(2 if double_buffered else 1)
    ]
    return SplitScan(split, scanners, check_crc, window_bytes, on_damage, files)


class Damage(NamedTuple):
    """Damaged bytes of one file, from `begin` to `end` (commit log offsets): no record in them proves itself."""

    path: str
    begin: int
    end: int
    reason: str

    def error(self) -> CorruptRecordError:
        """CorruptRecordError that reports this damage."""
        return CorruptRecordError(self.path, self.begin, self.reason)


def find_end(file: LogFile, files: FileLayer) -> int:
    """Commit log offset after the last record of a file as it is now; only headers are read.

    Where the file is damaged, the file's end: whoever reads the records gets the error.
    """
    scan = scan_split(
        Split(file, file.start_offset, file.end_offset, True), level=ScanLevel.HEADER, check_crc=False, files=files
    )
    try:
        for _ in scan:
            pass
    except CorruptRecordError:
        return file.end_offset
    return file.start_offset if scan.end_offset is None else scan.end_offset


class SplitScan:
    """Iterable of the records of one split, in batches of `RecordColumns`; made by `scan_split`, to be iterated once.

    Each batch is valid until the next batch is asked for, or, with `double_buffered`, the second batch after it.
    Iterating raises CorruptRecordError as `OnDamage` says, and StoreError where a file cannot be read or retention has
    deleted it.

    Attributes as in `SplitResult`, final after the iteration:
        begin_offset: where the first record starts.
        end_offset: where the next record must start; during the iteration, the end of the last batch.
        stop: why the reading ended. Also BLANK where skipped damage reaches the end of the file.
        damages: the skipped bytes, up to the last batch.
    """

    def __init__(
        self,
        split: Split,
        scanners: Sequence[RecordScanner],
        check_crc: bool,
        window_bytes: int,
        on_damage: OnDamage,
        files: FileLayer,
    ) -> None:
        self.split = split
        self.begin_offset: int | None = None
        self.end_offset: int | None = None
        self.stop = SplitStop.SPLIT_END
        self.damages: list[Damage] = []
        self._on_damage = on_damage
        self._scanners = scanners
        self._batches = 0
        self._timestamp: int | None = None  # of the last two records, the lesser one
        self._check_crc = check_crc
        self._window_bytes = window_bytes
        self._files = files

    @property
    def _scanner(self) -> RecordScanner:
        """The scanner whose last batch is no longer in use."""
        return self._scanners[self._batches % len(self._scanners)]

    @property
    def result(self) -> SplitResult:
        """Result of this scan, for `check_stitches`."""
        return SplitResult(self.split, self.begin_offset, self.end_offset, self.stop)

    def __iter__(self) -> Iterator[RecordColumns]:
        split = self.split
        with open_listed(self._files, split.file.path) as file:
            window = _Window(file, split.file, self._window_bytes, len(self._scanners))
            begin = split.begin if split.is_record_start else window.find(split.begin)
            if begin is not None and begin < split.end:
                self.begin_offset = self.end_offset = begin
                yield from self._walk(window, begin)

    def _walk(self, window: _Window, offset: int) -> Iterator[RecordColumns]:
        """Yield the records from the true record start `offset` on, to the split's end, or to the file's end after a
        blank record.
        """
        split, file_end = self.split, self.split.file.end_offset
        data: npt.NDArray[np.uint8] | None = window.read(offset)
        while data is not None and (offset < split.end or offset == file_end):
            columns = self._scanner.scan(data, offset, check_crc=self._check_crc)
            rows = min(columns.first_fault(), int(np.searchsorted(columns["commit_log_offset"], split.end)))
            if rows:
                columns = first_rows(columns, rows)
                offset = self.end_offset = columns.next_offset
                self._timestamp = int(columns["store_timestamp"][-2:].min())  # one of them may be wrong
                self._batches += 1
                window.keep()
                yield columns
                data = data[columns.consumed :] if columns.stop is ScanStop.FULL else window.read(offset)
            elif is_blank(data, file_end - offset) and not self._is_hiding(window, offset):
                self.end_offset, self.stop, data = file_end, SplitStop.BLANK, None
            elif self._on_damage is OnDamage.END:
                self.stop, data = SplitStop.LOG_END, None
            else:
                data = self._reread_failed(window, offset)
                if data is None and self.damages and self.damages[-1].begin == offset:
                    offset = self.end_offset = self.damages[-1].end
                    data = self._after_damage(window, offset)

    def _reread_failed(self, window: _Window, offset: int) -> npt.NDArray[np.uint8] | None:
        """Read the failed record at `offset` again: its bytes if it proves itself now, else None.

        None means that the log ends here (`stop` is LOG_END), or that the record is damaged: then an error is raised,
        or the damage is the last of `damages`. The order matters: a writer finishes a record before it begins the next
        record. If a later record was seen first, and the failed record fails again after that, the failed record is not
        one that is being written.
        """
        later: tuple[LogFile, int] | None = None
        for attempt in range(_REREADS):
            data = window.read(offset)
            columns = self._scanner.scan(data, offset, check_crc=self._check_crc)
            is_blank_here = is_blank(data, window.log_file.end_offset - offset)
            if columns.first_fault() or (is_blank_here and not self._is_hiding(window, offset)):
                return data
            later = later or self._later_record(window, offset)
            if later is None:
                self.stop = SplitStop.LOG_END
                return None
            if len(self.damages) < _DAMAGES_WITH_PAUSE:
                time.sleep(_REREAD_PAUSE_S * attempt)
        assert later is not None, "the loop ends here only after a later record was found"
        reason = _reason(data, offset)
        later = self._later_record(window, later[1] - 1)
        if later is None:  # the later record was of a sink's batch, which was cut off in the meantime
            self.stop = SplitStop.LOG_END
            return None
        file, later_offset = later
        damage = Damage(
            window.log_file.path,
            offset,
            min(later_offset, window.log_file.end_offset),
            f"{reason}; a whole record follows at offset {later_offset} of "
            f"{os.path.basename(file.path)}, so this is not the log's end: restore the file from a copy",
        )
        if self._on_damage is OnDamage.RAISE:
            raise damage.error()
        self.damages.append(damage)
        return None

    def _after_damage(self, window: _Window, offset: int) -> npt.NDArray[np.uint8] | None:
        """Bytes after skipped damage, from `offset` on; None where the damage reaches the end of the file."""
        if offset < window.log_file.end_offset:
            return window.read(offset)
        self.stop = SplitStop.BLANK
        return None

    def _is_hiding(self, window: _Window, offset: int) -> bool:
        """Whether whole records lie between the blank record at `offset` and the file's end: then it is damage.

        Older records than the last one do not count: RocketMQ cuts a log without zeros, so its next life may leave
        them there. Where no record of the split comes before, only a blank record that begins its file hides others.
        """
        not_before = self._timestamp
        if not_before is None:
            not_before = INT64_MIN if offset == window.log_file.start_offset else INT64_MAX
        return _find_proven(window, offset + BLANK_SIZE, not_before) is not None

    def _later_record(self, window: _Window, offset: int) -> tuple[LogFile, int] | None:
        """File and offset of a record after `offset` that proves itself, body CRC included; None without one."""
        found = _find_proven(window, offset + 1)
        if found is not None:
            return window.log_file, found
        for log_file in numbered_files(self._files, *window.log_file.folders):
            if log_file.start_offset > window.log_file.start_offset:
                with open_listed(self._files, log_file.path) as file:
                    found = _find_proven(_Window(file, log_file, self._window_bytes), log_file.start_offset)
                if found is not None:
                    return log_file, found
        return None


class _Window:
    """Reader of one file into one reused buffer, or into two buffers in turn; offsets are commit log offsets."""

    def __init__(self, file: File, log_file: LogFile, window_bytes: int, buffers: int = 1) -> None:
        self.log_file = log_file
        self._file = file
        self._buffers = [np.empty(min(window_bytes, log_file.size), np.uint8) for _ in range(buffers)]
        self._read_last = self._free = 0

    @property
    def _buffer(self) -> npt.NDArray[np.uint8]:
        return self._buffers[self._free]

    def keep(self) -> None:
        """Keep the bytes of the last read: later reads go into the other buffer, if there is one."""
        self._free = (self._read_last + 1) % len(self._buffers)

    def read(self, offset: int) -> npt.NDArray[np.uint8]:
        """Bytes from `offset` on, valid until the next call: one window, or the whole record if it is longer.

        Of a blank record only the header is read: a gigabyte of zeros may follow it.
        """
        left = self.log_file.end_offset - offset
        self._read_last = self._free
        data = self._read(offset, self._buffer[:BLANK_SIZE])
        if is_blank(data, left):
            return data
        data = self._read(offset, self._buffer)
        size = int.from_bytes(data[:4].tobytes(), "big", signed=True)
        if data.size < size <= left:
            data = self._read(offset, np.empty(size, np.uint8))
        return data

    def find(self, offset: int) -> int | None:
        """Offset of the first record at or after `offset` that its own offset and its neighbours prove; else None.

        Nearly always the record lies in the first window. Otherwise windows overlap so far that a record of 8 MiB is
        found, twice RocketMQ's default limit; a larger record may be missed.
        """
        buffer = self._buffer
        while offset < self.log_file.end_offset and self._file.has_data_from(offset - self.log_file.start_offset):
            data = self._read(offset, buffer)
            found = find_record(data, offset, left=self.log_file.end_offset - offset)
            if found >= 0:
                return offset + found
            if offset + data.size >= self.log_file.end_offset:
                break
            if buffer.size < _SEARCH_BYTES:
                buffer = np.empty(_SEARCH_BYTES, np.uint8)
            else:
                offset += _SEARCH_BYTES // 2
        return None

    def _read(self, offset: int, buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        size = min(buffer.size, self.log_file.end_offset - offset)
        return buffer[: self._file.read_into(offset - self.log_file.start_offset, buffer[:size].data)]


def first_rows(columns: RecordColumns, rows: int) -> RecordColumns:
    """The first `rows` rows of the columns."""
    if rows == columns.rows:
        return columns
    keys = int(np.searchsorted(columns.key_rows, rows))
    return RecordColumns(
        columns.buffer,
        columns.base_offset,
        int(columns["position"][rows]),
        ScanStop.FULL,
        columns.wide[:, :rows],
        columns.narrow[:, :rows],
        columns.queue_rows[: np.searchsorted(columns.queue_rows, rows)],
        columns.key_hashes[:keys],
        columns.key_rows[:keys],
    )


def with_rows(
    columns: RecordColumns,
    wide: npt.NDArray[np.int64],
    narrow: npt.NDArray[np.int32],
    buffer: npt.NDArray[np.uint8] | None = None,
) -> RecordColumns:
    """The columns with other rows (and another buffer if the rows lie in it), without queues and keys."""
    none = np.empty(0, np.int32)
    buffer = columns.buffer if buffer is None else buffer
    return RecordColumns(buffer, columns.base_offset, columns.consumed, columns.stop, wide, narrow, none, none, none)


def _find_proven(window: _Window, offset: int, not_before: int = INT64_MIN) -> int | None:
    """Offset of the first record of a file at or after `offset` that proves itself, body CRC included; else None.

    Records whose store time is before `not_before` (ms) are passed over.

    A file always begins with a record, so a record at the file's start needs no neighbours as proof.
    """
    scanner = RecordScanner(MAX_ROWS, level=ScanLevel.HEADER)
    found = offset if offset == window.log_file.start_offset else window.find(offset)
    while found is not None:
        columns = scanner.scan(window.read(found), found, check_crc=True)
        is_proven = columns["status"] & RecordStatus.BAD_BODY_CRC == 0
        proven = np.flatnonzero(is_proven & (columns["store_timestamp"] >= not_before))
        if proven.size:
            return int(columns["commit_log_offset"][proven[0]])
        found = window.find(found + max(columns.consumed, 1))
    return None


def is_blank(data: npt.NDArray[np.uint8], left: int) -> bool:
    """Whether `data` begins with a blank record: its size must be `left`, the bytes that are left of the file."""
    head = data[:BLANK_SIZE].tobytes()
    return len(head) == BLANK_SIZE and (
        int.from_bytes(head[:4], "big", signed=True) == left
        and int.from_bytes(head[4:], "big", signed=True) == _BLANK_MAGIC
    )


def record_damage(file: LogFile, offset: int, data: npt.NDArray[np.uint8]) -> CorruptRecordError:
    """Error for a record that does not prove itself; `data` are the record's bytes."""
    return CorruptRecordError(file.path, offset, f"{_reason(data, offset)}; restore the file from a copy")


def _reason(data: npt.NDArray[np.uint8], offset: int) -> str:
    """Why the first record of `data` does not prove itself."""
    size = int.from_bytes(data[:4].tobytes(), "big", signed=True)
    if is_blank(data, size):
        return "a blank record, with whole records before the end of the file"
    try:
        found = decode_record(data[: max(size, MIN_RECORD_SIZE)].data)
    except CorruptRecordError as error:
        return error.reason
    return f"own offset: the record lies at {offset}, its PHYSICALOFFSET says {found.commit_log_offset}"
