"""Begin and end of commands that run jobs: checks, progress bar, report."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reput.cli.display.output import progress_bar, write_error, write_json, write_report
from reput.cli.start import begin_work

if TYPE_CHECKING:
    from reput.jobs.report.report import Report
    from reput.progress import Progress


@contextmanager
def job_run(
    store: str,
    *outputs: str | None,
    commit_log_path: str | None = None,
    topics: Sequence[str] | None = None,
    shows_progress: bool = True,
) -> Iterator[Progress]:
    """Check and prepare a job that reads a store, and show a progress bar while it runs.

    To be entered when the job's modules are imported.

    Args:
        store: the store that is read.
        outputs: files and folders that are written; raises ConfigError for one among the store's own files.
        commit_log_path: of the store.
        topics: wanted topics; missing ones are reported.
        shows_progress: whether a bar is shown if stderr is a terminal.
    """
    from reput.log.directory import StoreDirectory
    from reput.log.unknown_topics import unknown_topics, without_warnings

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    for output in outputs:
        if output is not None:
            directory.check_output(output)
    for text in unknown_topics(topics, directory):
        write_error(text)
    begin_work()
    with without_warnings(), progress_bar(is_shown=shows_progress) as progress:
        yield progress


def end_job(report: Report, path: str | None, result: Mapping[str, Any] | None) -> None:
    """Print `result` as JSON, or, if it is None, the report; with a path also write the report as HTML.

    If one of the two fails, by a full disk or a closed pipe, the other is still done: the job may have taken hours.
    """
    try:
        if result is not None:
            write_json(result)
        else:
            write_report(report)
    finally:
        if path is not None:
            write_page(report, path)


def write_page(report: Report, path: str) -> None:
    """Write a report as HTML, with the command."""
    report.command = shlex.join(["reput", *sys.argv[1:]])
    report.write_html(path)


def pauses(seconds: float) -> Iterator[bool]:
    """Wait before each run, without end."""
    while True:
        time.sleep(seconds)
        yield True
