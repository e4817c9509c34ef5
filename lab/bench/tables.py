"""Tables that follow a log: catch-up into Iceberg by threads and by Spark, and from a put to a row that can be read.

The catch-ups take turns, each into an empty folder, in a warm session of Spark's. While the tables follow a writer,
each message counts: from its store time to the time of the snapshot that has its row.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lab.bench import messages
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.processes import start_child
from lab.bench.setting import Setting
from reput import MessageStore
from reput.jobs.lake import ExportOptions, export, follow
from reput.jobs.runner import LocalRunner, Runner
from reput.spark.runner import SparkRunner
from reput.spark.session import job_session

_CORES = 2
_JSON_MESSAGES = 1_000_000
_RATE = 50_000
#: Seconds of the writer, by the interval between two runs.
_SECONDS = {1: 20.0, 10: 40.0}
_QUICK_SECONDS = 3.0


class _CatchUp(NamedTuple):
    store: str
    messages: int
    runner: Runner
    decode: str
    rate: Figure


def measure(setting: Setting) -> list[Figure]:
    """Rates of catch-ups, then ages of messages under a writer."""
    figures = _catching_up(setting)
    for interval_s in _SECONDS:
        figures += _following(setting, interval_s)
    return figures


def _catching_up(setting: Setting) -> list[Figure]:
    decoded, count = setting.folder("json"), setting.count(_JSON_MESSAGES)
    bodies = _json_bodies(count)
    with MessageStore.open(decoded, flush_disk_type="ASYNC_FLUSH") as store:
        store.put_arrow(pa.table({"topic": pa.array([messages.TOPIC]).take(np.zeros(count, np.int32)), "body": bodies}))
    spark = job_session(f"local[{_CORES}]")
    try:
        threads, executors = LocalRunner(_CORES), SparkRunner(spark)
        sides = [
            _CatchUp(setting.stock(), setting.stock_count, threads, "raw", _rate("threads")),
            _CatchUp(decoded, count, threads, "json", _rate("JSON bodies as columns, threads")),
            _CatchUp(setting.stock(), setting.stock_count, executors, "raw", _rate("Spark on two cores")),
        ]
        sides[1].rate.note = f"six fields, {bodies.nbytes // count - 4} bytes a body; the schema is inferred"
        sides[2].rate.goal = Goal(least=1_000_000)
        for i in range(1 + setting.repeats):
            for side in sides:
                seconds = _catch_up(setting, side)
                if i:  # the first round has taken memory from the host, and warmed Spark's workers
                    side.rate.values.append(side.messages / seconds)
    finally:
        spark.stop()
    setting.remove(decoded)
    return [side.rate for side in sides]


def _rate(means: str) -> Figure:
    return Figure(f"Iceberg, catch-up, {means}", "msg/s")


def _catch_up(setting: Setting, side: _CatchUp) -> float:
    """Seconds of one export into an empty folder."""
    output = setting.folder("exported")
    options = ExportOptions(format="iceberg", decode=side.decode)
    with stopwatch() as watch:
        result = export(side.store, output, runner=side.runner, options=options)
    if result.messages != side.messages:
        raise AssertionError(f"{result.messages} of {side.messages} messages are in the table")
    setting.remove(output)
    return watch.seconds


def _json_bodies(rows: int) -> pa.Array:
    """Orders as JSON objects of six fields, a binary array."""
    numbers = pa.array(np.arange(rows))
    texts = numbers.cast(pa.string())
    return pc.binary_join_element_wise(
        '{"id": ', texts, ', "price": ', pc.divide(numbers, 8.0).cast(pa.string()), ', "customer": "customer-', texts,
        '", "paid": true, "region": "eu-central", "note": "left at the neighbour\'s door"}', "",
    ).cast(pa.binary())  # fmt: skip


def _following(setting: Setting, interval_s: int) -> list[Figure]:
    """A writer of its own process puts 50 000 messages a second."""
    name = f"Iceberg, from put to readable row, 50 k msg/s, interval of {interval_s} s"
    median, most = Figure(f"{name}, p50", "s"), Figure(f"{name}, p99", "s")
    if interval_s == 1:
        most.goal = Goal(most=5)
    path, output = setting.folder("stream"), setting.folder("exported")
    MessageStore.open(path).close()
    seconds = _QUICK_SECONDS if setting.quick else setting.seconds(_SECONDS[interval_s])
    options, runs = ExportOptions(format="iceberg"), 0
    with start_child("put_at_rate", path, str(_RATE), str(seconds)) as writer:
        pauses = _pauses(writer, interval_s)
        for result in follow(path, output, runner=LocalRunner(), wait=lambda: next(pauses), options=options):
            runs += result.commits
        count = int(float(writer.communicate()[0]))
    ages = _ages_s(output, count)
    median.values.append(float(np.quantile(ages, 0.5)))
    most.values.append(float(np.quantile(ages, 0.99)))
    median.note = f"{count:,} messages in {runs} snapshots"
    setting.remove(path)
    setting.remove(output)
    return [median, most]


def _pauses(writer: subprocess.Popen[bytes], interval_s: float) -> Iterator[bool]:
    """Wait before each run; the last run begins when the writer has ended."""
    has_ended = False
    while not has_ended:
        has_ended = writer.poll() is not None
        time.sleep(interval_s)
        yield True
    yield False


def _ages_s(output: str, count: int) -> npt.NDArray[np.float64]:
    """Of each of `count` messages the seconds from its store time to the time of the snapshot that has its row."""
    from pyiceberg.catalog.sql import SqlCatalog

    with SqlCatalog("reput", uri=f"sqlite:///{output}/catalog.db") as catalog:
        table = catalog.load_table("reput.messages")
        rows = table.scan(selected_fields=("commit_log_offset", "store_timestamp")).to_arrow()
        snapshots: list[Any] = table.snapshots()
    offsets = rows["commit_log_offset"].to_numpy()
    if rows.num_rows != count or np.unique(offsets).size != count:
        raise AssertionError(f"the table has {rows.num_rows} rows of {count} messages")
    ends = np.array([int(snapshot.summary["reput.endOffset"]) for snapshot in snapshots])
    readable_ms = np.array([snapshot.timestamp_ms for snapshot in snapshots])
    put_ms = rows["store_timestamp"].cast(pa.int64()).to_numpy() // 1000
    ages_s: npt.NDArray[np.float64] = (readable_ms[np.searchsorted(ends, offsets, side="right")] - put_ms) / 1000
    return ages_s
