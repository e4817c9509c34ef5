"""`SparkRunner`: runs a job's tasks in Spark executors, by rows of items and `mapInArrow`.

The data of a job never passes through the JVM: a task reads and writes files. Only its item and its small result are
sent, both pickled, as rows: a Spark task gets the items that it runs, and no others. `mapInArrow` is used because Spark
Connect does not have the RDD interface.
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

from reput.errors import ConfigError, ReputError
from reput.extras import require, saying_the_extra

with saying_the_extra(__name__):
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

from reput.jobs.runner import LocalRunner, Runner
from reput.progress import Progress, silent
from reput.spark.arguments import check_arguments
from reput.spark.daemon import freeze_worker
from reput.spark.session import is_local, job_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

#: Below this size threads end before a cluster's session has started: two cores scan 2 to 5 GB/s of a cached log.
SPARK_FROM_BYTES = 32 << 30

_ROW = "index long, outcome binary"

#: Spark tasks of a job, at the most: each takes the scheduler some milliseconds. Beyond them each runs several items.
_MOST_TASKS = 4096

_PROGRESS_INTERVAL_S = 0.1
#: Of the text of an item in an error.
_SHOWN_CHARACTERS = 300

logger = logging.getLogger("reput.spark")


class SparkRunner:
    """Runner that runs each item of a job as one Spark task; of more than 4096 items, each task runs several.

    Args:
        session: classic or Connect. reput must be installed where the executors run.

    Raises:
        ConfigError: the session may run two attempts of a task at once (`spark.speculation`). Tasks write files, and
            the slower attempt may still write when the job continues.
    """

    def __init__(self, session: SparkSession) -> None:
        check_arguments(session=session)
        if session.conf.get("spark.speculation", "false") == "true":
            raise ConfigError("spark.speculation is on: reput's jobs write files in tasks, so start Spark without it")
        self.session = session

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """As `Runner.run`. A failed task does not stop the others, and is not tried again: its error is its result.

        An item should be small (a path, a range). Spark Connect does not report the progress of a job: there progress
        jumps from 0 to the end.

        Raises:
            Exception: the error of the first failed item, of its own type if that can be pickled, else ReputError.
            ReputError: Spark gave the job up, for example as each attempt of a task died: the text names the items of
                that task. Java's text is logged at level DEBUG.
        """
        report = progress or silent
        report(0, len(items), description)
        if not items:
            return []
        group, tasks = f"reput-{uuid.uuid4().hex}", min(len(items), _MOST_TASKS)
        with ThreadPoolExecutor(1, thread_name_prefix="reput-spark") as pool:
            job = pool.submit(self._outcomes, task, items, tasks, group, description)
            try:
                while not wait([job], timeout=_PROGRESS_INTERVAL_S).done:
                    report(self._finished_tasks(group) * len(items) // tasks, len(items), description)
            except BaseException:
                self._cancel(group)
                raise
            outcomes = job.result()
        report(len(items), len(items), description)
        results = []
        for index in range(len(items)):
            error, result = pickle.loads(outcomes[index])
            if error is not None:
                raise error
            results.append(result)
        return results

    def _outcomes(
        self, task: Callable[[T], R], items: Sequence[T], tasks: int, group: str, description: str
    ) -> dict[int, bytes]:
        """Run one Spark job and collect the pickled outcome of each item, by the item's index."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        def run_items(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index, item in zip(batch["index"].to_pylist(), batch["item"], strict=True):
                    outcome = _outcome(task, pickle.loads(item.as_buffer()))
                    yield pa.record_batch({"index": [index], "outcome": [outcome]})
            freeze_worker()

        context = getattr(self.session, "sparkContext", None)  # Spark Connect has none
        if context is not None:
            context.setJobGroup(group, description)
        number_of_task = np.arange(len(items)) * tasks // len(items)
        try:
            done = item_rows(self.session, items, number_of_task).mapInArrow(run_items, _ROW).toArrow()
        except (Py4JError, PySparkException) as error:
            logger.debug("the job %r failed: %s", description, error)
            reason = _reason(str(error))
            failed = re.match(r"Task (\d+) in stage", reason)
            if failed is not None:
                lost = [items[index] for index in np.flatnonzero(number_of_task == int(failed[1])).tolist()]
                reason = f"{reason}; this task was to do {_shown(lost)}"
            raise ReputError(f"{description}: Spark gave the job up: {reason}") from None
        return dict(zip(done["index"].to_pylist(), done["outcome"].to_pylist(), strict=True))

    def _cancel(self, group: str) -> None:
        """End a job whose result nobody waits for; a job on Spark Connect runs to its end."""
        context = getattr(self.session, "sparkContext", None)
        if context is not None:
            context.cancelJobGroup(group)

    def _finished_tasks(self, group: str) -> int:
        """Count of tasks that have run their items, by Spark's status tracker; 0 on Spark Connect.

        Tasks of the job group's first stage, which brings items to them, do not count.
        """
        context = getattr(self.session, "sparkContext", None)
        if context is None:
            return 0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        _, *running = sorted({stage for job in jobs if job for stage in job.stageIds}) or [0]
        stages = map(tracker.getStageInfo, running)
        return sum(stage.numCompletedTasks for stage in stages if stage)


