"""`reput restore`: a store from a backup."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.backup import Target
from reput.cli.options import Json, Master, RunnerName, Settings, check_path, job_arguments
from reput.cli.output import progress_bar, write_json, write_report
from reput.cli.rebuild import KEYS
from reput.cli.start import begin_work
from reput.config.dispatch_rules import DispatchRules

if TYPE_CHECKING:
    from reput.jobs.backup.restore_job import Restored
    from reput.jobs.report.report import Report


def restore(
    target: Target,
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", callback=check_path, help="The store's directory: a new one, or an empty one."),
    ],
    *,
    settings: Settings,
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="NAME", help="Which backup, by its name; else the newest one.")
    ] = None,
    rules: Annotated[
        DispatchRules, typer.Option("--rules", help="The RocketMQ version to build as: 5.5.0 indexes tags too.")
    ] = DispatchRules.V5_3_3,
    runner_name: RunnerName = "local",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Make the store of a backup in a new directory, and audit it.

    Each byte is compared with its checksum, queues and index are built from the log, and an audit looks at all of it.
    File sizes are those of the store that the backup is of; --set gives others, as to `reput rebuild`. Only when all is
    there STORE gets its name: until then it is STORE.unfinished. A restore that was killed goes on where it was when
    the same command is given again.

    The exit status is 1 where the audit finds something lost or hidden: the backup is of such a store.

    Examples:
      reput restore /tmp/backups /tmp/restored
    """
    from reput.jobs.backup import restore_job as job
    from reput.jobs.findings import findings_table
    from reput.spark import runner

    sizes = job_arguments(settings, KEYS, "a restore")
    begin_work()
    with progress_bar() as progress:
        result = job.restore(
            target,
            store,
            runner=runner.choose_runner(runner_name, total_bytes=0, master=master),
            backup=backup,
            rules=rules,
            sizes=sizes,
            progress=progress,
        )
    if as_json:
        write_json(asdict(result) | {"findings": findings_table(result.findings).to_pylist()})
    else:
        write_report(_report(target, store, result))
    return 0 if result.is_clean else 1


def _report(target: str, store: str, result: Restored) -> Report:
    """What is there now, and what the audit found."""
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    facts = asdict(result)
    for name in ("findings", "kept_queues"):
        facts.pop(name)
    tables = [Table("queues without a message", ("queue",), [(queue,) for queue in result.kept_queues])]
    return Report(
        title=f"Restore of {target} to {store}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        tables=tables if result.kept_queues else (),
        findings=[str(finding) for finding in result.findings],
    )
