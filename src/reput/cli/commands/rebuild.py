"""`reput rebuild`: build consume queues and index from the commit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reput.cli.display.limited import limited
from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    MAX_FINDINGS,
    AllowFewer,
    CommitLogPath,
    Json,
    Master,
    MaxFindings,
    ReportFile,
    RunnerName,
    Settings,
    Store,
    check_path,
    choose_runner,
    job_arguments,
)
from reput.config.dispatch_rules import BUILD_KEYS, DispatchRules
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.rebuild.job import RebuildResult
    from reput.jobs.report.report import Report


def rebuild(
    store: Store,
    *,
    settings: Settings,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", callback=check_path, help="The new directory to write to.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Replace the store's own; no process may have the store open.")
    ] = False,
    allow_fewer: AllowFewer = False,
    commit_log_path: CommitLogPath = None,
    rules: Annotated[
        DispatchRules, typer.Option("--rules", help="The RocketMQ version to build for: since 5.5.0 with tags as keys.")
    ] = DispatchRules.V5_3_3,
    damaged: Annotated[
        Literal["refuse", "skip"],
        typer.Option("--damaged", help="Refuse a damaged log, or build from its whole records."),
    ] = "refuse",
    report: ReportFile = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    max_findings: MaxFindings = MAX_FINDINGS,
    as_json: Json = False,
) -> int:
    """Build consume queues and index from the log.

    They are written to a new directory, or with --in-place replace the store's. File sizes are as in the store's
    files; a file that was cut is reported, and makes the exit status 1. --set overrides them:
    mappedFileSizeConsumeQueue, mapperFileSizeBatchConsumeQueue, maxHashSlotNum, maxIndexNum,
    mappedFileSizeConsumeQueueExt. Extensions and light message queues are built if the store has them, or as --set
    enableConsumeQueueExt and enableLmq say. A broker whose delay levels are not RocketMQ's defaults needs --set
    messageDelayLevel.

    Damage in the log is refused. With --damaged skip queues and index are built from all whole records before and after
    the damage, each range that was passed over is reported, and the exit status is 1.

    Extensions get no bit maps: bit maps come from the consumers' SQL filters, which the log does not have. Without a
    bit map every filter reads the message itself, which only costs time.

    After a kill the same command continues, unless the log was written to meanwhile. With --in-place queues and index
    are built beside the store's own and then swapped. A kill during the swap leaves a whole store: without the same
    command, reput's next start builds what is missing from the log, which takes long. RocketMQ's, from 5.4.0 on, builds
    it from the last 10 log files alone.

    See docs/jobs/rebuild.md.

    Examples:
      reput rebuild /tmp/store --output /tmp/rebuilt --runner local
      reput rebuild /tmp/store --in-place
      reput rebuild /tmp/store --output /tmp/rescued --damaged skip --report /tmp/rebuild.html
    """
    from reput.jobs.rebuild import RebuildOptions, job

    if (output is None) != in_place:
        raise ConfigError("give --output with a new directory, or --in-place for a store that no process has open")
    sizes = job_arguments(settings, BUILD_KEYS, "a rebuild")
    options = RebuildOptions(
        commit_log_path=commit_log_path, rules=rules, damaged=damaged, allow_fewer=allow_fewer, **sizes
    )
    with job_run(store, report, commit_log_path=commit_log_path) as progress:
        result = job.rebuild(
            store,
            output,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            options=options,
            progress=progress,
        )
    fields = asdict(result) | result.damages.as_json() if as_json else None
    end_job(_report(store, output, result, max_findings), report, fields)
    return 1 if result.findings else 0


def _report(store: str, output: str | None, result: RebuildResult, max_findings: int) -> Report:
    """Report: what was built, the time of each phase, and findings."""
    from reput.jobs.report.plot import Plot, Series
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    phases, seconds = list(result.phase_seconds), list(result.phase_seconds.values())
    facts = asdict(result)
    for name in (
        "damages",
        "findings",
        "phase_seconds",
        "kept_queues",
        "kept_folders",
        "last_timestamp",
        "index_timestamp",
    ):
        facts.pop(name)
    facts["log read again, in one piece"] = facts.pop("in_order")
    facts = {name.replace("_", " "): value for name, value in facts.items()}
    facts["messages a second"] = round(result.messages / result.seconds)
    tables = [Table("phases", ("phase", "seconds"), list(zip(phases, seconds, strict=True)))]
    if result.kept_queues:
        tables.append(Table("queues without messages, kept", ("queue",), [(queue,) for queue in result.kept_queues]))
    return Report(
        title=f"Rebuild of {store}",
        facts=facts,
        tables=tables,
        plots=[Plot("bar", "Time by phase", "phase", "seconds", [Series("seconds", phases, seconds)])],
        findings=limited(result.findings, len(result.findings), max_findings),
        paths={"store": store} | ({} if output is None else {"written to": output}),
    )
