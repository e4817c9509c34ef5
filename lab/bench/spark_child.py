"""The processes of `spark_cores`: `python -m lab.bench.spark_child WHAT ARGUMENTS`, which prints its numbers."""

from __future__ import annotations

import os
import shutil
import sys
import time

from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner, Runner
from reput.jobs.statistics.job import statistics


def process_rates(path: str, output: str, seconds: str, begin: str) -> list[float]:
    """Messages a second of statistics and of a rebuild's first phase in one thread, from the time `begin` on."""
    return _rates(path, output, LocalRunner(1), float(seconds), float(begin))


def spark_rates(path: str, output: str, seconds: str, master: str) -> list[float]:
    """The same as Spark jobs; then the memory of the worker that had most, in MB, after it read all columns too."""
    from reput.spark import read_log, session
    from reput.spark.runner import SparkRunner

    spark = session(master)
    read_log(spark, path).write.format("noop").mode("append").save()
    runner = SparkRunner(spark)
    rates = _rates(path, output, runner, float(seconds), 0)
    (memory,) = runner.run(most_resident_mb_of_workers, [0], description="memory")
    spark.stop()
    return [*rates, max(memory)]


def _rates(path: str, output: str, runner: Runner, seconds: float, begin: float) -> list[float]:
    """One unmeasured round of each job, then as many as begin in `seconds`."""

    def count() -> tuple[int, float]:
        counted = statistics(path, runner=runner)
        return counted.messages, counted.seconds

    def build() -> tuple[int, float]:
        built = rebuild(path, f"{output}/rebuilt", runner=runner, index=False)
        shutil.rmtree(f"{output}/rebuilt")
        return built.messages, built.phase_seconds["scan"]

    count()
    build()
    rates = []
    for job in (count, build):
        time.sleep(max(begin - time.time(), 0))
        end, messages, spent = time.time() + seconds, 0, 0.0
        while time.time() < end:
            done, took = job()
            messages, spent = messages + done, spent + took
        rates.append(messages / spent)
        begin += 2 * seconds
    return rates


def most_resident_mb_of_workers(_: int) -> list[float]:
    daemon = os.getppid()
    with open(f"/proc/{daemon}/task/{daemon}/children") as children:
        return [_most_resident_mb(worker) for worker in children.read().split()]


def _most_resident_mb(process: str) -> float:
    with open(f"/proc/{process}/status") as lines:
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    _, what, *arguments = sys.argv
    print(*globals()[what](*arguments))
