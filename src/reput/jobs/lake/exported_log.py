"""The commit log as an export reads it: where a run begins, where a commit ends, and the splits of a commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from reput.errors import DataLossError
from reput.log.damages import Damage
from reput.log.directory import StoreDirectory
from reput.log.lost_end import lost_end
from reput.log.positions import LogPosition, TailLimit
from reput.log.reads.reader import read_split
from reput.log.scan import OnDamage
from reput.log.selection import Selection
from reput.log.splits import Split, plan_splits
from reput.log.tail import LogTail

#: More than a file of a log has: a split for each file.
_ANY_FILE_BYTES = 1 << 32


class ExportedLog:
    """Log of a store directory that grows, loses files to retention, or is cut while it is exported.

    Args:
        on_damage: whether damage is an error, or is passed over.
    """

    def __init__(self, directory: StoreDirectory, on_damage: OnDamage) -> None:
        self._directory = directory
        self._on_damage = on_damage
        self._tail = LogTail(directory, on_damage=on_damage)

    def begin(
        self, last: LogPosition | None, *, fail_on_data_loss: bool
    ) -> tuple[LogPosition, tuple[tuple[int, int], ...]]:
        """Position at which a run continues after the last commit, and the ranges that are lost before it.

        Raises DataLossError where the log does not have the records after the last commit any more, or has others.
        """
        if last is None:
            return self._tail.earliest(), ()
        try:
            self._tail.check(last)
        except DataLossError as error:
            if fail_on_data_loss:
                raise DataLossError(
                    f"{error}. Export to another folder, which then begins with the log as it is; or allow the loss, "
                    "and the export continues after it"
                ) from error
            position = self._tail.resume(last)
            return position, ((last.offset, position.offset),)
        return last, ()

    def end(self, begin: LogPosition) -> LogPosition:
        """Position after the last record that follows a position now."""
        return self._tail.advance(begin)

    def lost_end(self, end: LogPosition) -> tuple[Damage, ...]:
        """Damage of a closed store's log behind a position, its end now; raises it if damage is refused."""
        lost = lost_end(self._directory, end.offset)
        if lost is not None and self._on_damage is OnDamage.RAISE:
            raise lost.error()
        return () if lost is None else (lost,)

    def commit_end(self, begin: LogPosition, end: LogPosition, commit_bytes: int) -> LogPosition:
        """End of a commit of about `commit_bytes`: after the last record of a log file, or `end`."""
        for file in self._directory.log_files():
            if begin.offset + commit_bytes <= file.end_offset < end.offset:
                start = LogPosition(max(begin.offset, file.start_offset))
                stop = self._tail.advance(start, TailLimit(end_offset=file.end_offset))
                return stop if stop.offset > begin.offset else LogPosition(file.end_offset, begin.last)
        return end

    def splits(self, begin: int, end: int, split_bytes: int) -> list[Split]:
        """Splits from the offset of a record to an end offset, cut as those of whole files.

        Raises DataLossError where files of this range were deleted meanwhile.
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

    def first_rows(self, selection: Selection, count: int) -> Iterator[pa.RecordBatch]:
        """Read the first `count` rows of the log that a selection wants, or as many as there are."""
        begin = self._tail.earliest()
        for split in self.splits(begin.offset, self.end(begin).offset, _ANY_FILE_BYTES):
            for batch in read_split(split, selection, files=self._directory.files):
                yield batch.slice(0, count)
                count -= min(count, batch.num_rows)
                if not count:
                    return
