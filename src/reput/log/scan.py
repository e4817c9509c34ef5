"""Scanning the commit log's files: a window of bytes after the other, and the judgement where the log ends.

Files are read by `preadv` into one buffer that is used again and again. That is faster than a map, and a file that
shrinks or fails under a reader cannot kill the process.

The reader takes no lock, so it may meet a record that is being written, and on a killed store one that was never
finished. A record counts only if its size, magic code, own offset, inner lengths and body CRC prove it; the first one
that fails ends the log. Unless a later one proves itself: then it is damage, and is told.
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
from reput.formats.record import decode_record
from reput.formats.record_layout import BLANK_SIZE, MIN_RECORD_SIZE, MagicCode
from reput.kernels.columns import RecordColumns, RecordStatus, ScanStop
from reput.kernels.record_scan import DEFAULT_DELAYS_MS, RecordScanner, ScanLevel, find_record
from reput.log.directory import LogFile, numbered_files, open_listed
from reput.log.splits import Split, SplitResult, SplitStop

#: Records a piece. Just below a power of two: columns that lie a power of two apart share cache sets, which costs 25 ns
#: a record.
MAX_ROWS = 32_752
WINDOW_BYTES = 4 << 20
_SEARCH_BYTES = 16 << 20
#: A record that fails although a later one is whole is read again, in case its writer copies bytes out of order.
_REREADS = 4
_REREAD_PAUSE_S = 0.005
#: A log with more damage than this is not one that is being written.
_PATIENT_DAMAGES = 8
_BLANK_MAGIC = int(MagicCode.BLANK)


class OnDamage(Enum):
    """What a scan does at a record that does not prove itself."""

    #: The log ends there, and nobody looks for a later record.
    END = "end"
    #: A CorruptRecordError where a later record proves itself; else the log ends there.
    RAISE = "raise"
    #: On at the later record, and what was passed over is among `SplitScan.damages`; else the log ends there.
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
    look_ahead: bool = False,
    files: FileLayer = DISK,
) -> SplitScan:
    """Scan the records that start in a split; nothing is read before the result is iterated over.

    Args:
        level: what is extracted beside the header.
        check_crc: whether a body must agree with BODYCRC for its record to count.
        max_rows: records a piece, at the most.
        window_bytes: bytes read at once; a longer record is read whole all the same.
        delays_ms, index_tags: as `RecordScanner` takes them.
        on_damage: what a record that does not prove itself means.
        look_ahead: whether a piece is valid until the one behind the next is asked for: another thread may ask for the
            next one meanwhile.
    """
    scanners = [
        RecordScanner(max_rows, level=level, delays_ms=delays_ms, index_tags=index_tags)
        for _ in range(2 if look_ahead else 1)
    ]
    return SplitScan(split, scanners, check_crc, window_bytes, on_damage, files)


class Damage(NamedTuple):
    """Bytes of one file, as commit log offsets, that no record of them proves: up to the next one that does."""

    path: str
    begin: int
    end: int
    reason: str

    def error(self) -> CorruptRecordError:
        """The same as an error."""
        return CorruptRecordError(self.path, self.begin, self.reason)


def find_end(file: LogFile, files: FileLayer) -> int:
    """Commit log offset behind the records that a file has now; only headers are looked at.

    The file's end where there is damage before: who reads the records is told.
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
    """The records of one split, as `scan_split` gives it: an iterable of `RecordColumns`, to be gone through once.

    Each piece is valid until the next one is asked for, or with `look_ahead` the one behind it. Iterating raises
    CorruptRecordError as `OnDamage` says, and StoreError where a file cannot be read, or retention has deleted it.

    Attributes, as `SplitResult` has them, final when the iteration has ended:
        begin_offset: where the first record starts.
        end_offset: where the next record must start; while iterating, the end of the last piece.
        stop: why the reading ended. BLANK also where damage takes the rest of the file, and was skipped.
        damages: what was skipped, up to the last piece.
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
        self._pieces = 0
        self._check_crc = check_crc
        self._window_bytes = window_bytes
        self._files = files

    @property
    def _scanner(self) -> RecordScanner:
        """The one whose piece nobody has."""
        return self._scanners[self._pieces % len(self._scanners)]

    @property
    def result(self) -> SplitResult:
        """What `check_stitches` needs to know."""
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
        """The records from a true start on, up to the split's end, or through the blank record to the file's end."""
        split, file_end = self.split, self.split.file.end_offset
        data: npt.NDArray[np.uint8] | None = window.read(offset)
        while data is not None and (offset < split.end or offset == file_end):
            columns = self._scanner.scan(data, offset, check_crc=self._check_crc)
            rows = min(columns.first_fault(), int(np.searchsorted(columns["commit_log_offset"], split.end)))
            if rows:
                columns = first_rows(columns, rows)
                offset = self.end_offset = columns.next_offset
                self._pieces += 1
                window.keep()
                yield columns
                data = data[columns.consumed :] if columns.stop is ScanStop.FULL else window.read(offset)
            elif is_blank(data, file_end - offset):
                self.end_offset, self.stop, data = file_end, SplitStop.BLANK, None
            elif self._on_damage is OnDamage.END:
                self.stop, data = SplitStop.LOG_END, None
            else:
                data = self._judge(window, offset)
                if data is None and self.damages and self.damages[-1].begin == offset:
                    offset = self.end_offset = self.damages[-1].end
                    data = self._after_damage(window, offset)

    def _judge(self, window: _Window, offset: int) -> npt.NDArray[np.uint8] | None:
        """Read the record at `offset`, which failed, anew: its bytes where it proves itself now, else None.

        Then either the log ends here, or it is damage: an error, or the last one of `damages`. The order matters: a
        writer finishes a record before it begins the next. So if a later one was seen and then the failed one fails
        again, it is no record in the making.
        """
        later: tuple[LogFile, int] | None = None
        for attempt in range(_REREADS):
            data = window.read(offset)
            columns = self._scanner.scan(data, offset, check_crc=self._check_crc)
            if columns.first_fault() or is_blank(data, window.log_file.end_offset - offset):
                return data
            later = later or self._later_record(window, offset)
            if later is None:
                self.stop = SplitStop.LOG_END
                return None
            if len(self.damages) < _PATIENT_DAMAGES:
                time.sleep(_REREAD_PAUSE_S * attempt)
        assert later is not None, "the loop ends here only after a later record was found"
        reason = _reason(data, offset)
        later = self._later_record(window, later[1] - 1)
        if later is None:  # it was of a batch that was taken back meanwhile
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
        """The bytes behind damage; None where it takes the rest of the file."""
        if offset < window.log_file.end_offset:
            return window.read(offset)
        self.stop = SplitStop.BLANK
        return None

    def _later_record(self, window: _Window, offset: int) -> tuple[LogFile, int] | None:
        """File and offset of a record behind `offset` that proves itself, body CRC included."""
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
    """Reads pieces of one file into one buffer, or into two in turns; offsets are those of the commit log."""

    def __init__(self, file: File, log_file: LogFile, window_bytes: int, buffers: int = 1) -> None:
        self.log_file = log_file
        self._file = file
        self._buffers = [np.empty(min(window_bytes, log_file.size), np.uint8) for _ in range(buffers)]
        self._read_last = self._free = 0

    @property
    def _buffer(self) -> npt.NDArray[np.uint8]:
        return self._buffers[self._free]

    def keep(self) -> None:
        """Leave what was read last as it is, as long as the next pieces come from the other buffer, if there is one."""
        self._free = (self._read_last + 1) % len(self._buffers)

    def read(self, offset: int) -> npt.NDArray[np.uint8]:
        """Bytes from `offset` on, valid until the next call: a window, or the record there if that is longer.

        Of a blank record only the head: behind it there may be a gigabyte of nothing, which takes time and cache.
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
        """The first record from `offset` on that proves itself by its place and its neighbours.

        Nearly always it lies in one window. Where not, windows overlap so far that a record of 8 MiB is found, twice
        what RocketMQ allows by default; a larger one may be missed.
        """
        buffer = self._buffer
        while offset < self.log_file.end_offset and self._file.has_data_from(offset - self.log_file.start_offset):
            data = self._read(offset, buffer)
            found = find_record(data, offset)
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
    """The columns cut behind their first `rows` rows."""
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
    """The columns with other rows, and another buffer where these need it; without queues and keys."""
    none = np.empty(0, np.int32)
    buffer = columns.buffer if buffer is None else buffer
    return RecordColumns(buffer, columns.base_offset, columns.consumed, columns.stop, wide, narrow, none, none, none)


