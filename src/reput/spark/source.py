"""The format `reput`: `spark.read.format("reput").load(path)`, and `read_log`, the same with columns chosen.

Spark makes the source in one process of its own and the reader in another, and reads in its workers: everything between
them goes as options and pickles, and what a process does not need, this module does not import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from reput.log.directory import named_folders
from reput.spark.options import READ_OPTIONS, ReadOptions, option_texts, parse_options
from reput.spark.schema import column_names, spark_schema

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

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "reput"

    def schema(self) -> StructType:
        """All columns."""
        return spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the columns in `schema`; ConfigError if they are not ours, or an option is not a reader's."""
        from reput.spark.reader import LogReader

        return LogReader(parse_options(self.options, READ_OPTIONS, ReadOptions), column_names(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame; see `reput.spark.write_options.WriteOptions`, and `LogWriter` for errors."""
        from reput.spark.write_options import write_options
        from reput.spark.writer import LogWriter

        return LogWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a stream's batches; as `writer`."""
        from reput.spark.stream_writer import LogStreamWriter
        from reput.spark.write_options import stream_write_options

        return LogStreamWriter(stream_write_options(self.options), schema, overwrite=overwrite)


def register(spark: SparkSession) -> None:
    """Make the format `reput` known to a session. Ours know it, and any other one finds it where reput is installed."""
    spark.dataSource.register(ReputDataSource)


def read_log(
    spark: SparkSession,
    path: str | os.PathLike[str],
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
    split_bytes: int | None = None,
) -> DataFrame:
    """The messages of a store as a DataFrame; arguments as those of `reput.read_log`, which returns the same rows.

    Five small columns are read twice as fast as all.

    Args:
        split_bytes: the log bytes that one task reads; None: what makes a task for each processor.

    Raises ConfigError for an unknown column; what else is wrong is told by Spark when it plans the query.
    """
    schema = spark_schema(columns)
    options = {
        "commitLogPath": None if commit_log_path is None else ",".join(named_folders(os.fspath(commit_log_path))),
        "topics": topics,
        "keys": keys,
        "begin": begin,
        "end": end,
        "until": until,
        "rawBody": raw_body,
        "store": store,
        "splitBytes": split_bytes,
    }
    reader = spark.read.format("reput").schema(schema).options(**option_texts(options))
    return reader.load(os.path.abspath(path))
