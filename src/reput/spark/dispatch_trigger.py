"""The stream source of `reput dispatch`: it ticks when a log has something behind the newest mark, and carries no rows.

Where a batch begins is what the mark on the disk says, not what Spark's checkpoint says: so nothing that Spark replays,
forgets or keeps can make a record count twice, and a checkpoint need not live longer than the query.
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

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: What is written there may be a record in the making, or the torn end of a log whose writer is dead: so often then.
_AGAIN_AFTER_S = 1.0

Tick = dict[str, int]


class DispatchTriggerSource(DataSource):
    """The format `reput-dispatch`; options: `path` of a store, `folders` of its log, `marks`: where `config/` is."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "reput-dispatch"

    def schema(self) -> str:
        """One column, which no row ever has."""
        return "tick long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The trigger."""
        return DispatchTrigger(self.options)


class DispatchTrigger(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets count the ticks. For a trigger `availableNow` there is one, so that what is there is dispatched once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._tail: LogTail | None = None
        self._only: int | None = None
        self._is_available_now = False
        self._ticked_for = -1
        self._quiet_until = 0.0

    def initialOffset(self) -> Tick:
        """None yet."""
        return {"ticks": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch dispatches is not Spark's to say."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Tick once."""
        self._is_available_now = True

    def latestOffset(self, start: Tick, limit: ReadLimit) -> Tick:
        """One more tick where there is something to do."""
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
        except DataLossError:  # the batch finds it too, and goes back, or tells it
            pass
        if self._ticked_for == position.offset and time.monotonic() < self._quiet_until:
            return False
        self._ticked_for, self._quiet_until = position.offset, time.monotonic() + _AGAIN_AFTER_S
        return True

    def partitions(self, start: Tick, end: Tick) -> Sequence[InputPartition]:
        """None has rows."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """No rows."""
        return iter(())
