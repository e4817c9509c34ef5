"""Processes of a cluster that die by SIGKILL at a chosen point: once, for a marker file says that it has been.

Run in tasks. They travel by value, as executors have reput alone and nothing of these tests.
"""

from __future__ import annotations

import os
import pkgutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from reput.jobs.runner import Runner
from reput.progress import Progress
from reput.spark.source import ReputDataSource

#: Who dies: the worker that runs this code, the workers beside it (one of them reads), the executor, which is a JVM,
#: the driver program, or that with its JVM and the worker that commits.
WORKER, SIBLINGS, EXECUTOR, DRIVER, COMMITTER = "worker", "siblings", "executor", "driver", "committer"

#: A point, a marker, a victim, and the driver program's process id.
Death = tuple[str, str, str, int]


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
    if victim == COMMITTER:
        os.kill(driver, signal.SIGKILL)
    if victim in (EXECUTOR, COMMITTER):
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
        point: as of `_dying_at`.
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


def _run_and_die(task: Callable[[Any], Any], death: Death, item: Any) -> Any:
    with _dying_at(*death):
        return task(item)


@contextmanager
def _dying_at(point: str, marker: str, victim: str, driver: int) -> Iterator[None]:
    """`point` is a function of a module or of a class of reput; the death comes when it has returned."""
    place, _, name = point.rpartition(".")
    owner = pkgutil.resolve_name(place)
    function = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        die_once(marker, victim, driver)
        return result

    setattr(owner, name, dying)
    try:
        yield
    finally:
        setattr(owner, name, function)


def source_with_a_dying_commit(death: Death, batch: int) -> type[ReputDataSource]:
    """The format `reput` with a death in the commit of one batch of a stream, or of a batch write."""

    class Source(ReputDataSource):
        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return dying(super().writer(schema, overwrite))

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return dying(super().streamWriter(schema, overwrite))

    def dying(writer: Any) -> Any:
        commit = writer.commit

        def commit_and_die(messages: Any, batch_id: int = batch) -> None:
            if batch_id != batch:
                return commit(messages, batch_id)
            with _dying_at(*death):
                return commit(messages, *[batch_id] * isinstance(writer, DataSourceStreamWriter))

        writer.commit = commit_and_die
        return writer

    return Source
