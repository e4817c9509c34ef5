"""Write a DataFrame or a stream to brokers: at least once, with a unique key for each row.

A task sends its rows; what was sent is there, also if the job fails later. A task or a batch that is repeated sends its
rows again, with the same unique keys, by which readers drop the repeats.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from reput.errors import ConfigError, ReputError
from reput.spark.compat import DataSourceStreamArrowWriter, arrow_schema
from reput.spark.daemon import freeze_worker
from reput.spark.short_errors import without_traceback
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.row_keys import RowKeys
from reput.spark.wire.sender import Sender
from reput.spark.wire.write_options import WireWriteOptions, check_sink_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Spark's local properties of a stream's tasks (`StreamExecution.QUERY_ID_KEY`, `MicroBatchExecution.BATCH_ID_KEY`).
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SentRows(WriterCommitMessage):
    """Commit message of one task: how many rows it has sent."""

    rows: int


class WireWriter(DataSourceArrowWriter):
    """Writer of a DataFrame. The constructor raises ConfigError and MessageIllegalError for what is wrong at once."""

    def __init__(self, options: WireWriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(options, schema, overwrite=overwrite)
        self._options = options
        self._job = uuid.uuid4().hex

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition."""
        return _send(self._options, iterator, RowKeys(self._job, 0, _context().partitionId()))


class WireStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream's batches. The constructor raises as that of `WireWriter`."""

    def __init__(self, options: WireWriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(options, schema, overwrite=overwrite)
        self._options = options

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a batch."""
        context = _context()
        query_id, batch_id = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        assert query_id is not None, "a task of a stream knows its query"
        assert batch_id is not None, "and its batch"
        return _send(self._options, iterator, RowKeys(query_id, int(batch_id), context.partitionId()))


def _check(options: WireWriteOptions, schema: StructType, *, overwrite: bool) -> None:
    if overwrite:
        raise ConfigError('a topic is only appended to: write with .mode("append"), or outputMode append or update')
    check_sink_schema(arrow_schema(schema), options)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks only"
    return context


def _send(options: WireWriteOptions, batches: Iterator[pa.RecordBatch], keys: RowKeys) -> SentRows:
    cluster = Cluster(options.access)
    try:
        sender = Sender(cluster, options, keys)
        for batch in batches:
            sender.put(batch)
        sender.flush()
    except ReputError as error:
        raise error.with_traceback(None) from None
    finally:
        cluster.close()
    freeze_worker()
    return SentRows(sender.rows)
