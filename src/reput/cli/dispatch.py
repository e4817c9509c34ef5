"""`reput dispatch`: queues and index of a log that somebody else writes, kept up to date."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.options import CommitLogPath, Json, Master, RunnerName, Settings, Store, parse_pairs
from reput.cli.output import write_fields, write_json, write_status
from reput.cli.start import begin_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reput.store.log_dispatch import DispatchedBatch

#: Between two lines of progress.
_LINE_EVERY_S = 1.0


def dispatch(
    store: Store,
    *,
    settings: Settings,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="The folder to keep up to date; else the store's own.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Dispatch what is there, and stop.")] = False,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Follow a log, and keep its queues and index up to date.

    The store may be open, in another process or on another machine that shares the file system. Queues, extensions and
    index go into a folder of their own, or into the store's own folders if it was opened with dispatch="spark"; batch
    by batch, each durable before the next one begins. Started again, it goes on where it was, however it ended. It runs
    as a Structured Streaming query, or with --runner local in this process.

    Sizes and kinds of files are those of the store's own; --set gives others, as for `reput rebuild`. Once a second a
    line on stderr says how far it is. Ctrl-C ends it.

    Example:
      reput dispatch /tmp/store --output /tmp/replica --once --runner local
    """
    import threading

    from reput.config.properties import snake_case
    from reput.jobs.report import format_value
    from reput.spark.dispatch import dispatch as run

    pairs = {snake_case(name): value for name, value in parse_pairs(settings, "--set").items()}
    begin_work()
    line, stop = _ProgressLine(), threading.Event()
    result = run(
        store, output, session=_session(runner_name, master), once=once, commit_log_path=commit_log_path,
        settings=pairs, on_batch=line, stop=stop,
    )  # fmt: skip
    if as_json:
        write_json(asdict(result))
    else:
        write_fields({name.replace("_", " "): format_value(value) for name, value in asdict(result).items()})
    return 0


def _session(name: str, master: str | None) -> SparkSession | None:
    """The session of a query; None for a loop in this process."""
    import importlib.util

    from reput.spark.session import session

    if name == "local" or (name == "auto" and importlib.util.find_spec("pyspark") is None):
        return None
    return session(master or "local[*]")


class _ProgressLine:
    """Writes a line on stderr now and then: how far the dispatcher is, and how far behind."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._messages = 0

    def __call__(self, batch: DispatchedBatch) -> None:
        self._messages += batch.messages
        if time.monotonic() >= self._next_at:
            write_status({"dispatched_to": batch.end_offset, "messages": self._messages, "lag_ms": batch.lag_ms})
            self._next_at = time.monotonic() + _LINE_EVERY_S
