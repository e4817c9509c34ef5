"""Format `reput`: `spark.read.format("reput").load(path)`, and `read_log`, the same with chosen columns.

Spark makes the source in one process and the reader in another, and reads in its workers. Options and pickles pass
between them. This module imports only what all of these processes need.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from reput.config.arguments import texts_of
from reput.errors import ReputError
from reput.spark.arguments import check_arguments, paths_of
from reput.spark.options import (
    READ_OPTIONS,
    ReadOptions,
    absolute_folders,
    absolute_path,
    is_wire,
    option_texts,
    parse_options,
)
from reput.spark.schema import column_names, spark_schema
from reput.spark.short_errors import end_quietly, without_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ReputDataSource(DataSource):
    """Commit log of a store as a table, a row a message: the rows of `reput.read_log`, read by all executors.

    With the option `namesrv`, the messages of topics at brokers instead; see `reput.spark.wire`.

    Spark does not tell a Python source which columns a query needs, so all columns are read. The user can give a schema
    with any columns in any order. See `reput.spark.options.ReadOptions` for the options.

    The rows are of the log as it was when the query was planned: a DataFrame does not see later messages.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        from reput.spark.compat import EACH_ACTION_PLANS

        self.options = dict(options)
        self._ends = _ends_now(self.options) if EACH_ACTION_PLANS else None
        end_quietly()

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "reput"

    def schema(self) -> StructType:
        """All columns."""
        return spark_schema()

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of the columns in `schema`. Raises ConfigError for unknown columns and options."""
        if is_wire(self.options):
            return _wire_reader(self.options, schema, self._ends)
        from reput.spark.reader import FilteringLogReader, LogReader

        options = parse_options(self.options, READ_OPTIONS, ReadOptions)
        _check_push_down(options.push_filters)
        reader = FilteringLogReader if options.push_filters else LogReader
        return reader(options, column_names(schema), self._ends)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the stream reader of the columns in `schema`. See `reput.spark.stream_options` for its options."""
        from reput.spark.compat import for_this_minor

        if is_wire(self.options):
            from reput.spark.wire.stream_reader import WireStreamReader

            return for_this_minor(WireStreamReader(self.options, schema))
        from reput.spark.stream_reader import LogStreamReader

        return for_this_minor(LogStreamReader(self.options, schema))

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a DataFrame; see `reput.spark.write_options.WriteOptions`, and `LogWriter` for errors."""
        if is_wire(self.options):
            from reput.spark.wire.write_options import write_options as wire_options
            from reput.spark.wire.writer import WireWriter

            return WireWriter(wire_options(self.options), schema, overwrite=overwrite)
        from reput.spark.write_options import write_options
        from reput.spark.writer import LogWriter

        return LogWriter(write_options(self.options), schema, overwrite=overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of a stream's batches; as `writer`."""
        if is_wire(self.options):
            from reput.spark.wire.write_options import write_options
            from reput.spark.wire.writer import WireStreamWriter

            return WireStreamWriter(write_options(self.options), schema, overwrite=overwrite)
        from reput.spark.stream_writer import LogStreamWriter
        from reput.spark.write_options import stream_write_options

        return LogStreamWriter(stream_write_options(self.options), schema, overwrite=overwrite)


def _check_push_down(push_filters: bool) -> None:
    if push_filters:
        from reput.spark.compat import PUSH_DOWN, require_minor

        require_minor(PUSH_DOWN, "pushFilters", "give the options that prune instead")


def _wire_reader(given: Mapping[str, str], schema: StructType, ends: Any) -> DataSourceReader:
    from reput.spark.wire.options import read_options
    from reput.spark.wire.reader import FilteringWireReader, WireReader

    options = read_options(given)
    _check_push_down(options.push_filters)
    reader = FilteringWireReader if options.push_filters else WireReader
    return reader(options, column_names(schema), ends)


def _ends_now(options: Mapping[str, str]) -> Any:
    """Ends of the logs or queues of a batch read, as they are now; None if the options are not of one."""
    try:
        if is_wire(options):
            from reput.spark.wire.options import read_options
            from reput.spark.wire.reader import queue_ends

            return queue_ends(read_options(options))
        from reput.spark.reader import log_ends

        return log_ends(parse_options(options, READ_OPTIONS, ReadOptions))
    except ReputError:  # is raised when the read is planned, if it is one
        return None


def register(spark: SparkSession) -> None:
    """Register the format `reput` with a session.

    Spark finds the format by itself if reput is installed and every installed module `pyspark_*` can be imported. If
    one of these imports fails, Spark logs "Skipping the lookup of Python Data Sources due to the failure" and finds no
    format; and it does not look into `--py-files`. In these cases, call this function first.

    For a write Spark looks only into the session that is active in the thread, and a new thread has none:
    DATA_SOURCE_NOT_FOUND. So each thread that writes calls this function first; it makes the session the active one.
    """
    from reput.spark.compat import register_source

    check_arguments(spark=spark)
    register_source(spark, ReputDataSource)
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # a session of Spark Connect has none
        jvm.SparkSession.setActiveSession(spark._jsparkSession)


def read_log(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    begin: datetime | int | None = None,
    end: datetime | int | None = None,
    until: str = "proven",
    *,
    raw_body: bool = False,
    commit_log_path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    mode: str = "PERMISSIVE",
    split_bytes: int | None = None,
    prune: bool = True,
    statistics: str | os.PathLike[str] | None = None,
    clock_margin_ms: int | None = None,
    push_filters: bool = False,
) -> DataFrame:
    """Read the messages of stores as a DataFrame, with the arguments and rows of `reput.read_log`.

    Name the columns: five small ones take a third of the time of all columns, or less.

    Args:
        path: a store directory, a pattern such as `/brokers/*/store`, or a list of both; the column `store` names the
            store of a row.
        mode: as in Spark's own readers, so its default differs from the default of `reput.read_log`.
        split_bytes: the log bytes that one task reads; None: as many as make a task for each processor.
        prune: whether ranges of the log without wanted rows are left out; see `explain`.
        statistics: a folder outside of the stores in which times of zones of the log are kept, for later reads.
        clock_margin_ms: your promise that no store timestamp is earlier than a timestamp before it by more than this.
        push_filters: your promise that only one query reads the DataFrame. Then its filters prune, too. Spark 4.3 plans
            all queries on one DataFrame by the filters of one of them.

    Raises ConfigError for an unknown column, or a path that is not on a local or mounted file system; Spark raises
    other errors when it plans the query.
    """
    check_arguments(**locals())
    paths = list(map(absolute_path, paths_of("path", path)))
    schema = spark_schema(columns)
    options = {
        "commitLogPath": absolute_folders(commit_log_path),
        "topics": None if topics is None else texts_of("topics", topics),
        "keys": None if keys is None else texts_of("keys", keys),
        "begin": begin,
        "end": end,
        "until": until,
        "rawBody": raw_body,
        "store": store,
        "mode": mode,
        "splitBytes": split_bytes,
        "prune": prune,
        "statistics": None if statistics is None else absolute_path(statistics),
        "clockMargin": clock_margin_ms,
        "pushFilters": push_filters,
    }
    reader = spark.read.format("reput").schema(schema).options(**option_texts(options))
    return reader.load(paths)
