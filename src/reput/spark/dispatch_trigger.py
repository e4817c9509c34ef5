"""Stream source of `reput dispatch`: it ticks when a log has bytes after the newest mark, and has no rows.

A batch begins at the mark on the disk, not at Spark's checkpoint. So no replay by Spark makes a record count twice, and
a checkpoint is of use only as long as the query runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from reput.errors import DataLossError
from reput.files import DISK
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import DispatchMark, read_marks
from reput.log.tail import LogTail
from reput.spark.short_errors import end_quietly

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Time between ticks for the same position: its bytes may be an unfinished record, or the torn tail of a killed writer.
_AGAIN_AFTER_S = 1.0

Tick = dict[str, int]


class DispatchTriggerSource(DataSource):
    """Format `reput-dispatch`. Options: `path` of a store, `folders` of its log, `marks`: the parent of `config/`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "reput-dispatch"

    def schema(self) -> str:
        """Schema of one column; there are never any rows."""
        return "tick long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the trigger."""
        return DispatchTrigger(self.options)


class DispatchTrigger(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader whose offsets count ticks. With trigger `availableNow` there is one tick: the log is dispatched once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._tail: LogTail | None = None
        self._only: int | None = None
        self._is_available_now = False
        self._ticked_for = -1
        self._quiet_until = 0.0
        end_quietly()

    def initialOffset(self) -> Tick:
        """No ticks yet."""
        return {"ticks": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit by Spark: `LogDispatch` chooses the size of its batches."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Tick once only."""
        self._is_available_now = True

    def latestOffset(self, start: Tick, limit: ReadLimit) -> Tick:
        """One more tick where there are records to dispatch."""
        if self._is_available_now:
            self._only = start["ticks"] + 1 if self._only is None else self._only
            return {"ticks": self._only}
        return {"ticks": start["ticks"] + self._has_work()}

    def _has_work(self) -> bool:
        tail = self._tail = self._tail or LogTail(
            StoreDirectory(self._options["path"], commit_log_path=self._options["folders"])
        )
        marks = read_marks(self._options["marks"], DISK)
        position = (marks[0] if marks else DispatchMark(tail.earliest())).position
        try:
            tail.check(position)
            if not tail.is_written(position.offset):
                return False
        except DataLossError:  # the batch meets it, too, and goes back or raises it
            pass
        if self._ticked_for == position.offset and time.monotonic() < self._quiet_until:
            return False
        self._ticked_for, self._quiet_until = position.offset, time.monotonic() + _AGAIN_AFTER_S
        return True

    def partitions(self, start: Tick, end: Tick) -> Sequence[InputPartition]:
        """One partition, without rows."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """No rows."""
        return iter(())
