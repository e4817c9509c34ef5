"""Zones: ranges of the log that begin and end at records, with the bounds of their timestamps; found by a walk.

A walk reads the record headers of one file from a true record start on. Nothing else shows where the log ends and where
its records begin: content can forge the rest. A walk takes 0.1 s for a million records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK, FileLayer
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import NO_DAMAGES, Damages
from reput.log.damages import joined as joined_damages
from reput.log.directory import LogFile
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitStop

#: Columns of `Walk.zones`. A zone without records has the largest int64 as minimum and the smallest as maximum.
BEGIN, END, MIN_STORE_MS, MAX_STORE_MS, MIN_BORN_MS, MAX_BORN_MS = range(6)
_NO_TIMES = (np.iinfo(np.int64).max, np.iinfo(np.int64).min) * 2


class Walk(NamedTuple):
    """Result of a walk through one file.

    Attributes:
        file: the file.
        zones: int64[n, 6], adjacent and in log order; times in ms.
        last_record: offset of the last record; -1 without a record.
        goes_on: whether the log goes on in the next file.
        damages: bytes that were skipped because no record proves them.
    """

    file: LogFile
    zones: npt.NDArray[np.int64]
    last_record: int
    goes_on: bool
    damages: Damages = NO_DAMAGES

    @property
    def end(self) -> int:
        """Log offset after the last record, or the file's end if the log goes on."""
        return int(self.zones[-1, END]) if self.zones.size else self.file.start_offset


def walk(
    file: LogFile,
    zone_bytes: int,
    *,
    begin: int | None = None,
    end_offset: int | None = None,
    flushed_ms: int | None = None,
    on_damage: OnDamage = OnDamage.RAISE,
    files: FileLayer = DISK,
) -> Walk:
    """Walk a file; a zone ends at the first record at least `zone_bytes` after the zone's begin.

    Args:
        begin: where to start, a record's start; None: the file's start.
        end_offset: commit log offset at which the log ends, whatever follows it; None: where its records end.
        flushed_ms: a record with a later store timestamp ends the log.

    Raises CorruptRecordError as `OnDamage` says.
    """
    start = file.start_offset if begin is None else begin
    last = file.end_offset if end_offset is None else min(file.end_offset, end_offset)
    split = Split(file, start, last, is_record_start=True)
    scan = scan_split(split, level=ScanLevel.HEADER, on_damage=on_damage, files=files)
    zones: list[list[int]] = []
    end, last_record, was_cut = start, -1, False
    for columns in scan:
        rows = columns.rows
        if flushed_ms is not None and (columns["store_timestamp"] > flushed_ms).any():
            rows, was_cut = int(np.argmax(columns["store_timestamp"] > flushed_ms)), True
        if rows:
            _add_rows(zones, columns, rows, zone_bytes, start)
            last_record = int(columns["commit_log_offset"][rows - 1])
        end = int(columns["commit_log_offset"][rows]) if was_cut else columns.next_offset
        if was_cut:
            break
    if not was_cut and scan.end_offset is not None:
        end = scan.end_offset
    if zones:
        zones[-1][END] = end
    elif end > start:
        zones.append([start, end, *_NO_TIMES])
    array = np.array(zones, np.int64).reshape(-1, 6)
    return Walk(file, array, last_record, scan.stop is SplitStop.BLANK and not was_cut, scan.damages)


def _add_rows(zones: list[list[int]], columns: RecordColumns, rows: int, zone_bytes: int, start: int) -> None:
    """Add records to the last zone, and begin new zones after `zone_bytes` each."""
    offsets = columns["commit_log_offset"][:rows]
    if not zones:
        zones.append([start, start, *_NO_TIMES])
    row = 0
    while row < rows:
        zone = zones[-1]
        cut = int(np.searchsorted(offsets, zone[BEGIN] + zone_bytes))
        if cut > row:
            for name, least in (("store_timestamp", MIN_STORE_MS), ("born_timestamp", MIN_BORN_MS)):
                times = columns[name][row : min(cut, rows)]
                zone[least] = min(zone[least], int(times.min()))
                zone[least + 1] = max(zone[least + 1], int(times.max()))
        if cut >= rows:
            break
        row = max(cut, row)
        zone[END] = int(offsets[row])
        zones.append([int(offsets[row]), int(offsets[row]), *_NO_TIMES])


def joined(walks: Sequence[Walk]) -> Walk:
    """One walk of two that follow each other in one file."""
    first, second = walks
    last = second.last_record if second.last_record >= 0 else first.last_record
    zones = np.concatenate([first.zones, second.zones])
    return Walk(first.file, zones, last, second.goes_on, joined_damages((first.damages, second.damages)))


def splits_of_zones(file: LogFile, zones: npt.NDArray[np.int64], size: int) -> list[Split]:
    """Splits of zones; adjacent zones are joined until a split is at least `size` bytes long."""
    splits: list[Split] = []
    for begin, end in zones[:, [BEGIN, END]].tolist():
        last = splits[-1] if splits else None
        if last is not None and last.end == begin and last.end - last.begin < size:
            splits[-1] = Split(file, last.begin, end, True)
        else:
            splits.append(Split(file, begin, end, True))
    return splits
