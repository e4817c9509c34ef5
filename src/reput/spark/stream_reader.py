"""Stream reader: micro-batches of the commit logs of one or more stores.

Spark's planner keeps one reader in a separate process as long as the query runs. It asks for the latest offset every
10 ms, and for the splits of each batch; tasks read the splits. Only the offset is state: a query that is started again
from its checkpoint plans the same batch again, and its tasks read the same rows.

Rows come only from records that were proven when the batch was planned. A task that finds fewer records than planned
fails: the log was cut meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from reput.errors import ConfigError, CorruptRecordError, DataLossError, ReputError, StoreError
from reput.files import DISK
from reput.log.reads.batches import read_scan
from reput.log.resume_points import ResumePoint, TailLimit
from reput.log.scan import scan_split
from reput.log.selection import Selection, make_selection, milliseconds, on_damage_of
from reput.log.splits import Split
from reput.log.stores import find_stores, store_names
from reput.log.tail import LogTail
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.spark.compat import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from reput.spark.daemon import freeze_worker
from reput.spark.schema import column_names
from reput.spark.short_errors import without_traceback
from reput.spark.stream_offset import FIRST, StreamOffset, begin_of, from_json, to_json
from reput.spark.stream_options import EARLIEST, LATEST, StreamOptions, parse_stream_options

if TYPE_CHECKING:
    import pyarrow as pa

#: Least log bytes that are worth a task.
_MIN_SPLIT_BYTES = 8 << 20
#: Where the text of a loss begins to say what to do.
NEW_CHECKPOINT = ". Begin with a new checkpoint"

_LIMITS = ("max_bytes", "max_rows")

logger = logging.getLogger("reput.spark")


class StreamPartition(InputPartition):
    """Split of one task, which begins at a record, and the value of the column `store`."""

    def __init__(self, split: Split, store: str) -> None:
        super().__init__(split)
        self.split = split
        self.store = store


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of some columns of growing commit logs, made of Spark's options and the user's schema.

    Its methods raise ConfigError for a wrong option or column, and if these contradict the stores or the checkpoint;
    DataLossError if records are lost and `failOnDataLoss` is true; and errors of `LogTail`. The constructor raises
    no error: Spark would hide it by an error of its own.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options), schema
        self._ends: dict[str, ResumePoint] = {}
        self._latest: dict[str, ResumePoint] = {}
        self._targets: dict[str, int] = {}

    @cached_property
    def _options(self) -> StreamOptions:
        return parse_stream_options(self._given[0])

    @cached_property
    def _logs(self) -> dict[str, LogTail]:
        """Tails of the stores' logs, in the order of their paths."""
        options = self._options
        stores = find_stores(options.path, commit_log_path=options.commit_log_path)
        if options.store is not None and len(stores) > 1:
            raise ConfigError(f"option store: {options.store!r} cannot name all of {len(stores)} stores")
        stores.sort(key=lambda store: store.path)
        warn_of_unknown_topics(options.topics, *stores)
        return {store.path: LogTail(store, on_damage=on_damage_of(options.mode)) for store in stores}

    @without_traceback
    def initialOffset(self) -> StreamOffset:
        """Empty offset: the end of a store's first batch holds its begin, which so is the same after a restart."""
        self._selection("")  # raises for wrong columns before anything is read
        return {}

    @without_traceback
    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit of a batch by the options."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of each log as the end of the batches."""
        for path, log in self._logs.items():
            self._targets[path] = log.latest(self._newest_ms(log)).offset

    @without_traceback
    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """End of the next batch; `start` without new records. Stores share the limit equally."""
        for path in start:
            self._log(path)
        return {path: self._next_entry(path, start.get(path), limit) for path in self._logs}

    @without_traceback
    def latest_without_start(self) -> StreamOffset:
        """End of a batch whose start Spark below 4.2 has not told: where the logs end now, after any start."""
        return {path: self._end_without_start(log) for path, log in self._logs.items()}

    @without_traceback
    def check_restart(self, start: StreamOffset, end: StreamOffset) -> None:
        """Raise ConfigError if the checkpoint has a store that `end`, of `latest_without_start`, would forget.

        Records that are lost are told as by `latestOffset`.
        """
        for path, entry in start.items():
            self._checked(self._log(path), from_json(entry))

    def reportLatestOffset(self) -> StreamOffset:
        """Ends of the logs as they are now, for the query's progress: the lag is from a batch's end to these ends."""
        for path, end in self._ends.items():
            log, latest = self._logs[path], self._latest.get(path, end)
            try:
                log.check(latest)
                self._latest[path] = log.advance(latest, TailLimit(newest_ms=self._newest_ms(log)))
            except StoreError:  # the next `latestOffset` meets it, too, and raises it
                self._latest[path] = end
        return {path: to_json(latest) for path, latest in self._latest.items()}

    @without_traceback
    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Splits of a batch, by store and in log order; after a restart they have the same rows."""
        names = dict(zip(self._logs, store_names(log.directory for log in self._logs.values()), strict=True))
        return [
            StreamPartition(split, self._options.store or names[path])
            for path, entry in end.items()
            if entry != start.get(path)
            for split in self._splits(self._log(path), self._begin(path, entry, start.get(path)), from_json(entry))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the wanted rows of one split."""
        try:
            if isinstance(partition, StreamPartition):  # Spark makes another partition where there are no splits
                yield from self._read(partition.split, self._selection(partition.store))
        except ReputError as error:
            raise error.with_traceback(None) from None  # as `without_traceback`
        freeze_worker()

    def _log(self, path: str) -> LogTail:
        """Tail of a store that the checkpoint names. Raises ConfigError if option `path` does not have the store."""
        if path not in self._logs:
            raise ConfigError(
                f"the checkpoint has the store {path}, and option path names {', '.join(self._logs)}: name that store, "
                "too, or begin with a new checkpoint"
            )
        return self._logs[path]

    def _next_entry(self, path: str, entry: Mapping[str, Any] | None, limit: ReadLimit) -> dict[str, Any]:
        """Entry of the next batch's end for one store; `entry`, the end of the batch before, without new records."""
        log = self._logs[path]
        read = None if entry is None else from_json(entry)
        begin = self._starting_point(log) if read is None else self._checked(log, read)
        share = {name: max(getattr(limit, name) // len(self._logs), 1) for name in _LIMITS if hasattr(limit, name)}
        limit_of_log = TailLimit(**share, end_offset=self._targets.get(path), newest_ms=self._newest_ms(log))
        try:
            end = log.advance(begin, limit_of_log)
        except CorruptRecordError as error:
            raise self._selection("").named_modes(error) from None
        self._ends[path] = end
        if self._latest.get(path, end).offset <= end.offset:
            self._latest[path] = end
        if entry is None or begin is not read:
            return to_json(end, begin.offset)
        return dict(entry) if end is begin else to_json(end)

    def _end_without_start(self, log: LogTail) -> dict[str, Any]:
        """Entry of the log's end. It has the begin of a store's first batch, but for options that do not give one."""
        try:
            begin = self._starting_point(log).offset
        except ConfigError:  # is raised by `_begin` if the batch turns out to be the first one
            begin = None
        return to_json(log.latest(self._newest_ms(log))) | {FIRST: begin}

    def _begin(self, path: str, entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> ResumePoint:
        """Begin of the batch that ends with `entry`, and comes after a batch that ended with `before`."""
        if FIRST not in entry:
            return begin_of(entry, before)
        log = self._log(path)
        if before is not None:
            return self._checked(log, from_json(before))
        return self._starting_point(log) if entry[FIRST] is None else ResumePoint(entry[FIRST])

    def _starting_point(self, log: LogTail) -> ResumePoint:
        options = self._options
        if options.starting_timestamp is not None:
            return log.since(milliseconds("startingTimestamp", options.starting_timestamp))
        offset = options.starting_offset(log.directory.path)
        if offset == EARLIEST:
            return log.earliest()
        return log.latest(self._newest_ms(log)) if offset == LATEST else log.at(int(offset))

    def _checked(self, log: LogTail, point: ResumePoint) -> ResumePoint:
        """The point of the checkpoint, or the point at which to continue if its records are lost."""
        try:
            log.check(point)
        except DataLossError as error:
            resumed = log.resume(point)
            self._tell_loss(error, f"go on at offset {resumed.offset}")
            return resumed
        return point

    def _splits(self, log: LogTail, begin: ResumePoint, end: ResumePoint) -> list[Split]:
        begin_offset, end_offset = begin.offset, end.offset
        try:
            log.check(begin)
            log.check(end)
        except DataLossError as error:
            begin_offset, end_offset = log.remainder(begin, end)
            self._tell_loss(error, f"read what is left of this batch, from offset {begin_offset} to {end_offset}")
        if begin_offset >= end_offset:
            return []
        size = max((end_offset - begin_offset) // (os.cpu_count() or 1), _MIN_SPLIT_BYTES)
        return log.splits(begin_offset, end_offset, self._options.split_bytes or size)

    def _tell_loss(self, error: DataLossError, remedy: str) -> None:
        """Raise the error, or log it, by option `failOnDataLoss`."""
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{error}{NEW_CHECKPOINT}, or set failOnDataLoss=false to {remedy}") from error
        logger.warning("%s. failOnDataLoss=false: %s", error, remedy)

    def _read(self, split: Split, selection: Selection) -> Iterator[pa.RecordBatch]:
        scan = scan_split(split, level=selection.level, on_damage=selection.on_damage)
        try:
            yield from read_scan(scan, selection)
        except StoreError as error:
            if DISK.exists(split.file.path):
                raise
            self._tell_loss(
                DataLossError(str(error)), f"leave out what it had from offset {split.begin} to {split.end}"
            )
        else:
            end = split.begin if scan.end_offset is None else scan.end_offset
            if end != split.end and not (scan.damages and end > split.end):  # damage may reach beyond the split
                loss = DataLossError(
                    f"{split.file.path}: records up to offset {split.end} were there when the batch was planned, and "
                    f"they end at {end} now: the log was cut meanwhile"
                )
                self._tell_loss(loss, "leave out the rest")

    def _selection(self, store: str) -> Selection:
        options = self._options
        return make_selection(
            columns=column_names(self._given[1]),
            topics=options.topics,
            keys=options.keys,
            raw_body=options.raw_body,
            store=store,
            mode=options.mode,
        )

    def _newest_ms(self, log: LogTail) -> int | None:
        """With `until` flushed: store time (ms) up to which the log is on the disk; else None."""
        if self._options.until != "flushed":
            return None
        checkpoint = log.directory.checkpoint()
        return checkpoint.physic_msg_timestamp if checkpoint else 0
