"""Stream source of `dispatch`, without rows: its offsets are offsets of the logs.

The driver's function of a micro-batch runs the jobs that read the log, from the mark on the disk on. So no replay by
Spark makes a record count twice, and a checkpoint is of use only as long as the query runs. The offsets are Spark's way
to know when there is work, and what its page and `StreamingQueryProgress` show: a batch is from `dispatched` to
`offset`, and the lag is from there to the latest offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from reput.errors import StoreError
from reput.files import DISK
from reput.jobs.dispatch.plan import MOST_BYTES
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import DispatchMark, read_marks
from reput.log.resume_points import ResumePoint
from reput.log.tail import LogTail
from reput.spark.compat import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow, for_this_minor
from reput.spark.short_errors import end_quietly
from reput.spark.stream_offset import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Time between batches for the same point: its bytes may be an unfinished record, the torn tail of a killed writer,
#: or a sink's batch that was cut off while it was read.
_AGAIN_AFTER_S = 1.0


class DispatchSource(DataSource):
    """Format `reput-dispatch`.

    Option `logs`: JSON list of objects with the path of a store, the folder of its log (null: the store's own), and the
    parent of the marks.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "reput-dispatch"

    def schema(self) -> str:
        """Schema of one column; there are never any rows."""
        return "store string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader."""
        return for_this_minor(DispatchStreamReader(self.options))


class DispatchStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of the offsets of some logs. With trigger `availableNow` they end where the logs end at its start."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._targets: dict[str, int] | None = None
        end_quietly()

    @cached_property
    def _logs(self) -> dict[str, _FollowedLog]:
        return {entry["path"]: _FollowedLog(**entry) for entry in json.loads(self._options["logs"])}

    def initialOffset(self) -> StreamOffset:
        """Begin of the first batch of each log."""
        return {path: {"offset": log.point.offset} for path, log in self._logs.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit by Spark: the size of batches is the dispatcher's."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of each log as the end of the batches."""
        self._targets = {path: log.end() for path, log in self._logs.items()}

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """End of the next batch; `start` without anything to dispatch."""
        targets = self._targets
        return {
            path: log.next_entry(start[path], None if targets is None else targets[path])
            for path, log in self._logs.items()
        }

    def latest_without_start(self) -> StreamOffset:
        """End of the first batch: no checkpoint outlives a query."""
        return self.latestOffset(self.initialOffset(), ReadAllAvailable())

    def check_restart(self, start: StreamOffset, end: StreamOffset) -> None:
        """Nothing to check: see `latest_without_start`."""

    def reportLatestOffset(self) -> StreamOffset:
        """Ends of the logs as they are now: the lag is from a batch's end to these ends."""
        return {path: {"offset": log.end()} for path, log in self._logs.items()}

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """No partition."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """No rows."""
        return iter(())


class _FollowedLog:
    """Log of a store, and the marks of its dispatcher."""

    def __init__(self, path: str, commit_log_path: str | None, marks: str) -> None:
        self._tail = LogTail(StoreDirectory(path, commit_log_path=commit_log_path))
        self._marks = marks
        self._end = ResumePoint(-1)
        self._again_for = -1
        self._again_at = 0.0

    @property
    def point(self) -> ResumePoint:
        """Point of the newest mark; the log's begin without one."""
        marks = read_marks(self._marks, DISK)
        return (marks[0] if marks else DispatchMark(self._tail.earliest())).point

    def end(self) -> int:
        """Commit log offset after the last record that is there; the newest mark's, if the log does not go on there."""
        point = self.point
        if self._end.offset < point.offset:
            self._end = point
        try:
            self._tail.check(self._end)
            self._end = self._tail.advance(self._end)
        except StoreError:  # the batch meets it, too, and goes back or raises it
            self._end = point
        return self._end.offset

    def next_entry(self, entry: dict[str, Any], target: int | None) -> dict[str, Any]:
        """Entry of the next batch's end; `entry` without one.

        Args:
            entry: of the batch before.
            target: commit log offset at which the batches end; None: they go on with the log.
        """
        point = self.point
        if target is not None:
            return _entry(point, target) if point.offset < target else entry
        following = _entry(point, max(self._border(point), point.offset))
        is_tried = entry.items() >= following.items()  # that batch has dispatched nothing
        if following["offset"] > point.offset and not is_tried:
            return following
        return following | {"tries": entry.get("tries", 0) + 1} if self._is_due(point) else entry

    def _border(self, point: ResumePoint) -> int:
        """End of the batch that begins at a mark; the mark's offset or less if the log does not go on there."""
        try:
            self._tail.check(point)
            border = self._tail.file_border(point.offset, MOST_BYTES)
        except StoreError:
            return point.offset
        return border or self.end()

    def _is_due(self, point: ResumePoint) -> bool:
        """Whether to try a batch, once in a while: there are bytes, or the log is not the one that was dispatched."""
        try:
            self._tail.check(point)
            has_bytes = self._tail.is_written(point.offset)
        except StoreError:
            has_bytes = True
        now = time.monotonic()
        if not has_bytes or (self._again_for == point.offset and now < self._again_at):
            return False
        self._again_for, self._again_at = point.offset, now + _AGAIN_AFTER_S
        return True


def _entry(point: ResumePoint, end: int) -> dict[str, Any]:
    return {"offset": end, "dispatched": point.offset}
