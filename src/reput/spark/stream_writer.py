"""Writing a stream to a store: each batch once, whatever is killed.

Spark makes a writer anew to commit a batch, so one knows nothing of the one before: it goes by the sink's id, and by
the id of the query that the tasks have seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from reput.errors import ConfigError
from reput.files import DISK
from reput.formats.sink_commit import SinkBatch
from reput.spark.bad_rows import discard
from reput.spark.short_errors import told_shortly
from reput.spark.write_options import WriteOptions
from reput.spark.writer import StagedRecords, clear_sink, commit, prepare, stage
from reput.store.staging_folder import make_folder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; errors when it is made as of `LogWriter`."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        assert options.sink_id is not None
        if overwrite:
            raise ConfigError(
                'a log is only appended to: outputMode("complete") would replace it; take append or update'
            )
        prepare(options, schema)
        self._options = options
        self._sink_id = options.sink_id
        self._name = f"sink-{options.sink_id}"
        self._folder = make_folder(DISK, options.staging_path, self._name)

    @told_shortly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Check and encode one partition of a batch into a staged file."""
        return stage(iterator, self._options, self._folder, self._name)

    @told_shortly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append a batch, unless it was before; when this returns it is on the disk, and in queues and index."""
        query_ids = {message.query_id for message in messages if isinstance(message, StagedRecords)}
        batch = SinkBatch(self._sink_id, batchId, query_ids.pop() if query_ids else None)
        commit(self._options, messages, batch, name=f"{self._sink_id}-{batchId}")
        self._clear()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks have left, also those that failed."""
        self._clear()

    def _clear(self) -> None:
        clear_sink(self._options, self._folder)
        if self._options.bad_rows_path is not None:
            discard(DISK, self._options.bad_rows_path, f"_{self._name}-")
