"""`reput dispatch`: keep queues and index of a log up to date that another process writes."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.display.output import write_status
from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    CommitLogPath,
    Json,
    Master,
    ReportFile,
    RunnerName,
    Settings,
    Store,
    check_path,
    parse_pairs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reput.jobs.report.over_time import RateOverTime
    from reput.jobs.report.report import Report
    from reput.progress import Progress
    from reput.spark.dispatch import DispatchResult
    from reput.store.dispatch.log_dispatch import DispatchedBatch

#: Time between two lines of progress.
_LINE_EVERY_S = 1.0


def dispatch(
    store: Store,
    *,
    settings: Settings,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="DIR", callback=check_path, help="The folder to keep up to date; else the store itself."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Dispatch the records that are there, and stop.")] = False,
    commit_log_path: CommitLogPath = None,
    report: ReportFile = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Follow a log, and keep its queues and index up to date.

    The store may be open, in another process or on another machine that shares the file system. Queues, extensions and
    index go into a separate folder, or into the store's own folders if it was opened with dispatch="external". They are
    written batch by batch, each durable before the next one begins. A dispatcher that is started again continues,
    however it ended. It runs as a Structured Streaming query; with --runner local, or with --once unless --runner spark
    or --master is given, in this process.

    File sizes, extensions and light queues are as in the store's files; --set overrides them, as for `reput rebuild`. A
    line on stderr shows the progress once a second. Ctrl-C ends the dispatcher after its current batch.

    See docs/jobs/dispatch.md.

    Examples:
      reput dispatch /tmp/store --output /tmp/replica --once
      reput dispatch /tmp/store --output /tmp/replica --once --report /tmp/dispatch.html
    """
    import threading

    from reput.config.properties import snake_case
    from reput.jobs.report.over_time import RateOverTime
    from reput.spark.dispatch import dispatch as run

    pairs = {snake_case(name): value for name, value in parse_pairs(settings, "--set").items()}
    rate, stop = RateOverTime("lag in ms"), threading.Event()
    with job_run(store, report, commit_log_path=commit_log_path, shows_progress=once) as progress:
        watch = _Watch(_log_end(store, commit_log_path) if once else None, progress, rate)
        session = _session(runner_name, master, once=once)
        with interrupts.resumable(output or store), interrupts.until_stopped(stop.set, unless=once):
            result = run(
                store, output, session=session, once=once, commit_log_path=commit_log_path, settings=pairs,
                on_batch=watch, stop=stop,
            )  # fmt: skip
    end_job(_report(store, output, result, rate), report, asdict(result) if as_json else None)
    return 0


def _report(store: str, output: str | None, result: DispatchResult, rate: RateOverTime) -> Report:
    """Report: what was dispatched, how fast, and the lag."""
    from reput.jobs.report.report import Report

    facts = {name.replace("_", " "): value for name, value in asdict(result).items()}
    facts["messages a second"] = round(result.messages / result.seconds) if result.seconds else 0
    paths = {"store": store} | ({} if output is None else {"written to": output})
    return Report(f"Dispatch of {store}", facts, plots=rate.plots(), paths=paths)


def _log_end(store: str, commit_log_path: str | None) -> int:
    """End of the log as it is now."""
    from reput.log.directory import StoreDirectory
    from reput.log.sink_commits import committed_end

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    return committed_end(directory, directory.log_files())


def _session(name: str, master: str | None, *, once: bool) -> SparkSession | None:
    """Spark session of the query; None for a loop in this process.

    Spark only triggers the batches and shows the query: with `once` its start would take longer than most logs.
    """
    import importlib.util

    from reput.errors import ConfigError
    from reput.spark.session import session

    if name == "local" and master is not None:
        raise ConfigError("--master goes with --runner spark")
    is_for_spark = importlib.util.find_spec("pyspark") is not None and not (once and master is None)
    if name == "local" or (name == "auto" and not is_for_spark):
        return None
    return session(master or "local[*]")


class _Watch:
    """Shows the progress of the dispatcher: a line on stderr now and then, and a bar with `--once`."""

    def __init__(self, log_end: int | None, progress: Progress, rate: RateOverTime) -> None:
        self._log_end = log_end
        self._progress = progress
        self._rate = rate
        self._begin: int | None = None
        self._next_at = 0.0
        self._messages = 0

    def __call__(self, batch: DispatchedBatch) -> None:
        self._messages += batch.messages
        self._rate.add(batch.messages, batch.lag_ms)
        if self._begin is None:
            self._begin = batch.end_offset - batch.log_bytes
        if self._log_end is not None:
            total = max(self._log_end, batch.end_offset) - self._begin
            self._progress(batch.end_offset - self._begin, total, "dispatch")
        has_bar = self._log_end is not None and sys.stderr.isatty()
        if not has_bar and time.monotonic() >= self._next_at:
            write_status({"dispatched_to": batch.end_offset, "messages": self._messages, "lag_ms": batch.lag_ms})
            self._next_at = time.monotonic() + _LINE_EVERY_S
