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

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import DISK, FileLayer
from reput.formats.java import INT64_MAX
from reput.formats.properties import DELAY_LEVELS_MS
from reput.formats.record import decode_record
from reput.formats.record_layout import BLANK_SIZE, MIN_RECORD_SIZE
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.kernels.records.record_search import GapFinder, Gaps, unknown_times
from reput.log.damages import NO_DAMAGES, Damage
from reput.log.directory import LogFile, numbered_files, open_listed
from reput.log.file_window import WINDOW_BYTES, Bytes, Window, is_blank, size_of
from reput.log.splits import Split, SplitResult, SplitStop

#: Records a batch. Just below a power of two: columns that lie a power of two apart share cache sets, which costs 25 ns
#: a record.
MAX_ROWS = 32_752
#: A record that fails although a later record is whole is read again: its writer may copy bytes out of order.
_REREADS = 4
_REREAD_PAUSE_S = 0.005
#: With more damages than this, failed records are not being written: they are read again once, without a pause.
_DAMAGES_WITH_PAUSE = 8


class OnDamage(Enum):
    """Action of a scan at a record that does not prove itself."""

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
    delays_ms: Sequence[int] = DELAY_LEVELS_MS,
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


def find_end(file: LogFile, files: FileLayer) -> int:
    """Commit log offset after the last record of a file as it is now; only headers are read.

    If the file is damaged, the file's end: whoever reads the records gets the error.
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
    Iterating raises CorruptRecordError as `OnDamage` says, and StoreError if a file cannot be read or retention has
    deleted it.

    Attributes as in `SplitResult`, final after the iteration:
        begin_offset: where the first record starts.
        end_offset: where the next record must start; during the iteration, the end of the last batch.
        stop: why the reading ended. Also BLANK if skipped damage reaches the end of the file.

    Attributes of `OnDamage.SKIP`:
        passed: the damage before and between the records of the last batch; after the iteration, what comes after them.
        damages: all damage up to the last batch, counted; the first of it is kept.
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
        self.passed: list[Damage] = []
        self.damages = NO_DAMAGES
        self._on_damage = on_damage
        self._scanners = scanners
        self._batches = 0
        self._times: tuple[int, int] | None = None  # of the last two records, the lesser one, and the last one
        self._check_crc = check_crc
        self._window_bytes = window_bytes
        self._files = files
        self._finder = GapFinder()

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
            window = Window(file, split.file, self._window_bytes, len(self._scanners))
            begin = split.begin if split.is_record_start else window.find(split.begin)
            if begin is not None and begin < split.end:
                self.begin_offset = self.end_offset = begin
                yield from self._walk(window, begin)

    def _walk(self, window: Window, offset: int) -> Iterator[RecordColumns]:
        """Yield the records from the true record start `offset` on, to the split's end, or to the file's end after a
        blank record.
        """
        split, file_end = self.split, self.split.file.end_offset
        data: Bytes | None = window.read(offset)
        gaps: Sequence[Damage] = ()
        while data is not None and (offset < split.end or offset == file_end):
            columns = self._scanner.scan(data, offset, check_crc=self._check_crc, skips=_positions(gaps, offset))
            rows = min(columns.first_fault(), int(np.searchsorted(columns["commit_log_offset"], split.end)))
            if rows:
                columns = first_rows(columns, rows)
                offset = self.end_offset = columns.next_offset
                gaps = self._pass_over(gaps, offset)
                times = columns["store_timestamp"][-2:]
                self._times = int(times.min()), int(times[-1])  # one of them may be wrong
                self._batches += 1
                window.keep()
                yield columns
                self.passed = []
                data = data[columns.consumed :] if columns.stop is ScanStop.FULL else window.read(offset)
            elif gaps:  # no record follows them in the split, or in what was read
                offset = self.end_offset = gaps[0].end
                gaps = self._pass_over(gaps, offset)
                data = window.read(offset) if offset < file_end else None
                self.stop = SplitStop.BLANK if data is None else self.stop
            elif is_blank(data, file_end - offset) and not self._is_hiding(window, offset):
                self.end_offset, self.stop, data = file_end, SplitStop.BLANK, None
            elif self._on_damage is OnDamage.END:
                self.stop, data = SplitStop.LOG_END, None
            else:
                data, gaps = self._look_again(window, offset)

    def _pass_over(self, gaps: Sequence[Damage], offset: int) -> Sequence[Damage]:
        """Count the damage before an offset as passed over; returns what is after it."""
        passed = [gap for gap in gaps if gap.begin < offset]
        self.passed += passed
        self.damages = self.damages.followed_by(passed)
        return gaps[len(passed) :]

    def _look_again(self, window: Window, offset: int) -> tuple[Bytes | None, Sequence[Damage]]:
        """Read the failed record at `offset` again, and what follows: bytes, and the damage among them.

        The bytes are whole records and this damage, or damage that goes on after them; without damage, anything. None
        means that the log ends here (`stop` is LOG_END). The order matters: a writer finishes a record before it begins
        the next record. If a later record was seen first, and a failed record fails again after that, the failed record
        is not one that is being written. So the window is read twice, whatever number of damages it has.
        """
        later: tuple[LogFile, int] | None = None
        are_many = self.damages.count >= _DAMAGES_WITH_PAUSE
        for attempt in range(2 if are_many else _REREADS):
            if attempt > 1:
                time.sleep(_REREAD_PAUSE_S * (attempt - 1))
            data = window.read(offset, past_blank=True)
            gaps = self._find_gaps(window, data, offset)
            if gaps.end and gaps.begin:
                return data, ()
            if not gaps.end and is_blank(data, window.left(offset)):
                is_hiding = self._is_hiding(window, offset)  # reads into the same bytes
                data = window.read(offset)
                if not is_hiding:
                    return data, ()
            if later is None and gaps.end:
                later = window.log_file, offset + gaps.last
            later = later or self._later_record(window, offset)
            if later is None:
                self.stop = SplitStop.LOG_END
                return None, ()
        assert later is not None, "the loop ends here only after a later record was found"
        if not gaps.end:
            return self._long_damage(window, data, offset, later)
        seen = later[1] if later[0] is window.log_file else INT64_MAX
        certain = gaps.positions[offset + gaps.positions[:, 0] < min(seen, self.split.end)]
        end = gaps.end if len(certain) == len(gaps.positions) else int(gaps.positions[len(certain), 0])
        found = (
            self._damage(window, _reason(data[begin:], offset + begin, window.left(offset + begin)), offset + begin,
                         window.log_file, offset + until)
            for begin, until in certain.tolist()
        )  # fmt: skip
        return data[:end], list(found)

    def _find_gaps(self, window: Window, data: Bytes, offset: int) -> Gaps:
        """Damage among the bytes from `offset` on, and how far they hold nothing but it and whole records."""
        begin, left = window.log_file.start_offset, window.left(offset)
        times = self._times or unknown_times(is_file_begin=offset == begin)
        gaps: Gaps | None = None
        while gaps is None or (gaps.is_cut(data.size) and not window.holds_record(offset + gaps.end)):
            at = 0 if gaps is None else gaps.end
            more = self._finder.find(
                data, offset, at, left=left, file_begin=begin, times=times if gaps is None else gaps.times,
                check_crc=self._check_crc, is_failed=True,
            )  # fmt: skip
            gaps = more if gaps is None else gaps.followed_by(more)
            if gaps.end == at:
                break
        return gaps

    def _long_damage(
        self, window: Window, data: Bytes, offset: int, later: tuple[LogFile, int]
    ) -> tuple[Bytes | None, Sequence[Damage]]:
        """Damage at `offset` that goes on after the bytes in memory, up to a later record that was seen before."""
        reason = _reason(data, offset, window.left(offset))
        found = self._later_record(window, later[1] - 1)
        if found is None:  # the later record was of a sink's batch, which was cut off in the meantime
            self.stop = SplitStop.LOG_END
            return None, ()
        return data[:0], [self._damage(window, reason, offset, *found)]

    def _damage(self, window: Window, reason: str, offset: int, file: LogFile, later_offset: int) -> Damage:
        """Damage from `offset` to the whole record at `later_offset` of a file; raised if it is not skipped."""
        damage = Damage(
            window.log_file.path,
            offset,
            min(later_offset, window.log_file.end_offset),
            f"{reason}; a whole record follows at offset {later_offset} of "
            f"{os.path.basename(file.path)}, so this is not the log's end: restore the file from a copy",
        )
        if self._on_damage is OnDamage.RAISE:
            raise damage.error()
        return damage

    def _is_hiding(self, window: Window, offset: int) -> bool:
        """Whether whole records lie between the blank record at `offset` and the file's end: then it is damage.

        Older records than the last one do not count: RocketMQ cuts a log without zeros, so its next life may leave
        them there. If no record of the split comes before, only a blank record that begins its file hides others.
        """
        times = self._times or unknown_times(is_file_begin=offset == window.log_file.start_offset)
        return window.find_proven(offset + BLANK_SIZE, times[0]) is not None

    def _later_record(self, window: Window, offset: int) -> tuple[LogFile, int] | None:
        """File and offset of a record after `offset` that proves itself, body CRC included; None without one."""
        found = window.find_proven(offset + 1)
        if found is not None:
            return window.log_file, found
        for log_file in numbered_files(self._files, *window.log_file.folders):
            if log_file.start_offset > window.log_file.start_offset:
                with open_listed(self._files, log_file.path) as file:
                    found = Window(file, log_file, self._window_bytes).find_proven(log_file.start_offset)
                if found is not None:
                    return log_file, found
        return None


def _positions(gaps: Sequence[Damage], offset: int) -> npt.NDArray[np.int64] | None:
    """int64[n, 2], begin and end of damage in bytes that begin at a commit log offset; None for none."""
    return np.array([(gap.begin - offset, gap.end - offset) for gap in gaps], np.int64) if gaps else None


def gaps_of(columns: RecordColumns) -> npt.NDArray[np.int64]:
    """int64[n, 2], begin and end of the damage before and between the records of a scan, as positions."""
    begins = columns["position"].astype(np.int64)
    ends = np.append(0, begins + columns["store_size"])[:-1]
    gaps: npt.NDArray[np.int64] = np.stack([ends, begins], axis=1)[ends != begins]
    return gaps


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


def record_damage(file: LogFile, offset: int, data: Bytes) -> CorruptRecordError:
    """Error for a record that does not prove itself; `data` are the record's bytes."""
    return CorruptRecordError(file.path, offset, f"{_reason(data, offset, data.size)}; restore the file from a copy")


def _reason(data: Bytes, offset: int, left: int) -> str:
    """Reason why the first record of `data` does not prove itself; the file has `left` bytes from there on."""
    size = size_of(data)
    if is_blank(data, size):
        return "a blank record, with whole records before the end of the file"
    try:
        found = decode_record(data[: max(size, MIN_RECORD_SIZE)].data)
    except CorruptRecordError as error:
        if not error.reason.startswith("too short: TOTALSIZE"):
            return error.reason
        if size > left:
            return f"too short: TOTALSIZE says {size} bytes, {left} are left"
        return f"inner lengths: TOTALSIZE says {size} bytes, and the parts do not add up to them"
    return f"own offset: the record lies at {offset}, its PHYSICALOFFSET says {found.commit_log_offset}"
