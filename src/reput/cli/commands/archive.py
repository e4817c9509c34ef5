"""`reput archive`: sealed log files of a store as tables that give every byte back, and the proof of these."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.display.limited import limited
from reput.cli.display.output import progress_bar, write_error, write_json, write_line, write_report
from reput.cli.job_run import end_job, job_run, pauses
from reput.cli.options import (
    MAX_FINDINGS,
    CommitLogPath,
    Interval,
    Json,
    Master,
    MaxFindings,
    RunnerName,
    check_path,
    choose_runner,
)
from reput.cli.start import begin_work
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.archive.archive_job import Archived
    from reput.jobs.archive.verify_job import Verified
    from reput.jobs.report.report import Report


def archive(
    store: Annotated[
        str | None,
        typer.Argument(metavar="[STORE]", callback=check_path, help="The store's directory; none with --verify."),
    ] = None,
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", callback=check_path, help="The folder of the archive.")
    ] = None,
    *,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify", metavar="TARGET", callback=check_path, help="Prove every file of an archive, without a store."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Archive each log file once it is sealed, until Ctrl-C.")
    ] = False,
    interval: Interval = 10,
    commit_log_path: CommitLogPath = None,
    max_findings: MaxFindings = MAX_FINDINGS,
    runner_name: RunnerName = "local",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Archive the sealed log files of a store, which may be open, as tables that give every byte back.

    Each log file becomes a Parquet file of its messages, which any engine reads, one of all other bytes, and a manifest
    with the SHA-256 of the log file. Each record is built from its columns, and compared with the log; what was written
    is read again, and the log file made of it, before it counts. `reput restore TARGET STORE` makes a store of an
    archive. The last log file is archived when the next one has begun. Called again, it archives what is new; after a
    kill it continues. With --follow it looks again every --interval seconds, and prints a line for each run that has
    archived something.

    The exit status is 1 if a log file is damaged, whose bytes are kept as they are, or a JSON file cannot be read; with
    --verify if a file is missing or damaged.

    Examples:
      reput archive /tmp/store /tmp/archive
      reput archive --verify /tmp/archive
    """
    if verify is not None:
        if store is not None:
            raise ConfigError("reput archive --verify TARGET takes no store; see reput archive --help")
        return _verify(verify, runner_name, master, max_findings, as_json=as_json)
    if store is None or target is None:
        raise ConfigError("reput archive needs STORE and TARGET, or --verify TARGET; see reput archive --help")
    from reput.jobs.archive import archive_job as job

    due = pauses(interval) if follow else iter([False])
    status = 0
    with interrupts.resumable(target), interrupts.until_stopped(unless=not follow):
        with job_run(store, commit_log_path=commit_log_path) as progress:
            runner = choose_runner(runner_name, master, store, commit_log_path)
            runs = job.follow(
                store,
                target,
                runner=runner,
                wait=lambda: next(due),
                commit_log_path=commit_log_path,
                progress=progress,
            )
            first = next(runs)  # the longest run; the bar ends before anything is printed
        for result in chain([first], runs):
            status |= bool(result.findings)
            fields = asdict(result) if as_json else None
            if not follow or (result.new_files and as_json):
                end_job(_report(store, target, result, max_findings), None, fields)
            elif result.new_files:
                _write_run(result, max_findings)
    return status


def _write_run(result: Archived, max_findings: int) -> None:
    """Print a run that has archived something on one line, and its findings."""
    names = ("end_offset", "new_files", "new_messages", "new_log_bytes", "new_bytes", "seconds")
    write_line({name: round(getattr(result, name), 3) for name in names})
    for finding in limited(iter(result.findings), len(result.findings), max_findings):
        write_error(finding)


def _verify(target: str, runner_name: str, master: str | None, max_findings: int, *, as_json: bool) -> int:
    from reput.jobs.archive import verify_job as job
    from reput.spark import runner

    begin_work()
    with progress_bar() as progress:
        chosen = runner.choose_runner(runner_name, total_bytes=0, master=master)  # type: ignore[arg-type]
        result = job.verify(target, runner=chosen, progress=progress)
    if as_json:
        write_json(asdict(result))
    else:
        write_report(_proof(target, result, max_findings))
    return 1 if result.findings else 0


def _report(store: str, target: str, result: Archived, max_findings: int) -> Report:
    """Report: what was archived."""
    from reput.jobs.report.report import Report

    facts = asdict(result)
    facts.pop("findings")
    begin = facts.pop("unsealed_offset")
    if begin is not None:
        facts["not archived"] = (
            f"from offset {begin} on: a log file is archived once the next one has begun; keep the store, or a backup"
        )
    return Report(
        title=f"Archive of {store} in {target}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        findings=limited(iter(result.findings), len(result.findings), max_findings),
        paths={"store": store, "written to": target},
    )


def _proof(target: str, result: Verified, max_findings: int) -> Report:
    """Report: what was proven."""
    from reput.jobs.report.report import Report

    facts = asdict(result)
    facts.pop("findings")
    return Report(
        title=f"Verification of {target}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        findings=limited(iter(result.findings), len(result.findings), max_findings),
        paths={"archive": target},
    )
