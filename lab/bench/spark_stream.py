"""The stream source of Spark: from an append to a visible row, idle and under load, and how fast it catches up."""

from __future__ import annotations

import statistics
import threading
import time
from typing import TYPE_CHECKING

from lab.bench.figures import Figure, Goal
from lab.bench.processes import start_child
from lab.bench.setting import Setting
from reput import Message, MessageStore
from reput.spark import read_log_stream, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RATE = 200_000
_PAUSE_S = 0.3


def measure(setting: Setting) -> list[Figure]:
    """Latencies and a rate, in one session on all processors."""
    spark = session()
    try:
        return [*_idle(setting, spark), *_loaded(setting, spark), _catching_up(setting, spark)]
    finally:
        spark.stop()


def _idle(setting: Setting, spark: SparkSession) -> list[Figure]:
    """One message each 0.3 s, from before its put to its row in a Python sink's hands."""
    p50 = Figure(
        "stream, append to visible row, idle, p50", "ms", goal=Goal(most=100), note="Spark's tasks and checkpoint"
    )
    p99 = Figure("stream, append to visible row, idle, p99", "ms")
    put_at: dict[bytes, float] = {}
    seconds: list[float] = []
    visible = threading.Event()

    def show(frame: DataFrame, _: int) -> None:
        bodies = frame.toArrow()["body"].to_pylist()
        now = time.perf_counter()
        seconds.extend(now - put_at[body] for body in bodies)
        if bodies:
            visible.set()

    path, checkpoint = setting.folder("stream"), setting.folder("checkpoint")
    with MessageStore.open(path) as store:
        rows = read_log_stream(spark, path, ["body"], starting_offsets="latest")
        query = rows.writeStream.foreachBatch(show).option("checkpointLocation", checkpoint).start()
        query.processAllAvailable()
        for i in range(5 if setting.quick else 110):
            body = b"%d" % i
            put_at[body] = time.perf_counter()
            store.put_message(Message("orders", body))
            if not visible.wait(60):
                raise AssertionError(f"no row came: {query.exception()}")
            visible.clear()
            time.sleep(_PAUSE_S)
        query.stop()
    if not setting.quick:
        del seconds[:10]  # the first ones compile Spark's code
    p50.values.append(1000 * statistics.median(seconds))
    p99.values.append(1000 * sorted(seconds)[int(0.99 * len(seconds))])
    return [p50, p99]


def _loaded(setting: Setting, spark: SparkSession) -> list[Figure]:
    """A writer of its own process puts 200 000 messages a second; the rows are counted by queue, five columns read."""
    p50 = Figure("stream, append to visible row, 200 k msg/s, p50", "ms", goal=Goal(most=1000))
    p50.note = "the JVM: a batch's planning, tasks and checkpoint, while the writer takes a core"
    p99 = Figure("stream, append to visible row, 200 k msg/s, p99", "ms", note="of each batch its oldest row")
    rate = Figure("stream, rows a second while it is written", "rows/s", note="the writer's own rate is 200 k")
    batches: list[tuple[float, float, int]] = []

    def show(frame: DataFrame, _: int) -> None:
        found = frame.selectExpr(
            "unix_millis(min(store_timestamp))", "avg(unix_millis(store_timestamp))", "count(*)", "sum(store_size)"
        ).first()
        now_ms = time.time() * 1000
        if found is not None and found[2]:
            batches.append((now_ms - found[0], now_ms - found[1], found[2]))

    path, checkpoint = setting.folder("stream"), setting.folder("checkpoint")
    MessageStore.open(path).close()
    columns = ["topic", "queue_id", "queue_offset", "store_timestamp", "store_size"]
    query = (
        read_log_stream(spark, path, columns, starting_offsets="latest")
        .writeStream.foreachBatch(show)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.processAllAvailable()
    seconds = 3 if setting.quick else 20
    with start_child("put_at_rate", path, str(_RATE), str(seconds)) as writer:
        count = int(float(writer.communicate()[0]))
    query.processAllAvailable()
    query.stop()
    if sum(rows for *_, rows in batches) != count:
        raise AssertionError(f"{sum(rows for *_, rows in batches)} of {count} rows came")
    settled = batches[len(batches) // 5 :]  # the first ones compile Spark's code, and what waited for it
    p50.values.append(statistics.median(average for _, average, _ in settled))
    p99.values.append(sorted(oldest for oldest, *_ in settled)[int(0.99 * len(settled))])
    rate.values.append(count / seconds)
    return [p50, p99, rate]


def _catching_up(setting: Setting, spark: SparkSession) -> Figure:
    """A log that is there, five small columns, in one batch."""
    figure = Figure("stream, catching up, five columns into a sum", "msg/s")
    figure.note = "one batch, its planning included: the JVM"
    columns = ["topic", "queue_id", "queue_offset", "store_timestamp", "store_size"]
    for i in range(1 + setting.repeats):
        counts: list[int] = []

        def show(frame: DataFrame, _: int, counts: list[int] = counts) -> None:
            found = frame.selectExpr("count(*)", "sum(store_size)", "sum(queue_offset)", "max(topic)").first()
            counts.append(0 if found is None else found[0])

        query = (
            read_log_stream(spark, setting.stock(), columns)
            .writeStream.foreachBatch(show)
            .option("checkpointLocation", setting.folder("checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        if sum(counts) != setting.stock_count:
            raise AssertionError(f"{sum(counts)} of {setting.stock_count} rows came")
        milliseconds = sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress)
        if i:
            figure.values.append(1000 * setting.stock_count / milliseconds)
    return figure
