"""A rebuild beside what its kernels do without a file, on threads and on Spark, and what a second core gives it."""

from __future__ import annotations

import time

from lab.bench.figures import Figure, Goal
from lab.bench.processes import run_children
from lab.bench.setting import Setting, fill

_CHILD = "lab.bench.rebuild_child"
#: For two processes to load everything and to do an unmeasured round, so that they work at the same time.
_START_S = 20.0


def measure(setting: Setting) -> list[Figure]:
    """Parts of the kernels' own speed; gains of a second core; the memory of a worker. Of 1 M and 10 M messages."""
    figures = []
    for count in (1_000_000,) if setting.quick else (1_000_000, 10_000_000):
        path = setting.folder("rebuild-cores")
        fill(path, setting.count(count))
        figures += _figures(setting, path, f"{count // 1_000_000} M messages")
        setting.remove(path)
    return figures


def _figures(setting: Setting, path: str, size: str) -> list[Figure]:
    parts = {
        (runner, cores): Figure(
            f"rebuild of {size} on {runner}, {cores} core{'s' * (cores > 1)}, part of its kernels' speed", "x",
            goal=Goal(least=0.8),
        )
        for runner in ("threads", "Spark")
        for cores in (1, 2)
    }  # fmt: skip
    gains = {
        runner: Figure(f"rebuild of {size} on {runner}, gain of a second core, part of two processes'", "x",
                       goal=Goal(least=0.85))
        for runner in ("threads", "Spark")
    }  # fmt: skip
    memory = Figure(f"most resident memory of a Spark worker, rebuild of {size}", "MB", goal=Goal(most=1000))
    for _ in range(setting.repeats):
        rates = {}
        for cores in (1, 2):
            rates["threads", cores] = _local(setting, path, 1, cores)
            *rates["Spark", cores], used = _spark(setting, path, cores)
            memory.values.append(used)
        two = _local(setting, path, 2, 1)
        for key, part in parts.items():
            kernels, job = rates[key]
            part.values.append(job / kernels)
            part.note = f"last round: {job / 1e6:.2f} of {kernels / 1e6:.2f} M msg/s"
        of_processes = two[1] / rates["threads", 1][1]
        for runner, gain in gains.items():
            gain.values.append(rates[runner, 2][1] / rates[runner, 1][1] / of_processes)
            gain.note = f"last round: two processes gain {of_processes:.2f}"
    return [*parts.values(), *gains.values(), memory]


def _local(setting: Setting, path: str, processes: int, threads: int) -> list[float]:
    """Messages a second of the kernels and of the job, of so many processes together."""
    begin = str(time.time() + (min(_START_S * setting.scale, _START_S) if processes > 1 else 0))
    outputs = [setting.folder(f"rebuilt-{number}") for number in range(processes)]
    calls = [("local_rates", path, output, str(threads), begin) for output in outputs]
    return [sum(rates) for rates in zip(*run_children(_CHILD, calls), strict=True)]


def _spark(setting: Setting, path: str, cores: int) -> list[float]:
    return run_children(_CHILD, [("spark_rates", path, setting.folder("rebuilt"), str(cores))])[0]
