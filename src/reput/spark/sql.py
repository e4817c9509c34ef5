"""`query_sql_on_spark`: query the messages of a store by SQL in Spark's dialect, read by all executors."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from reput.config.arguments import an_object_of
from reput.errors import ConfigError
from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    import pyarrow as pa
    from pyspark import TaskContext

from reput.jobs.query.query_job import LogRows
from reput.jobs.query.row_files import read_rows, write_rows
from reput.jobs.query.sql_job import MESSAGES, Source, distinct_names
from reput.jobs.query.topic_table import BODY_ERROR, TopicColumns
from reput.log.plans.plan import MIN_TASK_BYTES, PlanOptions, plan_read
from reput.log.plans.plan_parts import Part, part_bytes, part_groups
from reput.log.reads.open_batches import batch_reader
from reput.spark.arguments import check_arguments
from reput.spark.daemon import freeze_worker
from reput.spark.runner import item_rows
from reput.spark.source import read_log

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession


#: Of the session, while a statement is analysed, which keeps them: its times are UTC's, and no table is a path.
_ANALYSIS = {"spark.sql.session.timeZone": "UTC", "spark.sql.runSQLOnFiles": "false"}
#: Parts of an analysed statement, in its JSON, that run a program or call any function of Java.
_OTHER_CODE = re.compile(
    r'"class":"org\.apache\.spark\.sql\.catalyst\.[a-z.]+\.(ScriptTransformation|CallMethodViaReflection)"'
)
#: What a task tells that has written a partition.
_WRITTEN = "partition int, path string"


def query_sql_on_spark(
    spark: SparkSession, source: Source, sql: str, undecoded: dict[str, Accumulator[int]] | None = None
) -> DataFrame:
    """Run a statement of Spark SQL over the tables of `reput.jobs.query.sql_job.query_sql`; returns a DataFrame.

    The tables become temporary views of the session with the same names; names that need it stand in backquotes
    (`` `my-topic` ``). Tasks decode bodies. A view has all columns, and Spark reads all of them. Days and hours of
    times are UTC's, as DuckDB's, whatever the time zone of the session is. As DuckDB, a statement reads no file and
    runs no program, but for Spark Connect, whose server has the analysed statement.

    Args:
        undecoded: gets an accumulator for each topic of the statement. When the rows are there, it is above 0 if bodies
            could not be decoded; a task that ran twice counts twice. Spark Connect has none: None.

    Raises ConfigError for a statement that does not read, or that Spark refuses, and as `Source`.
    """
    from pyspark.errors import AnalysisException, ParseException

    check_arguments(**locals())
    an_object_of(Source)("source", source)
    topics = source.tables(sql)
    for topic in topics:
        if undecoded is not None:
            undecoded[topic] = spark.sparkContext.accumulator(0)
        _view(topic_frame(spark, source, topic, (undecoded or {}).get(topic)), topic)
    _view(topic_frame(spark, source, None), MESSAGES)
    statement = sql.strip().rstrip(";")
    before = {key: spark.conf.get(key) or value for key, value in _ANALYSIS.items()}
    _configure(spark, _ANALYSIS)
    try:
        spark.sql(f"select * from (\n{statement}\n)")  # others than queries run at once, and are none in brackets
        frame = spark.sql(statement)
        _check_code(frame)
        return frame
    except AnalysisException as error:
        reason = _first_line(error)
        expected = (
            "expected one statement that reads, select ... from topic: " if isinstance(error, ParseException) else ""
        )
        raise ConfigError(f"sql: {expected}{reason}{source.quoting_hint(sql, '`', reason)}") from None
    finally:
        _configure(spark, before)


def _configure(spark: SparkSession, values: Mapping[str, str]) -> None:
    for key, value in values.items():
        spark.conf.set(key, value)


def _check_code(frame: DataFrame) -> None:
    """Raises ConfigError for a statement that runs other code than Spark's own."""
    analysed = getattr(frame, "_jdf", None)
    if analysed is not None and _OTHER_CODE.search(analysed.queryExecution().analyzed().toJSON()):
        raise ConfigError(
            "sql: a statement reads the topics, and runs nothing else: expected none with `transform ... using`, "
            "`reflect`, `try_reflect` and `java_method`"
        )


