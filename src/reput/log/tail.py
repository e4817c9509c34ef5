"""LogTail: repeated reads of one growing commit log, each from the point where the last one ended.

A reader that keeps a resume point must expect a changed log when it comes back: retention deletes files at the front,
and a power cut removes records at the end, where other records are written later. So a point identifies the record
before it, and that record is checked before anything is read.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from reput.errors import ConfigError, DataLossError
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import BLANK_SIZE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory, open_listed
from reput.log.resume_points import NO_LIMIT, LastRecord, ResumePoint, TailLimit
from reput.log.scan import MAX_ROWS, OnDamage, SplitScan, scan_split
from reput.log.sink_commits import SinkWatch
from reput.log.splits import Split, SplitStop

#: Bytes of one read. A reader that keeps up with the writer finds little.
_WINDOW_BYTES = 512 << 10
#: Bytes that tell whether a log has come to an offset: zeros do not, but for a body of so many zeros.
PROBE_BYTES = 64 << 10


class LogTail:
    """Reader of the commit log of a store directory from given points; its only state is the list of log files.

    Args:
        on_damage: what `advance` does at damage.

    Every method raises StoreError if a file cannot be read, and StoreFormatError as `StoreDirectory.log_files` does.
    """

    def __init__(self, directory: StoreDirectory, *, on_damage: OnDamage = OnDamage.RAISE) -> None:
        self.directory = directory
        self._on_damage = on_damage
        self._files: list[LogFile] = []
        self._checked_path = ""
        self._checked_offset = -1

    def earliest(self) -> ResumePoint:
        """Resume point of the first record in the files."""
        self._files = self.directory.log_files()
        return ResumePoint(self._files[0].start_offset if self._files else 0)

    def latest(self, newest_ms: int | None = None) -> ResumePoint:
        """Resume point of the log's end now. Of the files, only the last one that begins with a record is scanned.

        Damage in that file, or at the start of the next file, ends the log, too: `advance` from the returned point
        raises the error, or goes on.

        Args:
            newest_ms: a record with a later store timestamp ends the log.
        """

        def last_begun(files: list[LogFile]) -> LogFile | None:
            for file in reversed(files):
                time = self._first_store_timestamp(file)
                if time is not None and (newest_ms is None or time <= newest_ms):
                    return file
            return None

        return self.advance(self._begin_of(last_begun), TailLimit(newest_ms=newest_ms))

    def since(self, timestamp_ms: int) -> ResumePoint:
        """Point of the first record stored at or after a time (ms since 1970); the log's end without such a record.

        The file is chosen by the first record of each file. After a clock was set back, records of the wanted time are
        therefore missed in a file whose successor begins before that time.
        """

        def last_before(files: list[LogFile]) -> LogFile | None:
            found = None
            for file in files:
                time = self._first_store_timestamp(file)
                if time is None or time >= timestamp_ms:
                    break
                found = file
            return found

        return self.advance(self._begin_of(last_before), TailLimit(newest_ms=timestamp_ms - 1))

    def at(self, offset: int) -> ResumePoint:
        """Point of the record that starts at an offset, or of the log's end there. Raises ConfigError otherwise."""
        file = self._file_of(offset)
        if file is None:
            if offset == self._end_offset:
                return ResumePoint(offset)
            raise ConfigError(f"{self._folders}: no file has the offset {offset}; {self._extent}")
        scan = self._scan(Split(file, offset, file.end_offset, is_record_start=True), max_rows=1)
        if next(iter(scan), None) or scan.stop is SplitStop.BLANK or offset == self.latest().offset:
            return ResumePoint(offset)
        search = self._scan(Split(file, offset, file.end_offset, is_record_start=False), max_rows=1)
        next(iter(search), None)
        following = (
            "none follows in this file" if search.begin_offset is None else f"the next is at {search.begin_offset}"
        )
        raise ConfigError(f"{file.path}: no record starts at offset {offset}; {following}")

    def check(self, point: ResumePoint) -> None:
        """Raises DataLossError if a kept point is no longer valid: its file or the record before it is gone."""
        file, last = self._file_of(point.offset), point.last
        if file is None and point.offset != self._end_offset:
            raise DataLossError(
                f"{self._path_of(point.offset)}: the log was to be read on from {point.offset}, and there is "
                f"no such file; {self._extent}"
            )
        file = None if last is None else self._file_of(last.offset)
        if last is None or file is None:
            return  # nothing was read, or its file was deleted after it was read
        with open_listed(self.directory.files, file.path) as opened:
            header = opened.read(last.offset - file.start_offset, last.header_size)
        if zlib.crc32(header) != last.header_crc:
            raise DataLossError(
                f"{file.path}: the record at offset {last.offset} is not the one that was read there: {last}; found: "
                f"{self._found_at(file, last.offset)}. The log was cut and went on with other records, as after a "
                "power cut, or it is the log of another store"
            )

    def check_log(self, point: ResumePoint) -> None:
        """`check`, but for a file that retention has deleted: the log is still the one that was read."""
        if not self._is_before_log(point.offset):
            self.check(point)

    def resume(self, point: ResumePoint) -> ResumePoint:
        """Point to go on from after `check` has refused one: no record twice, and as few as possible left out.

        If retention has deleted the file, the first record in the files. If the log was cut, the first record
        with a later store timestamp than the last record that was read.
        """
        earliest = self.earliest()
        if point.offset < earliest.offset:
            return earliest
        return self.latest() if point.last is None else self.since(point.last.store_timestamp + 1)

    def remainder(self, begin: ResumePoint, end: ResumePoint) -> tuple[int, int]:
        """Offsets (begin, end) of what is left unchanged of a range of the log that `check` refuses now.

        If the log was cut inside the range, the end is the first record stored after the last record at `end`: there
        `resume` goes on.
        """
        earliest = self.earliest()
        if begin.offset < earliest.offset:
            begin = earliest
        if not self.has(begin):
            return begin.offset, begin.offset
        if not self.has(end):
            newest_ms = None if end.last is None else end.last.store_timestamp
            end = self.advance(begin, TailLimit(end_offset=end.offset, newest_ms=newest_ms))
        return begin.offset, max(begin.offset, end.offset)

    def has(self, point: ResumePoint) -> bool:
        """Whether `check` accepts a point."""
        try:
            self.check(point)
        except DataLossError:
            return False
        return True

    def advance(self, begin: ResumePoint, limit: TailLimit = NO_LIMIT) -> ResumePoint:
        """Point after the last of the records that follow `begin` without a gap; `begin` itself if none follows.

        A sink's batch that is not committed ends the log. Without a limit, only the last file that has records is read:
        the files before it end as complete files do, or whoever reads their records finds the damage. If nothing is
        new, 8 bytes are read.

        A record at the log's end whose properties end in a zero byte counts only if another record follows: a live
        store may not have written all of the properties, and the CRC of the body does not cover them.

        Raises CorruptRecordError if a record does not prove itself although a later record does, unless `on_damage`
        skips damage.
        """
        file = self._file_of(begin.offset)
        if file is None or (limit.end_offset is not None and limit.end_offset <= begin.offset):
            return begin
        if not self.is_written(begin.offset) and file.path == self._checked_path:
            return begin
        while True:
            watch = SinkWatch(self.directory.files, self.directory.path)
            end = self._advance(begin, limit.before(watch.begin_offset))
            if end is begin or watch.committed(end.offset) == end.offset:
                return end

    def _advance(self, begin: ResumePoint, limit: TailLimit) -> ResumePoint:
        """`advance` over all records, committed or not."""
        if limit.end_offset is not None and limit.end_offset <= begin.offset:
            return begin
        end = self._walk(begin, limit, OnDamage.END)
        if end is begin and begin.offset != self._checked_offset:
            # Damage, or the log's end? Checked once: most logs end in zeros; other bytes are a record being written.
            end = self._walk(begin, limit, self._on_damage)
            file = self._file_of(begin.offset)
            self._checked_path, self._checked_offset = file.path if file is not None else "", begin.offset
        return end

    def splits(self, begin: int, end: int, split_bytes: int) -> list[Split]:
        """Splits of the log from one record's start to another one's; each split begins at a record's start.

        A range of one file of at most `split_bytes` is one split. A longer range is scanned, and cut at the first
        record after each `split_bytes`. Raises DataLossError if no file has the first or the last byte.
        """
        for offset in (begin, end - 1):
            if self._file_of(offset) is None:
                raise DataLossError(
                    f"{self._path_of(offset)}: the log was to be read from offset {begin} to {end}, and there is no "
                    f"such file; {self._extent}"
                )
        splits = []
        for file in self._files:
            low, high = max(begin, file.start_offset), min(end, file.end_offset)
            if low < high:
                borders = [low]
                if high - low > split_bytes:
                    for columns in self._scan(Split(file, low, high, is_record_start=True), check_crc=False):
                        offsets = columns["commit_log_offset"]
                        while (row := int(np.searchsorted(offsets, borders[-1] + split_bytes))) < columns.rows:
                            borders.append(int(offsets[row]))
                splits += [Split(file, a, b, is_record_start=True) for a, b in pairwise([*borders, high])]
        return splits

    def _begin_of(self, choose: Callable[[list[LogFile]], LogFile | None]) -> ResumePoint:
        """Start of the file that `choose` returns, or the first record in the files if it returns None.

        `choose` gets the files that begin before any sink's batch that is not committed.
        """
        while True:
            watch = SinkWatch(self.directory.files, self.directory.path)
            begin, end = self.earliest(), watch.begin_offset
            file = choose([file for file in self._files if end is None or file.start_offset <= end])
            if file is None:
                return begin
            if watch.committed(file.start_offset) == file.start_offset:
                return ResumePoint(file.start_offset)

    def _walk(self, begin: ResumePoint, limit: TailLimit, on_damage: OnDamage) -> ResumePoint:
        file = self._file_of(begin.offset)
        if limit == NO_LIMIT and on_damage is OnDamage.END:
            file = self._last_begun_file(begin.offset)
        last: _Row | None = None
        rows = end_offset = 0
        while file is not None:
            split = Split(file, max(begin.offset, file.start_offset), file.end_offset, is_record_start=True)
            scan = self._scan(split, on_damage=on_damage)
            for columns in scan:
                taken = limit.rows_within(columns, begin.offset, rows)
                if taken == columns.rows and not is_whole(columns):
                    taken -= 1
                if taken:
                    last = _row(file, columns, taken - 1)
                    end_offset = last.offset + last.size
                    rows += taken
                if taken < columns.rows:
                    return self._point(begin, last, end_offset)
            if scan.stop is not SplitStop.BLANK:
                break
            end_offset = file.end_offset
            file = self._file_of(end_offset)
        return self._point(begin, last, end_offset)

    def _last_begun_file(self, offset: int) -> LogFile | None:
        """The last listed file that has a record, from the file on that contains `offset`."""
        for file in reversed(self._files):
            if file.start_offset <= offset or self._first_store_timestamp(file) is not None:
                return file
        return None

    def _point(self, begin: ResumePoint, last: _Row | None, end_offset: int) -> ResumePoint:
        """The point at `end_offset`, with the last row before it; `begin` if there was no row."""
        return begin if last is None else ResumePoint(end_offset, self._read(last))

    def is_written(self, offset: int, size: int = BLANK_SIZE) -> bool:
        """Whether any of the first bytes from an offset on is not zero: a record begins there, whole or not.

        Also if the log begins later now: retention deletes a file only after the next one was begun.
        """
        file = self._file_of(offset)
        if file is None:
            return self._is_before_log(offset)
        with open_listed(self.directory.files, file.path) as opened:
            return any(opened.read(offset - file.start_offset, size))

    def file_border(self, begin: int, max_bytes: int) -> int | None:
        """Begin of the last log file in (begin, begin + max_bytes], or else of the first one after `begin`.

        None without such a file that begins with a record which no start takes back: then files before it are complete,
        and nothing of them was scanned to know it.
        """
        self._files = self.directory.log_files()
        last = self._last_begun_file(begin)
        watch = SinkWatch(self.directory.files, self.directory.path)
        limit = last.start_offset if last is not None else begin
        if watch.begin_offset is not None:
            limit = min(limit, watch.begin_offset)
        borders = [file.start_offset for file in self._files if begin < file.start_offset <= limit]
        return next((border for border in reversed(borders) if border <= begin + max_bytes), min(borders, default=None))

    def near_end(self, begin: int, step_bytes: int) -> int:
        """Start of a record near the log's end, found by a few short reads.

        Not more than two times `step_bytes` of records follow, if none is longer than `step_bytes`; `begin` is the
        start of a record, too. A body may hold the copy of a record that seems to start there: whoever reads the log
        up to this offset has to find that a record ends there.
        """
        self._files = self.directory.log_files()
        file = self._last_begun_file(begin)
        if file is None or SinkWatch(self.directory.files, self.directory.path).begin_offset is not None:
            return begin
        steps = range(max(begin, file.start_offset), file.end_offset, step_bytes)
        written = bisect_left(steps, True, lo=1, key=lambda offset: not self.is_written(offset, PROBE_BYTES)) - 1
        if written < 2:
            return steps[0]
        search = self._scan(Split(file, steps[written - 1], file.end_offset, is_record_start=False), max_rows=1)
        next(iter(search), None)
        return steps[0] if search.begin_offset is None else search.begin_offset

    def _is_before_log(self, offset: int) -> bool:
        """Whether the log begins after an offset now, as retention has deleted its file."""
        return self._file_of(offset) is None and bool(self._files) and offset < self._files[0].start_offset

    def last_record(self, file: LogFile, columns: RecordColumns) -> LastRecord:
        """The last row of a batch of a file, as a resume point keeps it."""
        return self._read(_row(file, columns, columns.rows - 1))

    def _read(self, row: _Row) -> LastRecord:
        """Read a row's header again: it may have been scanned while it was being written."""
        with open_listed(self.directory.files, row.file.path) as opened:
            header = opened.read(row.offset - row.file.start_offset, row.header_size)
        return LastRecord(row.offset, row.store_timestamp, row.header_size, zlib.crc32(header))

    def _first_store_timestamp(self, file: LogFile) -> int | None:
        """Store timestamp of a file's first record; None without a record that is certainly whole."""
        split = Split(file, file.start_offset, file.end_offset, is_record_start=True)
        columns = next(iter(self._scan(split, max_rows=1)), None)
        return None if columns is None or not is_whole(columns) else int(columns["store_timestamp"][0])

    def _found_at(self, file: LogFile, offset: int) -> str:
        columns = next(iter(self._scan(Split(file, offset, file.end_offset, is_record_start=True), max_rows=1)), None)
        if columns is None:
            return f"no record, and the log ends at offset {self.latest().offset}"
        point = self._point(ResumePoint(offset), _row(file, columns, 0), offset)
        return str(point.last)

    def _scan(
        self, split: Split, *, max_rows: int = MAX_ROWS, check_crc: bool = True, on_damage: OnDamage = OnDamage.END
    ) -> SplitScan:
        return scan_split(
            split,
            level=ScanLevel.HEADER,
            check_crc=check_crc,
            max_rows=max_rows,
            window_bytes=_WINDOW_BYTES,
            on_damage=on_damage,
            files=self.directory.files,
        )

    def _file_of(self, offset: int) -> LogFile | None:
        """The file that contains an offset; the folders are listed again if no file is known or the file is gone."""
        found = self._known_file_of(offset)
        if found is None or not self.directory.files.exists(found.path):
            self._files = self.directory.log_files()
            found = self._known_file_of(offset)
        return found

    def _known_file_of(self, offset: int) -> LogFile | None:
        i = bisect_right(self._files, offset, key=lambda file: file.start_offset) - 1
        return self._files[i] if i >= 0 and offset < self._files[i].end_offset else None

    @property
    def _end_offset(self) -> int:
        """Commit log offset after the last byte of the last file."""
        return self._files[-1].end_offset if self._files else 0

    def _path_of(self, offset: int) -> str:
        """Path of the file that would contain an offset."""
        if not self._files:
            return self._folders
        name = offset_to_file_name(offset - offset % self._files[0].size)
        return os.path.join(self.directory.commit_log_folders[0], name)

    @property
    def _folders(self) -> str:
        return ", ".join(self.directory.commit_log_folders)

    @property
    def _extent(self) -> str:
        if not self._files:
            return "there are no files now"
        return f"the files have {self._files[0].start_offset} to {self._end_offset} now"


class _Row(NamedTuple):
    """Fields of a scanned record that a resume point needs after the record's batch is gone."""

    file: LogFile
    offset: int
    size: int
    store_timestamp: int
    header_size: int


def _row(file: LogFile, columns: RecordColumns, row: int) -> _Row:
    return _Row(
        file,
        int(columns["commit_log_offset"][row]),
        int(columns["store_size"][row]),
        int(columns["store_timestamp"][row]),
        int(columns["body_position"][row] - columns["position"][row]),
    )


def is_whole(columns: RecordColumns) -> bool:
    """Whether the end of the last row's properties has been written; see `LogTail.advance`."""
    end = int(columns["position"][-1] + columns["store_size"][-1])
    return bool(columns["properties_size"][-1] == 0 or columns.buffer[end - 1] != 0)