def _find_proven(window: _Window, offset: int) -> int | None:
    """The first record of a file from `offset` on that proves itself, body CRC included.

    Where a file begins a record must, so one there needs no neighbours.
    """
    scanner = RecordScanner(MAX_ROWS, level=ScanLevel.HEADER)
    found = offset if offset == window.log_file.start_offset else window.find(offset)
    while found is not None:
        columns = scanner.scan(window.read(found), found, check_crc=True)
        proven = np.flatnonzero(columns["status"] & RecordStatus.BAD_BODY_CRC == 0)
        if proven.size:
            return int(columns["commit_log_offset"][proven[0]])
        found = window.find(found + max(columns.consumed, 1))
    return None


def is_blank(data: npt.NDArray[np.uint8], left: int) -> bool:
    """Whether the blank record lies here: it must fill the file's end."""
    head = data[:BLANK_SIZE].tobytes()
    return len(head) == BLANK_SIZE and (
        int.from_bytes(head[:4], "big", signed=True) == left
        and int.from_bytes(head[4:], "big", signed=True) == _BLANK_MAGIC
    )


def record_damage(file: LogFile, offset: int, data: npt.NDArray[np.uint8]) -> CorruptRecordError:
    """The error of a record that does not prove itself; `data` are its bytes."""
    return CorruptRecordError(file.path, offset, f"{_reason(data, offset)}; restore the file from a copy")


def _reason(data: npt.NDArray[np.uint8], offset: int) -> str:
    """Why the first record of `data` does not prove itself."""
    size = int.from_bytes(data[:4].tobytes(), "big", signed=True)
    try:
        found = decode_record(data[: max(size, MIN_RECORD_SIZE)].data)
    except CorruptRecordError as error:
        return error.reason
    return f"own offset: the record lies at {offset}, its PHYSICALOFFSET says {found.commit_log_offset}"
