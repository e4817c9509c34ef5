"""Runners of a job's tasks: the `Runner` protocol, and `LocalRunner` with threads of this process.

A job is a plan, a pure task for one item of the plan, and a merge of the small results. The task does not know its
runner: the same function runs in a thread here, or in a Spark executor (`reput.spark.runner`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

from reput.jobs.arguments import check_arguments
from reput.progress import Progress, silent

T = TypeVar("T")
R = TypeVar("R")

#: Results that `run_in_turns` has at once: Spark starts as many tasks for a job.
AT_ONCE = 4096


class Runner(Protocol):
    """Runs one task function over many items."""

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """The results of `task(item)`, in the order of the items; the first error of a task is raised.

        `task` and the items must be picklable, and a result should be small: on Spark all three travel.
        `progress` counts tasks: it is called with 0 first and with all of them last.
        """
        ...


class LocalRunner:
    """Runner with threads of this process. Kernels run in parallel, as they release the interpreter lock.

    Args:
        threads: tasks that run at once; None: as many as this process has processors.
    """

    def __init__(self, threads: int | None = None) -> None:
        check_arguments(threads=threads)
        self.threads = threads or len(os.sched_getaffinity(0))

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """As `Runner.run`. After an error no further task is started, and running tasks are waited for."""
        report = progress or silent
        report(0, len(items), description)
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="reput-job")
        try:
            futures = [pool.submit(task, item) for item in items]
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                report(done, len(items), description)
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)


def run_in_turns(
    runner: Runner,
    task: Callable[[T], R],
    items: Sequence[T],
    *,
    description: str,
    progress: Progress | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[list[R]]:
    """Run `task(item)` for each item, and yield the results of the next `at_once` items: for results that are merged.

    `progress` counts all items.
    """
    for begin in range(0, len(items), at_once) or [0]:

        def report(done: int, total: int, description: str, begin: int = begin) -> None:
            if progress is not None and (begin == 0 or done):
                progress(begin + done, len(items), description)

        yield runner.run(task, items[begin : begin + at_once], description=description, progress=report)
