"""Reading a log in Spark: first, first in a process, and warm; what pruning leaves; and the memory of a worker.

All in one session of two processors, on a log in the page cache. Two limits bound a rate: the JVM, which takes no rows
faster than from a task that has them ready, and the kernels, which make the same batches in two threads without Spark.
Beside the source the same rows come by `mapInArrow`: no source does better, as that stage is nothing but both together.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lab.bench import messages
from lab.bench.figures import Figure, Goal, lower, stopwatch
from lab.bench.setting import Setting, fill
from reput.files import DISK
from reput.formats.record_layout import BLANK_SIZE
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import Part, read_part
from reput.log.selection import Selection, make_selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNT, _LARGE_COUNT = 1_000_000, 10_000_000
_YEAR_MS, _HOUR_MS = 365 * 24 * 3_600_000, 3_600_000
_BEGIN_MS = 1_700_000_000_000
_STORE_TIMESTAMP = 56
_FEW = ["topic", "queue_id", "queue_offset", "store_timestamp", "store_size"]
_NESTED = {"keys", "properties"}


def measure(setting: Setting) -> list[Figure]:
    """Messages a second into an aggregate that uses every column, bytes that pruned reads touch, and memory."""
    return _measure(setting, setting.count(_COUNT))


def measure_large(setting: Setting) -> list[Figure]:
    """The same of ten times as many messages."""
    count = setting.count(_LARGE_COUNT)
    figures = _measure(setting, count)
    for figure in figures:
        figure.name += f", {count / 1e6:g} M messages"
    return figures


def _measure(setting: Setting, count: int) -> list[Figure]:
    from reput.kernels.records.record_batch import SCHEMA
    from reput.spark import session

    store = setting.folder("spark-source")
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
            figures += _rates(setting, spark, store, count, name, columns, least)
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


def _rates(
    setting: Setting, spark: SparkSession, store: str, count: int, name: str, columns: list[str], least: int
) -> list[Figure]:
    """First in this process, then in turns: the source, the same rows by mapInArrow, and what bounds both."""
    from reput.spark import read_log

    first = Figure(f"spark source, {name}, first query of these columns", "msg/s")
    warm = Figure(f"spark source, {name}", "msg/s", goal=Goal(least=least))
    direct = Figure(f"spark mapInArrow of the same rows, {name}", "msg/s")
    part = Figure(f"spark source, part of mapInArrow, {name}", "of 1", goal=Goal(least=0.8))
    ready = Figure(f"spark mapInArrow of rows that are ready, {name}", "msg/s", note="the JVM's limit")
    kernels = Figure(
        f"the same Arrow batches in two threads, without Spark, {name}", "msg/s", note="the kernels' limit"
    )
    selection = make_selection(columns=columns, store="bench")
    parts = plan_read(StoreDirectory(store), selection, PlanOptions(processors=2)).parts
    for i in range(2 + setting.repeats):
        rates = []
        mapped, repeated = (_mapped(spark, parts, selection, count, ready=ready) for ready in (False, True))
        for frame in (read_log(spark, store, columns), mapped, repeated):
            gc.collect()
            with stopwatch() as watch:
                _aggregate(frame, count)
            rates.append(count / watch.seconds)
        if i == 0:
            first.values.append(rates[0])
        if i > 1:
            warm.values.append(rates[0])
            direct.values.append(rates[1])
            part.values.append(rates[0] / rates[1])
            ready.values.append(rates[2])
            kernels.values.append(count / _seconds_of_kernels(parts, selection))
    for figure in (first, warm, direct):
        figure.limit = lower(("the JVM", ready.median), ("the kernels", kernels.median))
    return [first, warm, direct, part, ready, kernels]


def _seconds_of_kernels(parts: Sequence[Part], selection: Selection) -> float:
    def read(numbered: int) -> int:
        return sum(batch.num_rows for part in parts[numbered::2] for batch in read_part(part, selection, DISK))

    with stopwatch() as watch:
        LocalRunner(2).run(read, [0, 1], description="read")
    return watch.seconds


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


def _mapped(spark: SparkSession, parts: Sequence[Part], selection: Selection, count: int, *, ready: bool) -> DataFrame:
    """Two tasks that hand over Arrow: each reads a half, the best that Spark can be given from Python.

    With `ready` each reads its first batch only, and hands that over until it has given half of `count` rows.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from reput.spark.daemon import freeze_worker
    from reput.spark.schema import spark_schema

    schema = spark_schema(selection.columns)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    halves = [count // 2, count - count // 2]

    def read(number: int) -> Iterator[pa.RecordBatch]:
        for part in parts[number::2]:
            for found in read_part(part, selection, DISK):
                yield pa.RecordBatch.from_arrays(found.columns, schema=arrow_schema)

    def repeat(rows: int) -> Iterator[pa.RecordBatch]:
        batch = next(read(0))
        while rows > 0:
            yield batch.slice(0, rows)
            rows -= batch.num_rows

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from repeat(halves[number]) if ready else read(number)
        freeze_worker()

    return spark.range(0, 2, 1, 2).mapInArrow(rows, schema)


def _pruned(setting: Setting, spark: SparkSession, store: str, count: int) -> list[Figure]:
    """Part of the log that an hour of a year and one key touch; the log gets times of a year for it."""
    from reput.spark import read_log
    from reput.spark.plan_report import reports

    hour = Figure("spark source, an hour of a year: part of the log's bytes", "of 1", goal=Goal(most=0.02))
    hour_rows = Figure("spark source, an hour of a year, statistics there", "s")
    key = Figure("spark source, a key by the index: records read", "records", goal=Goal(most=8))
    key_rows = Figure("spark source, a key by the index", "s")
    key_only = {"keys": [messages.key(count // 2)]}
    _spread_over_a_year(store, count)
    statistics = setting.folder("spark-statistics")
    floor = Figure("spark mapInArrow of one row", "s", note="a query's limit: the JVM's planning and one task")
    begin = _BEGIN_MS + _YEAR_MS // 2
    for i in range(1 + setting.repeats):
        for figure, rate, arguments, expected in (
            (hour, hour_rows, {"begin": begin, "end": begin + _HOUR_MS - 1}, count * _HOUR_MS // _YEAR_MS),
            (key, key_rows, key_only, 1),
        ):
            kept = statistics if figure is hour else None
            with stopwatch() as watch:
                frame = read_log(spark, store, ["queue_offset"], statistics=kept, **arguments)
                found = frame.count()
            if abs(found - expected) > 1:
                raise AssertionError(f"{found} rows instead of {expected}")
            if i:
                (report,) = reports(frame)
                used = count * messages.RECORD_SIZE
                figure.values.append(report.read_bytes / (used if figure is hour else messages.RECORD_SIZE))
                rate.values.append(watch.seconds)
        with stopwatch() as watch:
            spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long").count()
        if i:
            floor.values.append(watch.seconds)
    shutil.rmtree(statistics)
    hour_rows.limit = key_rows.limit = ("mapInArrow of one row", floor.median)
    return [hour, hour_rows, key, key_rows, floor]


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