def arrow_rows(frame: DataFrame, folder: str | None = None) -> pa.RecordBatchReader:
    """Rows of a DataFrame, in its order, as `toArrow` gives them, with the names of `distinct_names`.

    Args:
        folder: empty; tasks write the rows there, and the driver reads them batch by batch: all machines must see it.
            None: the driver holds all rows.

    Raises ConfigError for a statement that cannot be computed, as a text is no number.
    """
    from pyspark.errors import PySparkException, PythonException

    names = distinct_names(frame.columns)
    try:
        if folder is None:
            return frame.toArrow().rename_columns(names).to_reader()
        schema, paths = _written(frame, folder)
    except PythonException:  # of a task of ours, as for damage
        raise
    except PySparkException as error:
        raise ConfigError(f"sql: {_first_line(error)}") from None

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for batch in read_rows(path):
                table = pa.Table.from_batches([batch]).cast(schema)  # the time zone of its times may be another one's
                yield from table.rename_columns(names).to_batches()

    named = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return batch_reader(named, batches())


def _written(frame: DataFrame, folder: str) -> tuple[pa.Schema, list[str]]:
    """Let tasks write the rows to files; returns their schema with numbers for names, and the paths in order."""
    from reput.spark.compat import arrow_schema

    frame = frame.toDF(*map(str, range(len(frame.columns))))  # tasks take no column with a dot, as `total * 1.5`
    schema = arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True)
    written = frame.mapInArrow(partial(_write_partition, folder), _WRITTEN).collect()
    return schema, [row.path for row in sorted(written, key=lambda row: row.partition)]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _write_partition(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Task: write the rows of a partition to a file, and tell its path."""
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks only"
    partition, first = context.partitionId(), next(batches, None)
    if first is not None:
        path = os.path.join(folder, f"{partition}-{context.taskAttemptId()}.arrow")
        write_rows(batch_reader(first.schema, chain([first], batches)), path)
        del first  # what lives when a worker is frozen is never freed
        yield pa.record_batch({"partition": pa.array([partition], pa.int32()), "path": [path]})
    freeze_worker()


def topic_frame(
    spark: SparkSession, source: Source, topic: str | None, undecoded: Accumulator[int] | None = None
) -> DataFrame:
    """DataFrame of a topic's messages, with the fields of their JSON bodies; None: all messages, without fields.

    The log of a topic with fields is planned here once, for the types of the fields and for the rows. Tasks read and
    decode, and add the count of bodies that could not be decoded to `undecoded`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = TopicColumns() if topic is None else source.columns(topic, plan := _OnePlan(spark))
    if topic is None or columns.decoder is None:
        return read_log(
            spark,
            source.path,
            topics=source.topics if topic is None else [topic],
            begin=source.begin,
            end=source.end,
            commit_log_path=source.commit_log_path,
            mode=source.mode,
        )
    names = columns.schema.names
    rows = source.read(topic, columns.log_columns(names))

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in batch["item"]:
                for part in pickle.loads(item.as_buffer()):
                    for found in rows.read(part):
                        decoded = columns.rows(found, names)
                        if undecoded is not None:
                            undecoded.add(decoded.num_rows - decoded[BODY_ERROR].null_count)
                        yield decoded
        freeze_worker()

    return item_rows(spark, plan.groups(rows)).mapInArrow(decode, from_arrow_schema(columns.schema))


class _OnePlan:
    """Plan of a topic's rows, made once, for as many tasks at a time as the session runs."""

    def __init__(self, spark: SparkSession) -> None:
        context = getattr(spark, "sparkContext", None)  # Spark Connect has none
        self._processors = context.defaultParallelism if context is not None else len(os.sched_getaffinity(0))
        self._parts: Sequence[Part] | None = None

    def __call__(self, rows: LogRows) -> Sequence[Part]:
        """The parts of the topic's rows; columns make no difference."""
        if self._parts is None:
            options = PlanOptions(processors=self._processors)
            self._parts = plan_read(rows.directory, rows.selection, options, rows.wanted).parts
        return self._parts

    def groups(self, rows: LogRows) -> list[list[Part]]:
        """The parts of each task."""
        parts = self(rows)
        size = max(-(-sum(map(part_bytes, parts)) // self._processors), MIN_TASK_BYTES)
        return [[part for _, part in group] for group in part_groups([(None, part) for part in parts], size)] or [[]]


def _view(frame: DataFrame, name: str) -> None:
    quoted = name.replace("`", "``")
    frame.createOrReplaceTempView(f"`{quoted}`")
