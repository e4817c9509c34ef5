"""Dispatch by another process: how fast it catches up beside a rebuild, and how far it is behind a busy writer."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bench.figures import Figure, Goal
from bench.processes import start_child
from bench.setting import Setting
from reput import MessageStore
from reput.jobs.rebuild import rebuild
from reput.jobs.runner import LocalRunner, Runner
from reput.spark import session
from reput.spark.dispatch import dispatch
from reput.spark.runner import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reput.store.log_dispatch import DispatchedBatch

_RATE = 200_000
_SECONDS, _QUICK_SECONDS = 20, 3
_STARTING_S = 2


def measure(setting: Setting) -> list[Figure]:
    """Here, then as a query of Spark's; each beside the rebuild of the same log by the same means, in turns."""
    spark = session()
    try:
        figures = [_catching_up(setting, "here", None, LocalRunner())]
        figures.append(_catching_up(setting, "Spark", spark, SparkRunner(spark)))
        return [*figures, *_following(setting, spark)]
    finally:
        spark.stop()


def _catching_up(setting: Setting, name: str, spark: SparkSession | None, runner: Runner) -> Figure:
    figure = Figure(f"dispatch of a log that is there, {name}", "msg/s", note="synced; beside a rebuild, in turns")
    rebuilt: list[float] = []
    for i in range(1 + setting.repeats):
        output = setting.folder("rebuilt")
        result = rebuild(setting.stock(), output, runner=runner)
        shutil.rmtree(output)
        output = setting.folder("dispatched")
        dispatched = dispatch(setting.stock(), output, session=spark, once=True)
        shutil.rmtree(output)
        if dispatched.messages != setting.stock_count:
            raise AssertionError(f"{dispatched.messages} of {setting.stock_count} messages were dispatched")
        if i:
            figure.values.append(dispatched.messages / dispatched.seconds)
            rebuilt.append(result.messages / result.seconds)
    figure.limit = "rebuild", statistics.median(rebuilt)
    figure.goal = Goal(least=0.8 * statistics.median(rebuilt))
    return figure


def _following(setting: Setting, spark: SparkSession) -> list[Figure]:
    """A writer of its own process puts 200 000 messages a second; of each batch its oldest message counts."""
    median = Figure(
        "dispatch, behind a writer of 200 k msg/s, p50", "ms", goal=Goal(most=1000), note="append to synced"
    )
    most = Figure("dispatch, behind a writer of 200 k msg/s, most", "ms", goal=Goal(most=1000))
    lags: list[int] = []
    stop = threading.Event()
    began = time.monotonic()

    def note(batch: DispatchedBatch) -> None:
        if time.monotonic() - began > _STARTING_S:  # the first batches compile Spark's code
            lags.append(batch.lag_ms)

    path, output = setting.folder("stream"), setting.folder("dispatched")
    MessageStore.open(path).close()
    seconds = _QUICK_SECONDS if setting.quick else _SECONDS
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(dispatch, path, output, session=spark, on_batch=note, stop=stop)
        with start_child("put_at_rate", path, str(_RATE), str(seconds)) as writer:
            count = int(float(writer.communicate()[0]))
        time.sleep(1)
        stop.set()
        messages = following.result().messages
    if messages != count:
        raise AssertionError(f"{messages} of {count} messages were dispatched a second after the last one was put")
    median.values.append(statistics.median(lags))
    most.values.append(max(lags))
    return [median, most]