def choose_runner(name: Literal["auto", "local", "spark"], *, total_bytes: int, master: str | None = None) -> Runner:
    """Choose the runner by `--runner` and `--master`, for a job over `total_bytes` of files.

    `auto` chooses Spark only if it can be faster: on a cluster (a `master` that is not `local`), for 32 GiB or more.
    On one machine threads have the same processors and start immediately.

    Raises:
        ConfigError: an unknown name, `spark` without pyspark installed, or a master for the runner `local`.
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
    require("pyspark", "the runner spark")
    return SparkRunner(job_session(master or "local[*]"))


def _reason(text: str) -> str:
    """The line of Spark's error text with the reason why the job ended."""
    aborted = re.search(r"Job aborted due to stage failure: *(.*\S)", text)
    return aborted[1].rstrip(":") if aborted else text.strip().partition("\n")[0]


def item_rows(
    session: SparkSession, items: Sequence[object], number_of_task: npt.NDArray[np.int64] | None = None
) -> DataFrame:
    """DataFrame with a row for each item: its index, the number of its Spark task, and the item, pickled.

    number_of_task: None: a task for each item.
    """
    from pyspark import cloudpickle

    numbers = np.arange(len(items)) if number_of_task is None else number_of_task
    pickled = [cloudpickle.dumps(item) for item in items]  # type: ignore[no-untyped-call]
    table = pa.table(
        {"index": pa.array(range(len(items)), pa.int64()), "task": numbers.astype(np.int32), "item": pickled}
    )
    return session.createDataFrame(table).repartitionById(int(numbers[-1]) + 1, "task")


def _shown(items: Sequence[object]) -> str:
    """Items of a task, for an error: the first of them, and how many more there are."""
    text = str(items[0])
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    return f"{text[:_SHOWN_CHARACTERS]}{more}"


def _outcome(task: Callable[[Any], Any], item: Any) -> bytes:
    """Run one task in a worker: `(None, result)` or `(error, None)`, pickled."""
    try:
        return _pickled(None, task(item))
    except Exception as error:
        note = f"in a Spark task:\n{traceback.format_exc()}"
        error.add_note(note)
        try:
            outcome = _pickled(error, None)
            pickle.loads(outcome)  # an error with other arguments than its class takes can be pickled, but not loaded
        except Exception:
            plain = ReputError(f"{type(error).__name__}: {error}")
            plain.add_note(note)
            return _pickled(plain, None)
        return outcome


def _pickled(error: Exception | None, result: object) -> bytes:
    """Pickle an outcome for `SparkRunner.run`. Spark's pickler takes functions and classes of a notebook, too."""
    from pyspark import cloudpickle

    return cloudpickle.dumps((error, result))  # type: ignore[no-untyped-call, no-any-return]
