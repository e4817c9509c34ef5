"""What the commands of jobs share: what is checked before one runs, who looks on, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reput.cli.nothing_found import tell_unknown_topics
from reput.cli.output import progress_bar, write_json, write_report
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
    """What comes before a job that reads a store, once its modules are imported, and a progress bar while it runs.

    Args:
        store: that is read.
        outputs: files and folders that are written; raises ConfigError for one among the store's own files.
        commit_log_path: of the store.
        topics: that are wanted; one that is not there is told.
        shows_progress: where stderr is a terminal.
    """
    from reput.log.directory import StoreDirectory

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    for output in outputs:
        if output is not None:
            directory.check_output(output)
    tell_unknown_topics(directory, topics)
    begin_work()
    with progress_bar(is_shown=shows_progress) as progress:
        yield progress


def end_job(report: Report, path: str | None, result: Mapping[str, Any] | None) -> None:
    """Print the report, or the result as JSON, where there is one; write it as HTML, too, where a path is given.

    Of a job that took hours the one is not lost where the other fails: on a full disk, or at a pipe that was closed.
    """
    try:
        if result is not None:
            write_json(result)
        else:
            write_report(report)
    finally:
        if path is not None:
            report.write_html(path)
