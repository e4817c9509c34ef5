"""Dispatch by another process: how fast it catches up, and how far it is behind a busy writer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from lab.bench.figures import Figure, Goal, percentile
from lab.bench.processes import start_child
from lab.bench.setting import Setting
from reput import Message, MessageStore
from reput.spark import session
from reput.spark.dispatch import DispatchResult, dispatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reput.store.dispatch.log_dispatch import DispatchedBatch

#: Messages a second of the writer, its seconds, and the goal of the lag (ms).
_WRITERS = ((50_000, 30, 2000), (200_000, 20, 1000))
_QUICK_SECONDS = 3
_LOOK_S = 0.05


def measure(setting: Setting) -> list[Figure]:
    """Here, then as a query of Spark's; then behind writers."""
    spark = session()
    try:
        rates = [_catching_up(setting, "here", None), _catching_up(setting, "on Spark", spark)]
        lags = [_following(setting, spark, *writer) for writer in _WRITERS]
        return [*rates, *(figure for lag in lags for figure in lag)]
    finally:
        spark.stop()


def _catching_up(setting: Setting, place: str, spark: SparkSession | None) -> Figure:
    rate = Figure(f"dispatch of a log that is there, {place}", "msg/s", note="synced; waiting for Spark not counted")
    for i in range(1 + setting.repeats):
        output = setting.folder("dispatched")
        dispatched = dispatch(setting.stock(), output, session=spark, once=True)
        setting.remove(output)
        if dispatched.messages != setting.stock_count:
            raise AssertionError(f"{dispatched.messages} of {setting.stock_count} messages were dispatched")
        if i:
            rate.values.append(dispatched.messages / dispatched.seconds)
    return rate


def _following(setting: Setting, spark: SparkSession, rate: int, seconds: int, goal_ms: int) -> list[Figure]:
    """A writer of its own process puts `rate` messages a second; of each batch its oldest message counts."""
    name, goal = f"dispatch, behind a writer of {rate // 1000} k msg/s", Goal(most=goal_ms)
    median = Figure(f"{name}, p50", "ms", goal=goal, note="till synced")
    most = Figure(f"{name}, p99", "ms", goal=goal)
    batches: list[DispatchedBatch] = []
    stop = threading.Event()
    path, output = setting.folder("stream"), setting.folder("dispatched")
    with MessageStore.open(path) as store:
        store.put_message(Message("orders", b"the query runs when this one is dispatched"))
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(dispatch, path, output, session=spark, on_batch=batches.append, stop=stop)
        _wait_for(batches, 1, following)
        with start_child("put_at_rate", path, str(rate), str(_QUICK_SECONDS if setting.quick else seconds)) as writer:
            count = 1 + int(float(writer.communicate()[0]))
        _wait_for(batches, count, following)
        stop.set()
        messages = following.result().messages
    setting.remove(path)
    setting.remove(output)
    if messages != count:
        raise AssertionError(f"{messages} of {count} messages were dispatched")
    settled = [float(batch.lag_ms) for batch in batches[len(batches) // 5 :]]  # the first ones compile Spark's code
    median.values.append(percentile(settled, 0.5))
    most.values.append(percentile(settled, 0.99))
    return [median, most]


def _wait_for(batches: list[DispatchedBatch], messages: int, following: Future[DispatchResult]) -> None:
    """Wait until a number of messages is dispatched, or nobody dispatches any more."""
    while sum(batch.messages for batch in batches) < messages and not following.done():
        time.sleep(_LOOK_S)
