"""The format `reput`: `spark.read.format("reput").load(path)`, and `read_log`, the same with columns chosen.

Spark makes the source in one process of its own and the reader in another, and reads in its workers: everything between
them goes as options and pickles, and what a process does not need, this module does not import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from reput.spark.options import READ_OPTIONS, ReadOptions, absolute_folders, absolute_path, option_texts, parse_options
from reput.spark.schema import column_names, spark_schema
from reput.spark.short_errors import end_quietly, told_shortly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ReputDataSource(DataSource):
    """The commit log of a store as a table, a row a message: the rows of `reput.read_log`, read by all executors.

    Spark does not tell a Python source which columns a query needs, so it asks for all. A schema of the user's does
    tell: any columns, in any order. See `reput.spark.options.ReadOptions` for the options.

    The rows are those of the log as it was when the query was planned: a DataFrame does not see what comes later.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        end_quietly()

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "reput"

    def schema(self) -> StructType:
        """All columns."""
        return spark_schema()

    @told_shortly
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the columns in `schema`; ConfigError if they are not ours, or an option is not a reader's."""
        from reput.spark.reader import FilteringLogReader, LogReader

        options = parse_options(self.options, READ_OPTIONS, ReadOptions)
        reader = FilteringLogReader if options.push_filters else LogReader
        return reader(options, column_names(schema))

    @told_shortly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The stream of the columns in `schema`. See `reput.spark.stream_options` for its options."""
        from reput.spark.stream_reader import LogStreamReader

        return LogStreamReader(self.options, schema)

    @told_shortly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame; see `reput.spark.write_options.WriteOptions`, and `LogWriter` for errors."""
        from reput.spark.write_options import write_options
        from reput.spark.writer import LogWriter

        return LogWriter(write_options(self.options), schema, overwrite=overwrite)

    @told_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a stream's batches; as `writer`."""
        from reput.spark.stream_writer import LogStreamWriter
        from reput.spark.write_options import stream_write_options

        return LogStreamWriter(stream_write_options(self.options), schema, overwrite=overwrite)


def register(spark: SparkSession) -> None:
    """Make the format `reput` known to a session.

    Spark finds it by itself where reput is installed and every module `pyspark_*` there can be imported. Where one of
    them fails, Spark logs "Skipping the lookup of Python Data Sources due to the failure" and finds none; and it does
    not look into `--py-files`. Then, call this first.
    """
    spark.dataSource.register(ReputDataSource)


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
    """The messages of stores as a DataFrame; arguments as those of `reput.read_log`, which returns the same rows.

    Five small columns are read twice as fast as all.

    Args:
        path: a store directory, a pattern such as `/brokers/*/store`, or a list of both; the column `store` tells them
            apart.
        mode: as in Spark's own readers, and so another default than that of `reput.read_log`.
        split_bytes: the log bytes that one task reads; None: what makes a task for each processor.
        prune: whether parts of the log are left out that hold no wanted row; see `explain`.
        statistics: a folder outside of the stores where the times of the log's parts are kept, for later reads.
        clock_margin_ms: your word that no store timestamp lies further behind one before it.
        push_filters: your word that the DataFrame is read by one query, so that its filters may prune, too: Spark 4.3
            plans all queries on one DataFrame by the filters of one of them.

    Raises ConfigError for an unknown column, or a path on a file system of another kind than the machine's; what else
    is wrong is told by Spark when it plans the query.
    """
    schema = spark_schema(columns)
    options = {
        "commitLogPath": absolute_folders(commit_log_path),
        "topics": topics,
        "keys": keys,
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
    paths = [path] if isinstance(path, str | os.PathLike) else path
    return reader.load([absolute_path(one) for one in paths])
