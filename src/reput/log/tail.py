"""LogTail: one commit log, for a reader who comes again and again and goes on where he was.

Whoever keeps a position for long must expect another log when he comes back: retention deletes files from the front,
and a power cut takes records from the end, in whose place others come to lie. So a position carries what tells the
record before it from any other, and is checked before anything is read from there.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from reput.errors import ConfigError, DataLossError
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import BLANK_SIZE
from reput.kernels.columns import RecordColumns
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory, open_listed
from reput.log.positions import NO_LIMIT, LastRecord, LogPosition, TailLimit
from reput.log.scan import MAX_ROWS, OnDamage, SplitScan, scan_split
from reput.log.sink_commits import SinkWatch
from reput.log.splits import Split, SplitStop

#: What a reader finds who keeps up is small.
_WINDOW_BYTES = 512 << 10


class LogTail:
    """Walks the commit log of a store directory from given positions; keeps nothing but the list of its files.

    `on_damage` says what `advance` does at damage.

    Every method raises StoreError where a file cannot be read, and StoreFormatError as `StoreDirectory.log_files`.
    """

    def __init__(self, directory: StoreDirectory, *, on_damage: OnDamage = OnDamage.RAISE) -> None:
        self.directory = directory
        self._on_damage = on_damage
        self._files: list[LogFile] = []
        self._judged_path = ""
        self._judged_offset = -1

    def earliest(self) -> LogPosition:
        """The first record that is there."""
        self._files = self.directory.log_files()
        return LogPosition(self._files[0].start_offset if self._files else 0)

    def latest(self, newest_ms: int | None = None) -> LogPosition:
        """Where the log ends now. Looks at the last file that begins with a record; the others are not touched.

        Damage in that file, or where the next one begins, ends it, too: `advance` from there tells it, or goes on.

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

    def since(self, timestamp_ms: int) -> LogPosition:
        """The first record that was stored at or after a time; the log's end where there is none.

        The file is found by the first records of all files. So after a clock that was set back, what a file has of the
        wanted time is passed over where the next file begins before it.
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

    def at(self, offset: int) -> LogPosition:
        """The record that starts at an offset, or the log's end. Raises ConfigError where neither is there."""
        file = self._file_of(offset)
        if file is None:
            if offset == self._end_offset:
                return LogPosition(offset)
            raise ConfigError(f"{self._folders}: no file has the offset {offset}; {self._extent}")
        scan = self._scan(Split(file, offset, file.end_offset, is_record_start=True), max_rows=1)
        if next(iter(scan), None) or scan.stop is SplitStop.BLANK or offset == self.latest().offset:
            return LogPosition(offset)
        search = self._scan(Split(file, offset, file.end_offset, is_record_start=False), max_rows=1)
        next(iter(search), None)
        following = (
            "none follows in this file" if search.begin_offset is None else f"the next is at {search.begin_offset}"
        )
        raise ConfigError(f"{file.path}: no record starts at offset {offset}; {following}")

    def check(self, position: LogPosition) -> None:
        """Raises DataLossError if a position of before is none now: its file is gone, or the record before it."""
        file, last = self._file_of(position.offset), position.last
        if file is None and position.offset != self._end_offset:
            raise DataLossError(
                f"{self._path_of(position.offset)}: the log was to be read on from {position.offset}, and there is "
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

    def resume(self, position: LogPosition) -> LogPosition:
        """Where to go on after `check` has refused a position: nothing twice, and no more left out than is lost.

        Where retention was faster, it is the first record that is there. Where the log was cut, it is the first one
        stored after the last that was read, by the store's clock.
        """
        earliest = self.earliest()
        if position.offset < earliest.offset:
            return earliest
        return self.latest() if position.last is None else self.since(position.last.store_timestamp + 1)

    def remainder(self, begin: LogPosition, end: LogPosition) -> tuple[int, int]:
        """Of a part of the log that `check` refuses now, the offsets between which it is what it was.

        Where the log was cut in between, that is up to the first record stored after the last one at `end`: there
        `resume` goes on.
        """
        earliest = self.earliest()
        if begin.offset < earliest.offset:
            begin = earliest
        if not self._has(begin):
            return begin.offset, begin.offset
        if not self._has(end):
            newest_ms = None if end.last is None else end.last.store_timestamp
            end = self.advance(begin, TailLimit(end_offset=end.offset, newest_ms=newest_ms))
        return begin.offset, max(begin.offset, end.offset)

    def _has(self, position: LogPosition) -> bool:
        try:
            self.check(position)
        except DataLossError:
            return False
        return True

    def advance(self, begin: LogPosition, limit: TailLimit = NO_LIMIT) -> LogPosition:
        """Where the records end that prove themselves, one behind the other from `begin` on; `begin` where none does.

        A batch of a sink that is not committed ends the log. Without a limit, files whose successor has records are not
        read: they end as files do, or whoever reads them finds the damage. Where nothing is new, 8 bytes are read.

        A record at the log's end whose properties end in a zero byte counts only when another one follows: a live
        store may not have written the rest, which the CRC of the body does not cover.

        Raises CorruptRecordError where a record does not prove itself, and a later one does, unless damage is skipped.
        """
        file = self._file_of(begin.offset)
        if file is None or (limit.end_offset is not None and limit.end_offset <= begin.offset):
            return begin
        if not self.is_written(begin.offset) and file.path == self._judged_path:
            return begin
        while True:
            watch = SinkWatch(self.directory.files, self.directory.path)
            end = self._advance(begin, limit.before(watch.begin_offset))
            if end is begin or watch.committed(end.offset) == end.offset:
                return end

    def _advance(self, begin: LogPosition, limit: TailLimit) -> LogPosition:
        """`advance` to what is there, committed or not."""
        if limit.end_offset is not None and limit.end_offset <= begin.offset:
            return begin
        end = self._walk(begin, limit, OnDamage.END)
        if end is begin and begin.offset != self._judged_offset:
            # Damage, or the log's end? Told once: zeros end most logs, and other bytes a record in the making.
            end = self._walk(begin, limit, self._on_damage)
            file = self._file_of(begin.offset)
            self._judged_path, self._judged_offset = file.path if file is not None else "", begin.offset
        return end

    def splits(self, begin: int, end: int, split_bytes: int) -> list[Split]:
        """The log from one record's start to another one's as splits, each of which begins at a record's start.

        A file that holds at most `split_bytes` of it is one split; a larger part is walked, and cut at the first record
        behind so many bytes. Raises DataLossError where no file has the first or the last byte.
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

    def _begin_of(self, choose: Callable[[list[LogFile]], LogFile | None]) -> LogPosition:
        """The begin of the file that is chosen of those that begin before any batch of a sink that is not committed.

        Without one it is the first record that is there.
        """
        while True:
            watch = SinkWatch(self.directory.files, self.directory.path)
            begin, end = self.earliest(), watch.begin_offset
            file = choose([file for file in self._files if end is None or file.start_offset <= end])
            if file is None:
                return begin
            if watch.committed(file.start_offset) == file.start_offset:
                return LogPosition(file.start_offset)

    def _walk(self, begin: LogPosition, limit: TailLimit, on_damage: OnDamage) -> LogPosition:
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
                    return self._position(begin, last, end_offset)
            if scan.stop is not SplitStop.BLANK:
                break
            end_offset = file.end_offset
            file = self._file_of(end_offset)
        return self._position(begin, last, end_offset)

    def _last_begun_file(self, offset: int) -> LogFile | None:
        """The last known file that has a record, from the one on that an offset lies in."""
        for file in reversed(self._files):
            if file.start_offset <= offset or self._first_store_timestamp(file) is not None:
                return file
        return None

    def _position(self, begin: LogPosition, last: _Row | None, end_offset: int) -> LogPosition:
        """The position at `end_offset` behind a row; `begin` where there was none."""
        return begin if last is None else LogPosition(end_offset, self._read(last))

    def is_written(self, offset: int) -> bool:
        """Whether something, if not a whole record, begins at an offset: 8 bytes are read."""
        file = self._file_of(offset)
        if file is None:
            return False
        with open_listed(self.directory.files, file.path) as opened:
            return any(opened.read(offset - file.start_offset, BLANK_SIZE))

    def last_record(self, file: LogFile, columns: RecordColumns) -> LastRecord:
        """The last row of a piece of a file, as a position keeps it."""
        return self._read(_row(file, columns, columns.rows - 1))

    def _read(self, row: _Row) -> LastRecord:
        """Read anew: it may have been scanned while it was being written."""
        with open_listed(self.directory.files, row.file.path) as opened:
            header = opened.read(row.offset - row.file.start_offset, row.header_size)
        return LastRecord(row.offset, row.store_timestamp, row.header_size, zlib.crc32(header))

    def _first_store_timestamp(self, file: LogFile) -> int | None:
        """That of a file's first record; None where no record that is whole for certain starts there."""
        split = Split(file, file.start_offset, file.end_offset, is_record_start=True)
        columns = next(iter(self._scan(split, max_rows=1)), None)
        return None if columns is None or not is_whole(columns) else int(columns["store_timestamp"][0])

    def _found_at(self, file: LogFile, offset: int) -> str:
        columns = next(iter(self._scan(Split(file, offset, file.end_offset, is_record_start=True), max_rows=1)), None)
        if columns is None:
            return f"no record, and the log ends at offset {self.latest().offset}"
        position = self._position(LogPosition(offset), _row(file, columns, 0), offset)
        return str(position.last)

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
        """The file that an offset lies in; the folders are listed where none is known, or it is gone."""
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
        """Behind the last file's last byte."""
        return self._files[-1].end_offset if self._files else 0

    def _path_of(self, offset: int) -> str:
        """Of the file that an offset would lie in."""
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
    """What is needed of a scanned record when its piece is gone."""

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
    """Whether the last row has the end of its properties; see `LogTail.advance`."""
    end = int(columns["position"][-1] + columns["store_size"][-1])
    return bool(columns["properties_size"][-1] == 0 or columns.buffer[end - 1] != 0)
