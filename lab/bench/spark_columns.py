"""Profile of Spark's source, by column: `python -m lab.bench.spark_columns [--messages N] [--rounds N]`.

Prints nanoseconds of processor time a message, of Java and of Python's workers, into Spark's sink `noop`: by the
source, by `mapInArrow` that reads the same parts, by `mapInArrow` of rows that are ready, and from Parquet files of the
same messages; and of our reader alone. All in one session of two processors, in turns; the first round does not count.
What a query of a few messages takes is taken off, and printed by itself. Two tasks and two workers keep both
processors busy, so 2e9 by the sum is the rate of two processors that nobody else uses.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import reput
from lab.bench.setting import fill
from lab.campaign.pages import markdown_table
from reput.files import DISK
from reput.kernels.records.record_batch import SCHEMA
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import Part, part_groups, read_part
from reput.log.selection import Selection, make_selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FEW = ("topic", "queue_id", "queue_offset", "store_timestamp", "store_size")
_FEW_NAME = "five small columns"
_COLUMNS = {
    _FEW_NAME: _FEW,
    "... and body": (*_FEW, "body"),
    "... and keys": (*_FEW, "keys"),
    "... and properties": (*_FEW, "properties"),
    "all columns": tuple(SCHEMA.names),
}
_FEW_MESSAGES = 1000
#: Seconds of Java and of Python of each round, by name of the columns, way, and count of messages.
_Taken = dict[tuple[str, str, int], list[tuple[float, float]]]
_WARM_UP = 1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Log:
    """A store, the same messages as Parquet, and their count."""

    store: str
    parquet: str
    count: int


def _made(folder: str, count: int) -> _Log:
    log = _Log(f"{folder}/store", f"{folder}/parquet", count)
    fill(log.store, count)
    os.makedirs(log.parquet)
    rows = 0
    writer: pq.ParquetWriter | None = None
    for batch in reput.read_log(log.store):
        if writer is None or rows >= count // 2:  # two files: a task each
            if writer is not None:
                writer.close()
            writer, rows = pq.ParquetWriter(f"{log.parquet}/{rows}.parquet", batch.schema, compression="zstd"), 0
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    return log


def _parts(log: _Log, columns: tuple[str, ...]) -> tuple[Selection, list[list[tuple[int, Part]]]]:
    selection = make_selection(columns=columns, store="store")
    plan = plan_read(StoreDirectory(log.store), selection, PlanOptions(processors=2))
    return selection, part_groups([(0, part) for part in plan.parts], -(-plan.read_bytes // 2))


def _source(spark: SparkSession, log: _Log, columns: tuple[str, ...]) -> DataFrame:
    from reput.spark import read_log

    return read_log(spark, log.store, columns)


def _map_in_arrow(spark: SparkSession, log: _Log, columns: tuple[str, ...]) -> DataFrame:
    from reput.spark.daemon import freeze_worker
    from reput.spark.schema import spark_schema

    selection, groups = _parts(log, columns)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                for _, part in groups[number]:
                    yield from read_part(part, selection, DISK)
        freeze_worker()

    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(rows, spark_schema(columns))


def _ready(spark: SparkSession, log: _Log, columns: tuple[str, ...]) -> DataFrame:
    from reput.spark.daemon import freeze_worker
    from reput.spark.schema import spark_schema

    selection, groups = _parts(log, columns)
    half = log.count // 2

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            batch, left = next(read_part(groups[0][0][1], selection, DISK)), half
            while left > 0:
                yield batch.slice(0, left)
                left -= batch.num_rows
        freeze_worker()

    return spark.range(0, 2, 1, 2).mapInArrow(rows, spark_schema(columns))


def _parquet(spark: SparkSession, log: _Log, columns: tuple[str, ...]) -> DataFrame:
    return spark.read.parquet(log.parquet).select(*columns)


_WAYS: dict[str, Callable[[SparkSession, _Log, tuple[str, ...]], DataFrame]] = {
    "source": _source,
    "mapInArrow of our reader": _map_in_arrow,
    "mapInArrow of rows that are ready": _ready,
    "Parquet": _parquet,
}


def _processes(parent: int) -> Iterator[int]:
    """All descendants of a process; threads and processes may end meanwhile."""
    for thread in _listed(f"/proc/{parent}/task"):
        for child in map(int, _text(f"/proc/{parent}/task/{thread}/children").split()):
            yield child
            yield from _processes(child)


def _listed(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _text(path: str) -> str:
    with suppress(OSError), open(path) as file:
        return file.read()
    return ""


def _processor_s() -> tuple[float, float]:
    """Seconds of processor time so far, of Java and of Python's workers."""
    java = python = 0.0
    for process in _processes(os.getpid()):
        name, _, fields = _text(f"/proc/{process}/stat").rpartition(")")
        seconds = sum(map(int, fields.split()[11:13])) / _TICKS
        if name.endswith("(java"):
            java += seconds
        else:
            python += seconds
    return java, python


