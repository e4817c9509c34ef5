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
    check_path,
    check_paths,
    parse_pairs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reput.jobs.report.over_time import RateOverTime
    from reput.jobs.report.report import Report
    from reput.log.directory import StoreDirectory
    from reput.progress import Progress
    from reput.spark.dispatch import DispatchResult
    from reput.store.dispatch.log_dispatch import DispatchedBatch

#: Time between two lines of progress.
_LINE_EVERY_S = 1.0


def dispatch(
    stores: Annotated[
        list[str],
        typer.Argument(metavar="STORE...", callback=check_paths, help="The directory of a store, or of several."),
    ],
    *,
    settings: Settings,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="DIR",
            callback=check_path,
            help="The folder to keep up to date (with a folder for each of several stores); else the store itself.",
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
    from reput.log.directory import StoreDirectory
    from reput.spark.dispatch import dispatch as run

    pairs = {snake_case(name): value for name, value in parse_pairs(settings, "--set").items()}
    rate, stop = RateOverTime("lag in ms"), threading.Event()
    directories = [StoreDirectory(store, commit_log_path=commit_log_path) for store in stores]
    if report is not None:
        for directory in directories:
            directory.check_output(report)
    with job_run(stores[0], commit_log_path=commit_log_path, shows_progress=once) as progress:
        ends = {directory.path: _log_end(directory) for directory in directories} if once else None
        watch = _Watch(ends, progress, rate)
        session = _session(runner_name, master, once=once)
        with interrupts.resumable(output or stores[0]), interrupts.until_stopped(stop.set, unless=once):
            result = run(
                stores, output, session=session, once=once, commit_log_path=commit_log_path, settings=pairs,
                on_batch=watch, stop=stop,
            )  # fmt: skip
    end_job(_report(stores, output, result, rate), report, asdict(result) if as_json else None)
    return 0


def _report(stores: list[str], output: str | None, result: DispatchResult, rate: RateOverTime) -> Report:
    """Report: what was dispatched, how fast, and the lag."""
    from reput.jobs.report.report import Report

    facts = {name.replace("_", " "): value for name, value in asdict(result).items() if name != "end_offsets"}
    facts = {f"end of {store}": end for store, end in result.end_offsets.items()} | facts
    facts["messages a second"] = round(result.messages / result.seconds) if result.seconds else 0
    paths = {"store": ", ".join(stores)} | ({} if output is None else {"written to": output})
    return Report(f"Dispatch of {', '.join(stores)}", facts, plots=rate.plots(), paths=paths)


def _log_end(directory: StoreDirectory) -> int:
    """End of the log as it is now."""
    from reput.log.sink_commits import committed_end

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
    """Shows the progress of the dispatcher: a line on stderr now and then, and a bar with `--once`.

    `log_ends` are the ends of the logs, by the path of the store; None without a bar.
    """

    def __init__(self, log_ends: dict[str, int] | None, progress: Progress, rate: RateOverTime) -> None:
        self._log_ends = log_ends
        self._progress = progress
        self._rate = rate
        self._begins: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._next_at = 0.0
        self._messages = 0

    def __call__(self, batch: DispatchedBatch) -> None:
        self._messages += batch.messages
        self._rate.add(batch.messages, batch.lag_ms)
        self._begins.setdefault(batch.store, batch.end_offset - batch.log_bytes)
        self._ends[batch.store] = batch.end_offset
        if self._log_ends is not None:  # a log without a batch has nothing new
            begin, end = sum(self._begins.values()), sum(self._ends.values())
            total = sum(max(self._log_ends[store], to) for store, to in self._ends.items())
            self._progress(end - begin, total - begin, "dispatch")
        has_bar = self._log_ends is not None and sys.stderr.isatty()
        if not has_bar and time.monotonic() >= self._next_at:
            to = batch.end_offset if len(self._ends) == 1 else self._ends
            write_status({"dispatched_to": to, "messages": self._messages, "lag_ms": batch.lag_ms})
            self._next_at = time.monotonic() + _LINE_EVERY_S
