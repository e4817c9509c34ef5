"""Reading a whole log as Arrow, all columns."""

from __future__ import annotations

from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.setting import Setting
from reput import read_log


def measure(setting: Setting) -> list[Figure]:
    """Messages a second, after a round that is not measured."""
    figure = Figure("read_log, all columns", "msg/s", goal=Goal(least=3_000_000))
    figure.limit = setting.records_limit("memcpy, one thread")
    for i in range(1 + setting.repeats):
        with stopwatch() as watch:
            rows = sum(batch.num_rows for batch in read_log(setting.stock()))
        if rows != setting.stock_count:
            raise AssertionError(f"{rows} of {setting.stock_count} messages were read")
        if i:
            figure.values.append(setting.stock_count / watch.seconds)
    return [figure]
