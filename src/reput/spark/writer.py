"""Write a DataFrame to a store: tasks encode rows to staged files, and one commit appends the files under the lock.

Spark makes the writer in one process, writes in its workers, and commits in a third process; it pickles the writer in
between. That the store can be opened is checked before any task runs.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from reput.errors import ConfigError, MessageIllegalError, StoreError
from reput.files import DISK
from reput.formats.sink_commit import SinkBatch, StagedPart
from reput.kernels.records.message_columns import check_schema
from reput.log.sink_commits import read_sinks
from reput.spark.compat import arrow_schema
from reput.spark.daemon import freeze_worker
from reput.spark.short_errors import without_traceback
from reput.spark.write_options import WriteOptions
from reput.store.sinks.bad_rows import AsideFile, BadRows, checked_tables, discard, publish
from reput.store.sinks.commit import check_store, put_staged
from reput.store.sinks.staging import StagingFile
from reput.store.sinks.staging_folder import clear, is_needed, make_folder, staged_path, sweep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("reput.spark")


@dataclass(frozen=True, slots=True)
class StagedRecords(WriterCommitMessage):
    """Commit message of one task.

    Attributes:
        partition: number of the partition; parts are appended in this order.
        part: the staged records; None without records.
        aside: files of rows put aside.
        query_id: of the stream; None in a batch write.
    """

    partition: int
    part: StagedPart | None
    aside: tuple[AsideFile, ...]
    query_id: str | None


class LogWriter(DataSourceArrowWriter):
    """Writer of a DataFrame to a store, atomically.

    The constructor raises, before any task runs: ConfigError for a wrong option, MessageIllegalError for a wrong
    column, and errors of `MessageStore.open`, StoreLockedError among them.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('a log is only appended to: write with .mode("append")')
        self._options = prepare(options, schema)
        self._job = uuid.uuid4().hex
        self._folder = make_folder(DISK, options.staging_path, self._job)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Check and encode one partition into a staged file."""
        return stage(iterator, self._options, self._folder, self._job)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the staged records of all tasks. When this returns, they are on the disk, and in queues and index."""
        options = self._options
        batch = None
        if options.sink_id is not None and options.batch_id is not None:
            batch = SinkBatch(options.sink_id, options.batch_id)
        staged = put(options, messages, batch)
        try:
            DISK.remove_tree(self._folder)  # from here on rows put aside stay, whatever fails
        except StoreError as error:  # the next job sweeps it
            logger.warning("%s", error)
        publish_aside(options, staged, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of all tasks, failed ones included, unless the records are committed, or may be."""
        options = self._options
        if not DISK.exists(self._folder) or is_needed(self._folder, read_sinks(DISK, options.path)):
            return
        DISK.remove_tree(self._folder)
        if options.bad_rows_path is not None:
            discard(DISK, options.bad_rows_path, f"_{self._job}")


def prepare(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Check columns and store, and remove files that killed jobs have left; the options with the store's own sizes."""
    check_schema(arrow_schema(schema))
    config = check_store(options.path, options.config, DISK, lock_timeout_ms=options.lock_timeout_ms)
    sweep(DISK, options.staging_path, read_sinks(DISK, options.path))
    if options.bad_rows_path is not None:
        DISK.make_directories(options.bad_rows_path)
    return replace(options, config=config)


def stage(batches: Iterator[pa.RecordBatch], options: WriteOptions, folder: str, job: str) -> StagedRecords:
    """Task: stage the rows of one partition in a file. A row that RocketMQ would refuse is put aside, or raises."""
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks only"
    partition = context.partitionId()
    name = f"{partition}-{context.taskAttemptId()}"
    bad = BadRows(DISK, os.path.join(options.bad_rows_path or "", f"_{job}-{name}"))

    def refuse(row: pa.RecordBatch, reason: str) -> None:
        if options.bad_rows_path is None:
            raise MessageIllegalError(
                f"partition {partition}, {reason}; nothing was written. onBadRow=aside puts such rows into badRowsPath"
            )
        bad.put_aside(row, reason)

    with StagingFile(DISK, staged_path(folder, name), options.config) as staging:
        row = 0
        for batch in batches:
            for checked in checked_tables(batch, row, staging.check, refuse):
                staging.write(checked)
            row += batch.num_rows
        staged = StagedRecords(partition, staging.part, tuple(bad.close()), context.getLocalProperty(_QUERY_ID))
    freeze_worker()
    return staged


def put(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: SinkBatch | None
) -> list[StagedRecords]:
    """Append the staged records in the order of the partitions, and return them."""
    staged = sorted((m for m in messages if isinstance(m, StagedRecords)), key=lambda m: m.partition)
    parts = [message.part for message in staged if message.part is not None]
    put_staged(options.path, options.config, DISK, parts, batch, lock_timeout_ms=options.lock_timeout_ms)
    return staged


def publish_aside(options: WriteOptions, staged: Sequence[StagedRecords], name: str) -> None:
    """Publish the rows that tasks have put aside, under `name`."""
    try:
        for message in staged:
            publish(DISK, message.aside, f"{name}-{message.partition}")
    except StoreError as error:
        raise StoreError(
            f"{error}; the messages are committed, but rows put aside are still in files whose names begin with _"
        ) from error
    aside = sum(file.rows for message in staged for file in message.aside)
    if aside:
        logger.warning("%s: %d rows put aside into %s", options.path, aside, options.bad_rows_path)


def clear_sink(options: WriteOptions, folder: str) -> None:
    """Remove staged files of a stream's batch."""
    clear(DISK, folder, read_sinks(DISK, options.path))


#: Spark's local property of the tasks of a stream (`StreamExecution.QUERY_ID_KEY`).
_QUERY_ID = "sql.streaming.queryId"
