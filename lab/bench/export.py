"""The job that writes a log as Parquet, synced, on two threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from lab.bench.apache import Broker
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.jobs.lake import export_job as job
from reput.jobs.runner import LocalRunner


def measure(setting: Setting) -> list[Figure]:
    """Messages a second of a whole run, all columns and few."""
    whole = Figure("export to Parquet, all columns, synced", "msg/s", goal=Goal(least=1_200_000))
    few = Figure("export to Parquet, four columns and bodies", "msg/s")
    output = setting.folder("exported")
    asked: list[tuple[list[float], Callable[[], float]]] = [
        (whole.values, lambda: _export(setting, output)),
        (few.values, lambda: _export(setting, output, ["store_timestamp", "tags", "keys", "unique_key", "body"])),
    ]
    broker = None
    if setting.apache is not None:
        broker = Broker(setting.copy(setting.stock(), "stock-broker"))
        whole.note = "the other: RocketMQ's client, 1000 a pull through its broker, written nowhere"
        whole.other = setting.apache.other()
        asked.append((whole.other.values, partial(broker.pull, setting.stock_count, 1_000)))
    with broker or nullcontext():
        for i in range(1 + setting.repeats):
            for values, ask in asked:
                value = ask()
                if i:  # the first round has taken memory from the host, and warmed a JVM
                    values.append(value)
    for figure in (whole, few):
        figure.limit = setting.records_limit("memcpy, two threads")
    setting.remove(output)
    return [whole, few]


def _export(setting: Setting, output: str, columns: Sequence[str] | None = None) -> float:
    """Messages a second of an export into an empty folder."""
    setting.remove(output)
    options = job.ExportOptions(columns=columns)
    result = job.export(setting.stock(), output, runner=LocalRunner(2), options=options)
    if result.messages != setting.stock_count:
        raise AssertionError(f"{result.messages} of {setting.stock_count} messages were exported")
    return result.messages / result.seconds
