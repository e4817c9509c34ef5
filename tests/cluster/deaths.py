"""Processes of a cluster that die by SIGKILL at a chosen point: once, for a marker file says that it has been.

Run in tasks. They travel by value, as executors have reput alone and nothing of these tests.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from reput.jobs.runner import Progress, Runner

#: Who dies: the worker that runs this code, the workers beside it (one of them reads), the executor, which is a JVM, or
#: the driver program.
WORKER, SIBLINGS, EXECUTOR, DRIVER = "worker", "siblings", "executor", "driver"


def die_once(marker: str, victim: str, driver: int = 0) -> None:
    """Kill `victim`, unless the marker is there already; returns if this process is to live on.

    Args:
        driver: The driver program's process id, where it is the victim.
    """
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    daemon = os.getppid()
    if victim == EXECUTOR:
        os.kill(_parent(daemon), signal.SIGKILL)
    elif victim == SIBLINGS:
        children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
        for child in {int(child) for child in children} - {os.getpid()}:
            os.kill(child, signal.SIGKILL)
        return
    elif victim == DRIVER:
        os.kill(driver, signal.SIGKILL)
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def dying_reader(marker: str, victim: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: passes its rows on; a death comes behind the first batch."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            die_once(marker, victim)

    return pass_on


class DyingRunner:
    """A runner with a death in one phase of a job.

    Args:
        description: of the phase.
        point: `module.function` of reput; the death comes when it has returned for the first time.
    """

    def __init__(self, runner: Runner, description: str, point: str, marker: str, victim: str) -> None:
        self._runner = runner
        self._description = description
        self._death = (point, marker, victim, os.getpid())

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        description: str,
        progress: Progress | None = None,
    ) -> list[Any]:
        if description == self._description:
            task = partial(_run_and_die, task, self._death)
        return self._runner.run(task, items, description=description, progress=progress)


def _run_and_die(task: Callable[[Any], Any], death: tuple[str, str, str, int], item: Any) -> Any:
    import importlib

    point, *how = death
    module_name, _, name = point.rpartition(".")
    module = importlib.import_module(module_name)
    function = getattr(module, name)

    def dying(*arguments: Any) -> Any:
        result = function(*arguments)
        die_once(*how)
        return result

    setattr(module, name, dying)
    try:
        return task(item)
    finally:
        setattr(module, name, function)
