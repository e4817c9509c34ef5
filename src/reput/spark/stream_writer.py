"""Write a stream to a store, each batch exactly once, also after a kill.

Spark makes a new writer to commit each batch, so a writer knows nothing of earlier batches: the sink's id, and the id
of the query as its tasks have seen it, identify the stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from reput.errors import ConfigError
from reput.files import DISK
from reput.formats.sink_commit import SinkBatch
from reput.log.sink_commits import read_sinks
from reput.spark.compat import DataSourceStreamArrowWriter
from reput.spark.short_errors import without_traceback
from reput.spark.stream_offset import own_offset
from reput.spark.write_options import WriteOptions
from reput.spark.writer import StagedRecords, clear_sink, prepare, publish_aside, put, stage
from reput.store.sinks.bad_rows import discard
from reput.store.sinks.staging_folder import is_needed, make_folder, name_in_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream's batches. The constructor raises as that of `LogWriter`."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        assert options.sink_id is not None
        if overwrite:
            raise ConfigError(
                'a log is only appended to: outputMode("complete") would replace it; take append or update'
            )
        _refuse_own_source(options)
        self._options = prepare(options, schema)
        self._sink_id = options.sink_id
        self._name = name_in_store(f"sink-{options.sink_id}", options.path)
        self._folder = make_folder(DISK, options.staging_path, self._name)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Check and encode one partition of a batch into a staged file."""
        return stage(iterator, self._options, self._folder, self._name)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append a batch, unless the store has it. When this returns, it is on the disk, and in queues and index."""
        query_ids = {message.query_id for message in messages if isinstance(message, StagedRecords)}
        batch = SinkBatch(self._sink_id, batchId, query_ids.pop() if query_ids else None)
        staged = put(self._options, messages, batch)
        publish_aside(self._options, staged, f"{self._sink_id}-{batchId}")
        self._clear()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the files of all tasks, failed ones included; rows put aside stay if the batch is committed."""
        sinks = read_sinks(DISK, self._options.path)
        last = sinks.commits.get(self._sink_id)
        is_committed = last is not None and last.batch is not None and last.batch.batch_id >= batchId
        if is_committed or is_needed(self._folder, sinks):
            clear_sink(self._options, self._folder)
        else:
            self._clear()

    def _clear(self) -> None:
        clear_sink(self._options, self._folder)
        if self._options.bad_rows_path is not None:
            discard(DISK, self._options.bad_rows_path, f"_{self._name}")


def _refuse_own_source(options: WriteOptions) -> None:
    """Raise ConfigError for a stream that reads the store that it writes.

    A sink does not know what its query reads, but Spark writes that into the checkpoint before it plans a batch.
    """
    if not DISK.exists(options.path):
        return
    for path in _stores_read(options.checkpoint_path):
        if DISK.exists(path) and DISK.identity(path) == DISK.identity(options.path):
            raise ConfigError(
                f"{options.path}: the stream reads this store, so each batch would cause another batch, without end; "
                "write into another store. Nothing was written"
            )


def _stores_read(checkpoint: str | None) -> list[str]:
    """Paths of stores with offsets in the newest file of a checkpoint's folder `offsets`, a line of JSON a source."""
    if checkpoint is None:
        return []
    folder = os.path.join(checkpoint, "offsets")
    if not DISK.exists(folder):
        return []
    batches = [int(entry.name) for entry in DISK.list_directory(folder) if entry.name.isdigit()]
    if not batches:
        return []
    lines = DISK.read_bytes(os.path.join(folder, str(max(batches)))).decode(errors="replace").splitlines()
    return [path for line in lines for path in own_offset(line)]
