"""Gain of a second core for a fused stage on Spark, beside its gain for two processes without Spark."""

from __future__ import annotations

import time

from lab.bench.figures import Figure, Goal
from lab.bench.processes import run_children
from lab.bench.setting import Setting, fill

_CHILD = "lab.bench.spark_child"
_JOBS = ("statistics", "rebuild, first phase,")
_SECONDS = 10.0
#: For two processes to load everything and to do an unmeasured round, so that they work at the same time.
_START_S = 20.0


def measure(setting: Setting) -> list[Figure]:
    """Gains: messages a second of two cores divided by those of one; and the memory of a worker."""
    path = setting.folder("cores")
    fill(path, setting.count(10_000_000))
    seconds = str(min(_SECONDS * setting.scale, _SECONDS))
    gains = [Figure(f"{job} on Spark, gain of a second core, part of the machine's", "x") for job in _JOBS]
    machine = [Figure(f"{job} in one thread, gain of a second process", "x") for job in _JOBS]
    memory = Figure("most resident memory of a Spark worker: all columns, statistics, rebuild", "MB")
    memory.goal = Goal(most=1000)
    for _ in range(setting.repeats):
        one, two = (_spark_rates(setting, path, seconds, cores) for cores in (1, 2))
        memory.values.append(max(one.pop(), two.pop()))
        alone, beside = (_process_rates(setting, path, seconds, count) for count in (1, 2))
        for i, (gain, by_processes) in enumerate(zip(gains, machine, strict=True)):
            by_processes.values.append(beside[i] / alone[i])
            gain.values.append(two[i] / one[i] / by_processes.values[-1])
            gain.goal = Goal(least=0.85)
            gain.note = f"last round: Spark {one[i] / 1e6:.2f} and {two[i] / 1e6:.2f} M msg/s"
            by_processes.note = f"last round: {alone[i] / 1e6:.2f} and {beside[i] / 1e6:.2f} M msg/s"
    setting.remove(path)
    return [*gains, *machine, memory]


def _spark_rates(setting: Setting, path: str, seconds: str, cores: int) -> list[float]:
    call = ("spark_rates", path, setting.folder("rebuilt"), seconds, f"local[{cores}]")
    return run_children(_CHILD, [call])[0]


def _process_rates(setting: Setting, path: str, seconds: str, count: int) -> list[float]:
    """Messages a second of each job, of so many processes together."""
    begin = str(time.time() + min(_START_S * setting.scale, _START_S))
    outputs = [setting.folder(f"rebuilt-{number}") for number in range(count)]
    rates = run_children(_CHILD, [("process_rates", path, output, seconds, begin) for output in outputs])
    return [sum(of_job) for of_job in zip(*rates, strict=True)]
