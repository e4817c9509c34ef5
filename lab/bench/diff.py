"""Two equal stores, message by message: both logs are read, each message of both is hashed."""

from __future__ import annotations

from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.jobs.diff.job import diff
from reput.jobs.runner import LocalRunner


def measure(setting: Setting) -> list[Figure]:
    """Messages a second, counted once for both stores."""
    runner = LocalRunner()
    name, rate = setting.records_limit("memcpy, one thread")
    copy = setting.copy(setting.stock(), "stock-diff")
    figures = []
    for by in ("log", "queue"):
        figure = Figure(f"diff by {by}", "msg/s", goal=Goal(least=2_000_000), limit=(name, rate / 2))
        figure.note = f"local, {runner.threads} threads; two logs are read"
        for i in range(1 + setting.repeats):
            result = diff(setting.stock(), copy, runner=runner, by=by)
            if result.left_messages != setting.stock_count or not result.is_equal:
                raise AssertionError(f"{result.left_messages} of {setting.stock_count} messages, {result.table}")
            if i:
                figure.values.append(result.left_messages / result.seconds)
        figures.append(figure)
    setting.remove(copy)
    return figures
