"""Reading a log in Spark: the first query, warm ones, what pruning leaves, and the memory of a worker.

All in one session of two processors, on a log in the page cache. The JVM bounds a rate: it takes no rows faster than by
`mapInArrow` from tasks that have them ready. The log is so long that planning and tasks, which a figure of their own
has, are a small part of a rate.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lab.bench import messages
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.setting import Setting, fill
from reput.files import DISK
from reput.formats.record_layout import BLANK_SIZE
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import read_part
from reput.log.selection import make_selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNT = 4_000_000
_FEW_MESSAGES = 1000
_YEAR_MS, _HOUR_MS = 365 * 24 * 3_600_000, 3_600_000
_BEGIN_MS = 1_700_000_000_000
_STORE_TIMESTAMP = 56
_FEW = ["topic", "queue_id", "queue_offset", "store_timestamp", "store_size"]
_NESTED = {"keys", "properties"}


def measure(setting: Setting) -> list[Figure]:
    """Messages a second into an aggregate that uses every column, seconds of pruned reads, and memory."""
    from reput.kernels.records.record_batch import SCHEMA
    from reput.spark import session

    store, count = setting.folder("spark-source"), setting.count(_COUNT)
    fill(store, count)
    spark = session("local[2]", "bench")
    try:
        flat = [name for name in SCHEMA.names if name not in _NESTED]
        figures = [_first(setting, spark, store, count)]
        for name, columns, least in (
            ("all columns", list(SCHEMA.names), 600_000),
            ("without maps and lists", flat, 900_000),
            ("five small columns", _FEW, 3_000_000),
        ):
            figures.append(_rate(setting, spark, store, count, name, columns, least))
        figures.append(_short(setting, spark))
        figures += _pruned(setting, spark, store, count)
        figures.append(_worker_memory(setting, spark))
    finally:
        spark.stop()
        shutil.rmtree(store)
    return figures


def _first(setting: Setting, spark: SparkSession, store: str, count: int) -> Figure:
    from reput.spark import read_log

    figure = Figure("spark source, five small columns, first query of a session", "s")
    figure.note = "the JVM: it loads Spark's classes, and compiles them"
    with stopwatch() as watch:
        _aggregate(read_log(spark, store, _FEW), count)
    figure.values.append(watch.seconds)
    return figure


def _rate(
    setting: Setting, spark: SparkSession, store: str, count: int, name: str, columns: list[str], least: int
) -> Figure:
    """In turns with rows that are ready; the first round does not count."""
    from reput.spark import read_log

    figure = Figure(f"spark source, {name}", "msg/s", goal=Goal(least=least))
    ready = []
    for i in range(1 + setting.repeats):
        rates = []
        for frame in (read_log(spark, store, columns), _ready(spark, store, columns, count)):
            gc.collect()
            with stopwatch() as watch:
                _aggregate(frame, count)
            rates.append(count / watch.seconds)
        if i:
            figure.values.append(rates[0])
            ready.append(rates[1])
    figure.limit = ("the JVM: mapInArrow of rows that are ready", median(ready))
    return figure


def _short(setting: Setting, spark: SparkSession) -> Figure:
    """Seconds of a query that reads next to nothing: planning, generated code and two tasks, a part of each rate."""
    from reput.spark import read_log

    figure = Figure(f"spark source, five small columns of {_FEW_MESSAGES} messages", "s")
    figure.note = "what a warm query costs before it reads"
    store = setting.folder("spark-source-short")
    fill(store, _FEW_MESSAGES)
    for i in range(1 + setting.repeats):
        with stopwatch() as watch:
            _aggregate(read_log(spark, store, _FEW), _FEW_MESSAGES)
        if i:
            figure.values.append(watch.seconds)
    setting.remove(store)
    return figure


def _aggregate(frame: DataFrame, count: int) -> None:
    """Use every column: sums of numbers and of lengths, by topic."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, TimestampType

    sums = []
    for field in frame.schema.fields:
        column = F.col(field.name)
        if isinstance(field.dataType, ArrayType | MapType):
            column = F.size(column)
        elif isinstance(field.dataType, BinaryType | StringType):
            column = F.length(column)
        elif isinstance(field.dataType, TimestampType):
            column = F.unix_seconds(column)
        sums.append(F.sum(column).alias(f"sum_{field.name}"))
    rows = frame.groupBy("topic").agg(F.count("*").alias("count"), *sums).collect()
    found = sum(row["count"] for row in rows)
    if found != count:
        raise AssertionError(f"{found} of {count} messages were read")


