"""`reput restore`: make a store of a backup."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.commands.backup import Target
from reput.cli.display.limited import limited
from reput.cli.display.output import iso_time, progress_bar, write_json, write_report
from reput.cli.options import (
    MAX_FINDINGS,
    Json,
    Master,
    MaxFindings,
    RunnerName,
    Settings,
    check_path,
    job_arguments,
    parse_time,
)
from reput.cli.start import begin_work
from reput.config.dispatch_rules import BUILD_KEYS, DispatchRules

if TYPE_CHECKING:
    from reput.jobs.backup.restore_job import Restored
    from reput.jobs.report.report import Report


def restore(
    target: Target,
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", callback=check_path, help="The store's directory: missing, or empty."),
    ],
    *,
    settings: Settings,
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="NAME", help="Name of the backup; else the newest backup.")
    ] = None,
    until: Annotated[
        int | None,
        typer.Option("--until", metavar="TIME", parser=parse_time, help="End after the last message stored by then."),
    ] = None,
    until_offset: Annotated[
        int | None,
        typer.Option("--until-offset", metavar="OFFSET", min=0, help="End before the message at this log offset."),
    ] = None,
    rules: Annotated[
        DispatchRules, typer.Option("--rules", help="The RocketMQ version to build for: since 5.5.0 with tags as keys.")
    ] = DispatchRules.V5_3_3,
    max_findings: MaxFindings = MAX_FINDINGS,
    runner_name: RunnerName = "local",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Make the store of a backup in a new directory, and audit it.

    All bytes are verified by their checksums, queues and index are built from the log, and the store is audited. File
    sizes are as in the original store; --set overrides them, as for `reput rebuild`. The store is made in
    STORE.unfinished, and renamed when it is complete. After a kill the same command continues.

    --until and --until-offset restore the store as it was at a point in time, from the first backup that goes as far,
    or from --backup: later messages are cut off, and offsets of consumers end where their queues do.

    The exit status is 1 if the audit has findings that are lost or hidden: the original store had them, too.

    Examples:
      reput restore /tmp/backups /tmp/restored
      reput restore /tmp/backups /tmp/until-then --until 2100-01-01T00:00:00Z
    """
    from reput.jobs.backup import restore_job as job
    from reput.jobs.findings import findings_table
    from reput.spark import runner

    sizes = job_arguments(settings, BUILD_KEYS, "a restore")
    begin_work()
    with progress_bar() as progress:
        result = job.restore(
            target,
            store,
            runner=runner.choose_runner(runner_name, total_bytes=0, master=master),
            backup=backup,
            until_ms=until,
            until_offset=until_offset,
            rules=rules,
            sizes=sizes,
            progress=progress,
        )
    if as_json:
        write_json(asdict(result) | {"findings": findings_table(result.findings).to_pylist()})
    else:
        write_report(_report(target, store, result, max_findings))
    return 0 if result.is_clean else 1


def _report(target: str, store: str, result: Restored, max_findings: int) -> Report:
    """Report: what was restored, and findings of the audit."""
    from reput.jobs.findings import COMMANDS
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    facts = asdict(result)
    for name in ("findings", "kept_queues", "forgotten_sinks"):
        facts.pop(name)
    facts["last_store_timestamp"] = iso_time(result.last_store_timestamp)
    lists = {
        "queues without messages": ("queue", result.kept_queues),
        "sinks that begin anew: their last batch was cut off": ("sink", result.forgotten_sinks),
    }
    tables = [
        Table(name, (column,), [(value,) for value in values]) for name, (column, values) in lists.items() if values
    ]
    return Report(
        title=f"Restore of {target} to {store}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        tables=tables,
        findings=limited(
            (f"{finding}; {finding.kind.advice_with(COMMANDS)}" for finding in result.findings),
            len(result.findings),
            max_findings,
        ),
        paths={"backups": target, "store": store},
    )
