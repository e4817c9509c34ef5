"""The stream source: micro-batches of the commit logs of one or more stores.

Spark's planner keeps one reader in a process of its own as long as the query lives. It asks for the latest offset every
10 ms, and for the splits of each batch; tasks read them. Nothing but the offset is remembered: a query that is started
again from its checkpoint plans the same batch again, and its tasks read the same rows.

Rows come only from records that proved themselves when the batch was planned. A task that finds less than what was
planned fails, for then the log was cut meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from reput.errors import ConfigError, CorruptRecordError, DataLossError, ReputError, StoreError
from reput.files import DISK
from reput.log.positions import LogPosition, TailLimit
from reput.log.reader import read_scan
from reput.log.scan import scan_split
from reput.log.selection import Selection, make_selection, milliseconds, on_damage_of
from reput.log.splits import Split
from reput.log.stores import find_stores, store_names
from reput.log.tail import LogTail
from reput.spark.daemon import freeze_worker
from reput.spark.schema import column_names
from reput.spark.short_errors import told_shortly
from reput.spark.stream_offset import StreamOffset, begin_of, from_json, to_json
from reput.spark.stream_options import EARLIEST, LATEST, StreamOptions, parse_stream_options

if TYPE_CHECKING:
    import pyarrow as pa

#: Less is not worth a task.
_MIN_SPLIT_BYTES = 8 << 20

_LIMITS = ("max_bytes", "max_rows")

logger = logging.getLogger("reput.spark")


class StreamPartition(InputPartition):
    """One task's part: a split that begins at a record's start, and the value of the column `store`."""

    def __init__(self, split: Split, store: str) -> None:
        super().__init__(split)
        self.split = split
        self.store = store


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads some columns of commit logs as they grow; made of the options as Spark has them, and the user's schema.

    Its methods raise ConfigError for a wrong option or column, or where they contradict the stores or the checkpoint,
    DataLossError where records are gone and `failOnDataLoss` is true, and what `LogTail` raises. Its constructor raises
    nothing: Spark would hide that behind an error of its own.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options), schema
        self._ends: dict[str, LogPosition] = {}
        self._latest: dict[str, LogPosition] = {}
        self._targets: dict[str, int] = {}

    @cached_property
    def _options(self) -> StreamOptions:
        return parse_stream_options(self._given[0])

    @cached_property
    def _logs(self) -> dict[str, LogTail]:
        """The stores' logs, by path and in its order."""
        options = self._options
        stores = find_stores(options.path, commit_log_path=options.commit_log_path)
        if options.store is not None and len(stores) > 1:
            raise ConfigError(f"option store: {options.store!r} cannot name all of {len(stores)} stores")
        stores.sort(key=lambda store: store.path)
        return {store.path: LogTail(store, on_damage=on_damage_of(options.mode)) for store in stores}

    @told_shortly
    def initialOffset(self) -> StreamOffset:
        """Nothing about any store: where each begins is in the first batch's end, and so the same after a restart."""
        self._selection("")  # tells wrong columns before anything is read
        return {}

    @told_shortly
    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options say."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadAllAvailable()

    @told_shortly
    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where each log ends: the batches end there, too."""
        for path, log in self._logs.items():
            self._targets[path] = log.latest(self._newest_ms(log)).offset

    @told_shortly
    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """Where the next batch ends: `start` where nothing is new. Stores share the limit equally."""
        for path in start:
            self._log(path)
        return {path: self._next_entry(path, start.get(path), limit) for path in self._logs}

    def reportLatestOffset(self) -> StreamOffset:
        """Where the logs end now, for the query's progress: how far a batch ends before that is its lag."""
        for path, end in self._ends.items():
            log, latest = self._logs[path], self._latest.get(path, end)
            try:
                log.check(latest)
                self._latest[path] = log.advance(latest, TailLimit(newest_ms=self._newest_ms(log)))
            except StoreError:  # the next `latestOffset` comes upon it, and tells it
                self._latest[path] = end
        return {path: to_json(latest) for path, latest in self._latest.items()}

    @told_shortly
    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """The splits of a batch, by store and in log order; after a restart, the same rows again."""
        names = dict(zip(self._logs, store_names(log.directory for log in self._logs.values()), strict=True))
        return [
            StreamPartition(split, self._options.store or names[path])
            for path, entry in end.items()
            if entry != start.get(path)
            for split in self._splits(self._log(path), begin_of(entry, start.get(path)), from_json(entry))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The wanted rows of one split."""
        try:
            if isinstance(partition, StreamPartition):  # Spark makes one of another kind where there are no splits
                yield from self._read(partition.split, self._selection(partition.store))
        except ReputError as error:
            raise error.with_traceback(None) from None  # as `told_shortly`
        freeze_worker()

    def _log(self, path: str) -> LogTail:
        """The log of a store that the checkpoint has."""
        if path not in self._logs:
            raise ConfigError(
                f"the checkpoint has the store {path}, and option path names {', '.join(self._logs)}: name that one "
                "too, or begin with a new checkpoint"
            )
        return self._logs[path]

    def _next_entry(self, path: str, entry: Mapping[str, Any] | None, limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends for one store; `entry`, where the one before ended, if nothing is new."""
        log = self._logs[path]
        read = None if entry is None else from_json(entry)
        begin = self._starting_position(log) if read is None else self._checked(log, read)
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

    def _starting_position(self, log: LogTail) -> LogPosition:
        options = self._options
        if options.starting_timestamp is not None:
            return log.since(milliseconds("startingTimestamp", options.starting_timestamp))
        offset = options.starting_offset(log.directory.path)
        if offset == EARLIEST:
            return log.earliest()
        return log.latest(self._newest_ms(log)) if offset == LATEST else log.at(int(offset))

    def _checked(self, log: LogTail, position: LogPosition) -> LogPosition:
        """A position of the checkpoint, or where to go on if it is lost."""
        try:
            log.check(position)
        except DataLossError as error:
            resumed = log.resume(position)
            self._tell_loss(error, f"go on at offset {resumed.offset}")
            return resumed
        return position

    def _splits(self, log: LogTail, begin: LogPosition, end: LogPosition) -> list[Split]:
        begin_offset, end_offset = begin.offset, end.offset
        try:
            log.check(begin)
            log.check(end)
        except DataLossError as error:
            begin_offset, end_offset = log.remainder(begin, end)
            self._tell_loss(error, f"read what is left of this batch, from offset {begin_offset} to {end_offset}")
        if begin_offset == end_offset:
            return []
        size = max((end_offset - begin_offset) // (os.cpu_count() or 1), _MIN_SPLIT_BYTES)
        return log.splits(begin_offset, end_offset, self._options.split_bytes or size)

    def _tell_loss(self, error: DataLossError, remedy: str) -> None:
        """Raise the error, or log it: as `failOnDataLoss` says."""
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{error}. Begin with a new checkpoint, or set failOnDataLoss=false to {remedy}"
            ) from error
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
        """Under `until` flushed, the store time up to which the log is on the disk."""
        if self._options.until != "flushed":
            return None
        checkpoint = log.directory.checkpoint()
        return checkpoint.physic_msg_timestamp if checkpoint else 0
