"""The commit log as an export reads it: where a run begins, where a commit ends, and the splits of a commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from reput.errors import DataLossError
from reput.log.clean_exit_check import lost_end
from reput.log.damages import Damage
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import ProvenRange, prove_range
from reput.log.plans.plan_parts import Part, part_bytes, part_range, read_part
from reput.log.resume_points import ResumePoint, TailLimit
from reput.log.scan import OnDamage
from reput.log.selection import Selection
from reput.log.splits import Split, plan_splits
from reput.log.tail import LogTail

#: More than a file of a log has: a split for each file.
_ANY_FILE_BYTES = 1 << 32
#: A range is read in full below this size, as a run that follows a store has: a plan asks every queue.
_SCANNED_BYTES = 64 << 20


class ExportedLog:
    """Log of a store directory that grows, loses files to retention, or is cut while it is exported.

    Args:
        on_damage: whether damage is an error, or is passed over.
    """

    def __init__(self, directory: StoreDirectory, on_damage: OnDamage) -> None:
        self._directory = directory
        self._on_damage = on_damage
        self._tail = LogTail(directory, on_damage=on_damage)
        self._proven: tuple[object, ProvenRange | None] | None = None
        self._is_scanned = False

    def begin(
        self, last: ResumePoint | None, *, fail_on_data_loss: bool
    ) -> tuple[ResumePoint, tuple[tuple[int, int], ...]]:
        """Point at which a run continues after the last commit, and the ranges that are lost before it.

        Raises DataLossError if the log does not have the records after the last commit any more, or has others.
        """
        self._proven, self._is_scanned = None, False
        if last is None:
            return self._tail.earliest(), ()
        try:
            self._tail.check(last)
        except DataLossError as error:
            if fail_on_data_loss:
                raise DataLossError(
                    f"{error}. Export to another folder, which then begins with the log as it is; or give "
                    "--allow-data-loss (fail_on_data_loss=False), and the export continues after it"
                ) from error
            point = self._tail.resume(last)
            return point, ((last.offset, point.offset),)
        return last, ()

    def end(self, begin: ResumePoint, selection: Selection) -> ResumePoint:
        """Point after the last record that follows a point now.

        If consume queues prove the wanted records of many bytes, only what follows the last record that they name is
        read to find it, and not the whole last file.
        """
        if self._tail.near_end(begin.offset, _SCANNED_BYTES) - begin.offset >= _SCANNED_BYTES:
            files = self._directory.log_files()
            proven = self._prove(begin.offset, files[-1].end_offset, selection) if files else None
            if proven is not None and proven.last > begin.offset:
                last = ResumePoint(proven.last)
                end = self._tail.advance(last)
                if end is not last:
                    return end
        return self._tail.advance(begin)

    def _prove(self, begin: int, end: int, selection: Selection) -> ProvenRange | None:
        """Proof of a range by its queues; made once a run, unless the log has got further files."""
        if self._proven is not None:
            asked, proven = self._proven
            if asked == selection.topics and (proven is None or (proven.begin <= begin and end <= proven.end)):
                return proven
        proven = prove_range(self._directory, selection, begin, end)
        self._proven = selection.topics, proven
        return proven

    def lost_end(self, end: ResumePoint) -> tuple[Damage, ...]:
        """Damage of a closed store's log behind a point, its end now; raises it if damage is refused."""
        lost = lost_end(self._directory, end.offset)
        if lost is not None and self._on_damage is OnDamage.RAISE:
            raise lost.error()
        return () if lost is None else (lost,)

    def commit_end(self, begin: ResumePoint, end: ResumePoint, commit_bytes: int, selection: Selection) -> ResumePoint:
        """End of a commit that reads about `commit_bytes`: after the last record of a log file, or `end`."""
        parts = None if self._is_scanned else self.parts(begin.offset, end.offset, selection)
        self._is_scanned = parts is None  # the rest of a run is not planned again for each commit
        begins = np.array([part_range(part)[0] for part in parts or ()], np.int64)
        read = np.cumsum([0, *map(part_bytes, parts or ())])
        for file in self._directory.log_files():
            size = file.end_offset - begin.offset
            if parts is not None:
                size = int(read[np.searchsorted(begins, file.end_offset)])
            if size >= commit_bytes and begin.offset < file.end_offset < end.offset:
                start = ResumePoint(max(begin.offset, file.start_offset))
                stop = self._tail.advance(start, TailLimit(end_offset=file.end_offset))
                return stop if stop.offset > begin.offset else ResumePoint(file.end_offset, begin.last)
        return end

    def splits(self, begin: int, end: int, split_bytes: int) -> list[Split]:
        """Splits from the offset of a record to an end offset, cut as the splits of whole files.

        Raises DataLossError if files of this range were deleted meanwhile.
        """
        if begin >= end:
            return []
        splits = plan_splits(self._directory.log_files(), split_bytes)
        inside = [split for split in splits if split.end > begin and split.begin < end]
        if not inside or inside[0].begin > begin or inside[-1].end < end:
            raise DataLossError(
                f"{self._directory.path}: the log was to be exported from offset {begin} to {end}, and files of this "
                "range were deleted meanwhile: retention is faster than the export"
            )
        inside[0] = replace(inside[0], begin=begin, is_record_start=True)
        inside[-1] = replace(inside[-1], end=end)
        return inside

    def parts(self, begin: int, end: int, selection: Selection) -> list[Part] | None:
        """Parts with the wanted records of a range, as consume queues prove; None if it is better read in full.

        Raises DataLossError as `splits`.
        """
        if end - begin < _SCANNED_BYTES:
            return None
        self.splits(begin, end, _ANY_FILE_BYTES)
        proven = self._prove(begin, end, selection)
        return None if proven is None else proven.parts(begin, end)

    def first_rows(self, selection: Selection, count: int) -> Iterator[pa.RecordBatch]:
        """Read the first `count` rows of the log that a selection wants, or as many as there are."""
        begin = self._tail.earliest()
        end = self.end(begin, selection).offset
        for part in self.parts(begin.offset, end, selection) or self.splits(begin.offset, end, _ANY_FILE_BYTES):
            for batch in read_part(part, selection, self._directory.files):
                yield batch.slice(0, count)
                count -= min(count, batch.num_rows)
                if not count:
                    return
