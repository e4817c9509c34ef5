"""`reput rebuild`: consume queues and index from the commit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

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
    choose_runner,
    job_arguments,
)
from reput.config.dispatch_rules import DispatchRules
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.rebuild.job import RebuildResult
    from reput.jobs.report.report import Report

#: The keys that `--set` takes here: what is written, and the sizes of the files.
KEYS = (
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "enable_lmq",
    "message_delay_level",
)


def rebuild(
    store: Store,
    *,
    settings: Settings,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", callback=check_path, help="The new directory to write to.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Exchange the store's own, instead; nobody may have it open.")
    ] = False,
    commit_log_path: CommitLogPath = None,
    rules: Annotated[
        DispatchRules, typer.Option("--rules", help="The RocketMQ version to build as: 5.5.0 indexes tags too.")
    ] = DispatchRules.V5_3_3,
    damaged: Annotated[
        Literal["refuse", "skip"],
        typer.Option("--damaged", help="What becomes of damage in the log: no rebuild, or one of all that is whole."),
    ] = "refuse",
    report: ReportFile = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Build consume queues and index from the log.

    They go into a new directory, or with --in-place take the place of the store's own. File sizes are those of the
    store's own files; one that was cut is told, and the exit status is 1 then. --set gives others:
    mappedFileSizeConsumeQueue, mapperFileSizeBatchConsumeQueue, maxHashSlotNum, maxIndexNum,
    mappedFileSizeConsumeQueueExt. Extensions and light message queues are built where the store has them, or as --set
    enableConsumeQueueExt and enableLmq say. A broker with delay levels of its own needs --set messageDelayLevel.

    Damage in the log is refused. With --damaged skip queues and index are built from all records that are whole, before
    and behind it; each range that was passed over is told, and the exit status is 1.

    Extensions get no bit maps: they come from the consumers' SQL filters, which the log does not hold. Without one
    every filter looks at the message itself, so nothing is lost but time.

    A rebuild that was killed goes on where it was when the same command is given again, unless the log was written to
    since. With --in-place queues and index are built beside and then exchanged; killed on the way, the store is whole
    all the same: the next start of a broker builds what is missing from the log, which takes long.

    Examples:
      reput rebuild /tmp/store --output /tmp/rebuilt --runner local
      reput rebuild /tmp/store --in-place
      reput rebuild /tmp/store --output /tmp/rescued --damaged skip --report /tmp/rebuild.html
    """
    from reput.jobs.rebuild import job

    if (output is None) != in_place:
        raise ConfigError("give --output with a new directory, or --in-place for a store that nobody has open")
    arguments = job_arguments(settings, KEYS, "a rebuild")
    with job_run(store, report, commit_log_path=commit_log_path) as progress:
        result = job.rebuild(
            store,
            output,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            commit_log_path=commit_log_path,
            rules=rules,
            damaged=damaged,
            progress=progress,
            **arguments,
        )
    told = asdict(result) | {"damages": [damage._asdict() for damage in result.damages]} if as_json else None
    end_job(_report(store, result), report, told)
    return 1 if result.findings else 0


def _report(store: str, result: RebuildResult) -> Report:
    """What was built, how long each phase took, and what was not as it should be."""
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
    facts = {name.replace("_", " "): value for name, value in facts.items()}
    facts["messages a second"] = round(result.messages / result.seconds)
    tables = [Table("phases", ("phase", "seconds"), list(zip(phases, seconds, strict=True)))]
    if result.kept_queues:
        tables.append(Table("queues without a message, kept", ("queue",), [(queue,) for queue in result.kept_queues]))
    return Report(
        title=f"Rebuild of {store}",
        facts=facts,
        tables=tables,
        plots=[Plot("bar", "Seconds by phase", "phase", "seconds", [Series("seconds", phases, seconds)])],
        findings=result.findings,
    )