def _into_noop(frame: DataFrame) -> tuple[float, float]:
    java, python = _processor_s()
    frame.write.format("noop").mode("overwrite").save()
    java_after, python_after = _processor_s()
    return java_after - java, python_after - python


def _alone(log: _Log, columns: tuple[str, ...]) -> float:
    """Seconds of our reader in this process, each batch dropped."""
    selection, groups = _parts(log, columns)
    begin = time.process_time()
    for group in groups:
        for _, part in group:
            for _ in read_part(part, selection, DISK):
                pass
    return time.process_time() - begin


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where a folder for the stores is made")
    arguments = parser.parse_args()
    from reput.spark import session

    folder = tempfile.mkdtemp(prefix="spark-columns-", dir=arguments.folder)
    spark = session("local[2]", "bench")
    try:
        many = _made(f"{folder}/many", arguments.messages)
        few = _made(f"{folder}/few", _FEW_MESSAGES)
        taken: _Taken = {}
        asked = [(many, name, way) for name in _COLUMNS for way in _WAYS] + [(few, _FEW_NAME, way) for way in _WAYS]
        for i in range(_WARM_UP + arguments.rounds):
            for log, name, way in asked:
                seconds = _into_noop(_WAYS[way](spark, log, _COLUMNS[name]))
                if i >= _WARM_UP:
                    taken.setdefault((name, way, log.count), []).append(seconds)
        alone = {name: median(_alone(many, columns) for _ in range(3)) for name, columns in _COLUMNS.items()}
    finally:
        spark.stop()
        shutil.rmtree(folder)
    print(_table(taken, alone, arguments.messages))


def _table(taken: _Taken, alone: dict[str, float], count: int) -> str:
    """A row for each set of columns, without the fixed part of a query, which is the last row, in milliseconds."""

    def middle(name: str, way: str, messages: int) -> tuple[float, float]:
        values = taken[name, way, messages]
        return median(java for java, _ in values), median(python for _, python in values)

    fixed = {way: middle(_FEW_NAME, way, _FEW_MESSAGES) for way in _WAYS}
    rows = []
    for name in _COLUMNS:
        cells = [name, f"{alone[name] / count * 1e9:.0f}"]
        for way in _WAYS:
            java, python = (
                (whole - less) / count * 1e9 for whole, less in zip(middle(name, way, count), fixed[way], strict=True)
            )
            cells.append(f"{java:.0f} + {python:.0f}")
        rows.append(cells)
    queries = [f"{java * 1e3:.0f} + {python * 1e3:.0f} ms" for java, python in fixed.values()]
    rows.append([f"a query of {_FEW_MESSAGES} messages", "", *queries])
    return markdown_table(["ns a message, Java + Python", "our reader alone", *_WAYS], rows)


if __name__ == "__main__":
    main()
