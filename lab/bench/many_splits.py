"""Cost of very many splits, and topics, in jobs: `python -m lab.bench.many_splits [--counts 1000 10000] [--topics]`.

A store has a message of 1 KiB for each split. Each job runs in a process of its own, by one thread, with splits of a
message each; once with ten topics, and once (`--topics`) with a topic for each message. A line has what grows in the
driver: the processor's time of the driver's thread before the first split is read and in all, without that of tasks;
the process's most memory above that of an idle one; the largest closure that a phase sends with each task, pickled, and
the largest item; and the results of all tasks of a phase together, pickled.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reput.jobs.runner import LocalRunner
from reput.progress import Progress

JOBS = ("rebuild", "audit", "stats", "export", "diff")
_SPLIT_BYTES = 1 << 10


class _Measured(LocalRunner):
    """A thread, and what goes from and to the driver."""

    def __init__(self) -> None:
        super().__init__(1)
        self.in_tasks = 0.0
        self.planned = 0.0
        self.closure = self.item = self.results = self.tasks = 0

    def run(
        self, task: Callable[[Any], Any], items: Sequence[Any], *, description: str, progress: Progress | None = None
    ) -> list[Any]:
        from pyspark import cloudpickle

        began = time.thread_time()
        if len(items) > 1 and not self.planned:
            self.planned = began - self.in_tasks
        if items:
            self.tasks = max(self.tasks, len(items))
            closure = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
            self.closure = max(self.closure, len(closure))
            self.item = max(self.item, *(len(pickle.dumps(item)) for item in items))
        results = [task(item) for item in items]
        self.results = max(self.results, sum(len(pickle.dumps(result)) for result in results))
        self.in_tasks += time.thread_time() - began
        return results


def _put(folder: str, messages: str, topics: str) -> None:
    import pyarrow as pa

    import reput

    count, names = int(messages), int(topics)
    sizes: dict[str, Any] = {"mapped_file_size_consume_queue": 400, "message_index_enable": False}
    sizes |= {"mapped_file_size_commit_log": 1 << 20, "max_message_size": 4096}  # its last file is planned whole
    with reput.MessageStore.open(f"{folder}/store", flush_disk_type="ASYNC_FLUSH", **sizes) as store:
        for begin in range(0, count, 10_000):
            numbers = range(begin, min(count, begin + 10_000))
            of_topics = [f"topic-{number % names:06d}" for number in numbers]
            store.put_arrow(pa.table({"topic": of_topics, "body": [b"x" * 900] * len(numbers)}))


def _run(folder: str, job: str) -> None:
    """Run a job; prints seconds, MB, bytes and the count of tasks."""
    runner, store, size = _Measured(), f"{folder}/store", _SPLIT_BYTES
    call: Callable[[], object]
    if job == "rebuild":
        from reput.jobs.rebuild.job import rebuild

        call = lambda: rebuild(store, f"{folder}/rebuilt", runner=runner, split_bytes=size)  # noqa: E731
    elif job == "audit":
        from reput.jobs.audit.job import audit

        call = lambda: audit(store, runner=runner, split_bytes=size)  # noqa: E731
    elif job == "stats":
        from reput.jobs.statistics.job import statistics

        call = lambda: statistics(store, runner=runner, split_bytes=size)  # noqa: E731
    elif job == "export":
        from reput.jobs.lake import ExportOptions, export

        call = lambda: export(store, f"{folder}/out", runner=runner, options=ExportOptions(split_bytes=size))  # noqa: E731
    else:
        from reput.jobs.diff import diff

        call = lambda: diff(store, store, runner=runner, split_bytes=size)  # noqa: E731
    from pyspark import cloudpickle

    cloudpickle.dumps(None)  # type: ignore[no-untyped-call]  # its memory is none of the job's
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.thread_time()
    call()
    driver = time.thread_time() - began - runner.in_tasks
    most = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(runner.planned - began, driver, most, runner.closure, runner.item, runner.results, runner.tasks)


def _child(*arguments: str) -> list[float]:
    command = [sys.executable, "-m", "lab.bench.many_splits", "--child", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--topics", action="store_true", help="a topic for each message")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/reput-many-splits"))
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child: Callable[..., None] = {"put": _put, "run": _run}[given.child[0]]  # type: ignore[assignment]
        child(*given.child[1:])
        return
    print("| job | splits | topics | planned | driver | memory | closure | item | results | tasks |", flush=True)
    for count in given.counts:
        shutil.rmtree(given.folder, ignore_errors=True)
        given.folder.mkdir(parents=True)
        topics = count if given.topics else 10
        _child("put", str(given.folder), str(count), str(topics))
        for job in given.jobs:
            planned, driver, most, closure, item, results, tasks = _child("run", str(given.folder), job)
            print(
                f"| {job} | {count:,} | {topics:,} | {planned:.2f} s | {driver:.2f} s | {most:.0f} MB | "
                f"{closure:,.0f} B | {item:,.0f} B | {results / 1e6:.1f} MB | {tasks:,.0f} |",
                flush=True,
            )
    shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