def _ready(spark: SparkSession, store: str, columns: list[str], count: int) -> DataFrame:
    """Two tasks that hand over one batch of Arrow again and again, until each has given half of `count` rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from reput.spark.daemon import freeze_worker
    from reput.spark.schema import spark_schema

    selection = make_selection(columns=columns, store="bench")
    part = plan_read(StoreDirectory(store), selection, PlanOptions(processors=2)).parts[0]
    schema = spark_schema(selection.columns)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    halves = [count // 2, count - count // 2]

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                batch = pa.RecordBatch.from_arrays(next(read_part(part, selection, DISK)).columns, schema=arrow_schema)
                left = halves[number]
                while left > 0:
                    yield batch.slice(0, left)
                    left -= batch.num_rows
        freeze_worker()

    return spark.range(0, 2, 1, 2).mapInArrow(rows, schema)


def _pruned(setting: Setting, spark: SparkSession, store: str, count: int) -> list[Figure]:
    """Seconds of an hour of a year, and of one key; the log gets times of a year for it."""
    from reput.spark import read_log

    hour = Figure("spark source, an hour of a year, statistics there", "s")
    key = Figure("spark source, a key by the index", "s")
    _spread_over_a_year(store, count)
    statistics = setting.folder("spark-statistics")
    floor: list[float] = []
    begin = _BEGIN_MS + _YEAR_MS // 2
    in_hour = {"statistics": statistics, "begin": begin, "end": begin + _HOUR_MS - 1}
    for i in range(1 + setting.repeats):
        asked: list[tuple[list[float], dict[str, Any], int]] = [
            (hour.values, in_hour, count * _HOUR_MS // _YEAR_MS),
            (key.values, {"keys": [messages.key(count // 2)]}, 1),
        ]
        for values, arguments, expected in asked:
            with stopwatch() as watch:
                found = read_log(spark, store, ["queue_offset"], **arguments).count()
            if abs(found - expected) > 1:
                raise AssertionError(f"{found} rows instead of {expected}")
            if i:
                values.append(watch.seconds)
        with stopwatch() as watch:
            spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long").count()
        if i:
            floor.append(watch.seconds)
    shutil.rmtree(statistics)
    hour.limit = key.limit = ("the JVM: mapInArrow of one row", median(floor))
    return [hour, key]


def _spread_over_a_year(store: str, count: int) -> None:
    """Give the records store times that spread over a year: no CRC covers them, and all records have one size."""
    times = (_BEGIN_MS + np.arange(count) * _YEAR_MS // count).astype(">i8").view(np.uint8).reshape(count, 8)
    for file in StoreDirectory(store).log_files():
        rows = min(len(times), (file.size - BLANK_SIZE) // messages.RECORD_SIZE)
        if rows:
            log = np.memmap(file.path, np.uint8, "r+", shape=(rows * messages.RECORD_SIZE,)).reshape(rows, -1)
            log[:, _STORE_TIMESTAMP : _STORE_TIMESTAMP + 8] = times[:rows]
            times = times[rows:]


def _worker_memory(setting: Setting, spark: SparkSession) -> Figure:
    """The most memory that a Python worker of this session has had, all columns read."""
    figure = Figure("spark source, most resident memory of a Python worker", "MB", goal=Goal(most=1000))

    def peak(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import resource

        for _ in batches:
            pass
        yield pa.record_batch({"kb": pa.array([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss], pa.int64())})

    for _ in range(setting.repeats):
        rows = spark.range(0, 2, 1, 2).mapInArrow(peak, "kb long").collect()
        figure.values.append(max(row.kb for row in rows) / 1024)
    return figure
