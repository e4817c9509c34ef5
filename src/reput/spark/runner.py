"""SparkRunner: a job's tasks in Spark executors, by `range` and `mapInArrow`.

The data of a job never crosses into the JVM: a task reads files and writes files, and what travels is the item that it
gets and the small result that it returns, both pickled. `mapInArrow` and not the RDD interface, as Spark Connect has
none of that.
"""

from __future__ import annotations

import importlib.util
import logging
import pickle
import re
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from reput.errors import ConfigError, ReputError
from reput.jobs.runner import LocalRunner, Progress, Runner
from reput.spark.daemon import freeze_worker
from reput.spark.session import is_local, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

#: Below this size threads are done before a cluster's session has started: two cores scan 2 to 5 GB/s of a cached log.
SPARK_FROM_BYTES = 32 << 30

_ROW = "index long, outcome binary"

_PROGRESS_INTERVAL_S = 0.1

logger = logging.getLogger("reput.spark")


class SparkRunner:
    """Runs each item of a job as one Spark task.

    Args:
        session: classic or Connect. reput must be installed where its executors run.

    Raises:
        ConfigError: the session lets two attempts of a task run at once (`spark.speculation`). Tasks write files, and
            the one that loses may still write when the job goes on.
    """

    def __init__(self, session: SparkSession) -> None:
        if session.conf.get("spark.speculation", "false") == "true":
            raise ConfigError("spark.speculation is on: reput's jobs write files in tasks, so start Spark without it")
        self.session = session

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """As `Runner.run`. A task that fails does not stop the others, and is not tried again: its error is a result.

        All items travel to every task, so an item should be a plan's line (a path, a range), not data. Spark Connect
        does not tell how far a job is: there progress jumps from 0 to the end.

        Raises:
            Exception: the error of the first item that failed, of its own type if that can be pickled, else ReputError.
            ReputError: Spark gave the job up, as where each attempt of a task died. What Java says of it is logged as
                debug information.
        """
        report = progress or (lambda done, total, description: None)
        report(0, len(items), description)
        if not items:
            return []
        group = f"reput-{uuid.uuid4().hex}"
        with ThreadPoolExecutor(1, thread_name_prefix="reput-spark") as pool:
            job = pool.submit(self._outcomes, task, items, group, description)
            while not wait([job], timeout=_PROGRESS_INTERVAL_S).done:
                report(self._finished_tasks(group), len(items), description)
            outcomes = job.result()
        report(len(items), len(items), description)
        results = []
        for index in range(len(items)):
            error, result = pickle.loads(outcomes[index])
            if error is not None:
                raise error
            results.append(result)
        return results

    def _outcomes(self, task: Callable[[T], R], items: Sequence[T], group: str, description: str) -> dict[int, bytes]:
        """Run one Spark job and collect the pickled outcome of each item, by the item's index."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        def run_items(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield pa.record_batch({"index": [index], "outcome": [_outcome(task, items[index])]})
            freeze_worker()

        context = getattr(self.session, "sparkContext", None)  # Spark Connect has none
        if context is not None:
            context.setJobGroup(group, description)
        try:
            rows = self.session.range(0, len(items), 1, len(items)).mapInArrow(run_items, _ROW).toArrow()
        except (Py4JError, PySparkException) as error:
            logger.debug("the job %r failed: %s", description, error)
            raise ReputError(f"{description}: Spark gave the job up: {_reason(str(error))}") from None
        return dict(zip(rows["index"].to_pylist(), rows["outcome"].to_pylist(), strict=True))

    def _finished_tasks(self, group: str) -> int:
        """How many tasks of the job group have finished, as Spark's status tracker knows it; 0 on Spark Connect."""
        context = getattr(self.session, "sparkContext", None)
        if context is None:
            return 0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage)


def choose_runner(name: Literal["auto", "local", "spark"], *, total_bytes: int, master: str | None = None) -> Runner:
    """The runner that a user's `--runner` and `--master` mean for a job over `total_bytes` of files.

    `auto` takes Spark only where it can be faster: on a cluster (a `master` that is not `local`), for 32 GiB or more.
    On one machine threads have the same processors and start at once.

    Raises:
        ConfigError: the name is none of the three, Spark is asked for and pyspark is not installed, or a master is
            named for the runner that has none.
    """
    if name not in ("auto", "local", "spark"):
        raise ConfigError(f"unknown runner {name!r}: auto, local or spark")
    if name == "local" and master is not None:
        raise ConfigError(f"the runner local is this process and has no master: leave {master!r} out, or run on spark")
    installed = importlib.util.find_spec("pyspark") is not None
    if name == "auto":
        cluster = master is not None and not is_local(master)
        name = "spark" if cluster and installed and total_bytes >= SPARK_FROM_BYTES else "local"
    if name == "local":
        return LocalRunner()
    if not installed:
        raise ConfigError("the runner spark needs pyspark: pip install 'reput[spark]'")
    return SparkRunner(session(master or "local[*]"))


def _reason(text: str) -> str:
    """The line of an error of Spark's that says why the job ended."""
    aborted = re.search(r"Job aborted due to stage failure: *(.*\S)", text)
    return aborted[1].rstrip(":") if aborted else text.strip().partition("\n")[0]


def _outcome(task: Callable[[Any], Any], item: Any) -> bytes:
    """Run one task in a worker: `(None, result)` or `(error, None)`, pickled."""
    try:
        return _pickled(None, task(item))
    except Exception as error:
        note = f"in a Spark task:\n{traceback.format_exc()}"
        error.add_note(note)
        try:
            outcome = _pickled(error, None)
            pickle.loads(outcome)  # an error whose arguments are not those of its class pickles, and cannot be loaded
        except Exception:
            plain = ReputError(f"{type(error).__name__}: {error}")
            plain.add_note(note)
            return _pickled(plain, None)
        return outcome


def _pickled(error: Exception | None, result: object) -> bytes:
    """What `SparkRunner.run` unpickles; by Spark's pickler, which takes functions and classes of a notebook too."""
    from pyspark import cloudpickle

    return cloudpickle.dumps((error, result))  # type: ignore[no-untyped-call, no-any-return]
