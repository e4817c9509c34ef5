"""`reput backup` and `reput backups`: take a backup of a store that may be live, and list the backups of a target."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.display.output import iso_time, write_error, write_json, write_table
from reput.cli.job_run import end_job, job_run
from reput.cli.options import CommitLogPath, Json, Master, RunnerName, Store, check_path, choose_runner
from reput.errors import CorruptBackupError

if TYPE_CHECKING:
    from reput.jobs.backup.backup_job import Backup
    from reput.jobs.report.report import Report

Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", callback=check_path, help="A folder, or a URL of fsspec: s3://bucket/folder."),
]


def backup(
    store: Store,
    target: Target,
    *,
    link: Annotated[
        bool, typer.Option("--link", help="Make hard links of full log files: they need no space of their own.")
    ] = False,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "local",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Take a backup of a store of reput or of a broker, which may be open.

    The backup has every message that was acknowledged before the start, the JSON files below config/, and the next
    queue offset of queues without messages. `reput restore` builds queues and index. No lock is taken, so no writer
    waits. A target takes any number of backups of one store; each copies only what is new, and can be restored by its
    name. A backup that was killed does not count, but bytes that it has copied are not copied again.

    The exit status is 1 if a JSON file of the store cannot be read, or its log has lost records at its end.

    Examples:
      reput backup /tmp/store /tmp/backups
      reput backup /tmp/store /tmp/linked --link
    """
    from reput.jobs.backup import backup_job as job

    with interrupts.resumable(target), job_run(store, commit_log_path=commit_log_path) as progress:
        result = job.backup(
            store,
            target,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            commit_log_path=commit_log_path,
            link=link,
            progress=progress,
        )
    end_job(_report(store, target, result), None, asdict(result) if as_json else None)
    return 1 if result.findings else 0


def backups(target: Target, *, as_json: Json = False) -> int:
    """List the backups of a target, oldest first.

    The exit status is 1 if the manifest of a backup is damaged.

    Examples:
      reput backups /tmp/backups
    """
    from reput.jobs.backup.backup_job import list_backups

    listed = list_backups(target)
    damaged = [one for one in listed if isinstance(one, CorruptBackupError)]
    whole = [one for one in listed if not isinstance(one, CorruptBackupError)]
    if as_json:
        fields = [
            {
                "name": one.name,
                "created_timestamp": one.created_timestamp,
                "store": one.store,
                "begin_offset": one.begin_offset,
                "end_offset": one.end_offset,
                "last_store_timestamp": None if one.last is None else one.last.store_timestamp,
            }
            for one in whole
        ]
        write_json({"backups": fields, "damaged": [str(error) for error in damaged]})
    else:
        columns = ("backup", "store", "log begins at", "log ends at", "bytes", "last message stored")
        rows = [
            (
                one.name, one.store, one.begin_offset, one.end_offset, one.end_offset - one.begin_offset,
                iso_time(None if one.last is None else one.last.store_timestamp),
            )
            for one in whole
        ]  # fmt: skip
        write_table(columns, rows)
        for error in damaged:
            write_error(str(error))
    return 1 if damaged else 0


def _report(store: str, target: str, result: Backup) -> Report:
    """Report: what was copied, and names that no backup has."""
    from reput.jobs.backup.source import why_left_out
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    facts = asdict(result)
    for name in ("left_out", "findings"):
        facts.pop(name)
    facts["new messages"] = facts.pop("messages")
    tables = [Table("left out", ("name", "why"), [(name, why_left_out(name)) for name in result.left_out])]
    return Report(
        title=f"Backup of {store} to {target}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        tables=tables if result.left_out else (),
        findings=result.findings,
        paths={"store": store, "written to": target},
    )
