"""`reput repair`: plan the repair of a store by an audit, and with --apply do it; or salvage its whole records."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput.cli import interrupts
from reput.cli.display.limited import limited, limited_table
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

if TYPE_CHECKING:
    from reput.jobs.repair.repair_job import RepairResult
    from reput.jobs.repair.salvage_job import SalvageResult
    from reput.jobs.repair.salvage_log import Loss
    from reput.jobs.report.report import Report

#: Keys that `--set` takes here: values that the store's files may not tell any more.
KEYS = (*BUILD_KEYS, "message_index_enable", "file_reserved_time")


def repair(
    store: Store,
    *,
    settings: Settings,
    apply: Annotated[bool, typer.Option("--apply", help="Take the steps; else only show them.")] = False,
    salvage: Annotated[
        str | None,
        typer.Option(
            "--salvage",
            metavar="DIR",
            callback=check_path,
            help="Write all whole records to a new store; STORE is not changed.",
        ),
    ] = None,
    allow_fewer: AllowFewer = False,
    commit_log_path: CommitLogPath = None,
    rules: Annotated[
        DispatchRules, typer.Option("--rules", help="The RocketMQ version to build queues and index for.")
    ] = DispatchRules.V5_3_3,
    max_findings: MaxFindings = MAX_FINDINGS,
    report: ReportFile = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Repair a store: show the findings of an audit and the steps; with --apply take them.

    Mended in place are: torn tails, and damage without whole records after it; the length of the last log file; foreign
    files in the log's folder; files below config/; the checkpoint; queues and index, which are built again. Whatever is
    changed or removed is first kept beside: topics.json.broken, consumequeue.broken, commitlog.broken/. At the end an
    audit shows what is left. With --apply no other process may have the store open. After a kill the same command
    continues.

    A log with damage before whole records, or with a missing file, is not mended in place: closing the gap would drop
    messages. --salvage DIR makes a new store of all whole records, at the same offsets; without --apply it only shows
    what is lost.

    The exit status is 0 if no step is needed or all is mended, and 1 if steps are needed or findings remain. --set
    takes sizes of queue and index files that the store's files do not have, messageDelayLevel, fileReservedTime, and
    messageIndexEnable=false for a broker without index.

    See docs/jobs/repair.md.

    Examples:
      reput repair /tmp/store
      reput repair /tmp/store --apply
      reput repair /tmp/store --salvage /tmp/salvaged --apply --report /tmp/salvage.html
    """
    from reput.jobs.findings import COMMANDS, findings_table
    from reput.jobs.repair import repair_job as job
    from reput.jobs.repair import salvage_job

    arguments: dict[str, Any] = job_arguments(settings, KEYS, "a repair")
    arguments |= {"apply": apply, "commit_log_path": commit_log_path, "rules": rules}
    mended = store if apply and salvage is None else None
    with interrupts.resumable(mended), job_run(store, report, commit_log_path=commit_log_path) as progress:
        arguments |= {"runner": choose_runner(runner_name, master, store, commit_log_path), "progress": progress}
        result: RepairResult | SalvageResult
        if salvage is None:
            result = job.repair(store, allow_fewer=allow_fewer, **arguments)
            shown = _repair_report(store, result, max_findings)
        else:
            arguments.pop("file_reserved_time", None)  # a new log begins where its files do
            result = salvage_job.salvage(store, salvage, **arguments)
            shown = _salvage_report(store, result, max_findings)
    commands = result.commands if isinstance(result, job.RepairResult) else COMMANDS
    fields = asdict(result) | {"is_fine": result.is_fine}
    if isinstance(result, salvage_job.SalvageResult):
        fields["losses"] = [asdict(loss) | {"size": loss.size} for loss in result.losses]
        fields |= {name: getattr(result, name) for name in ("lost_bytes", "lost_messages", "uncounted_bytes")}
    fields["findings"] = findings_table(result.findings, commands).to_pylist()
    end_job(shown, report, fields if as_json else None)
    return 0 if result.is_fine else 1


def _repair_report(store: str, result: RepairResult, limit: int) -> Report:
    """Report: the steps, remaining findings, and paths of originals."""
    from reput.jobs.report.report import Report

    rows = [(step.action.value, step.path, step.position or None, step.lost_bytes, step.text) for step in result.steps]
    columns = ("step", "file", "position", "bytes lost", "what")
    tables = [limited_table("done" if result.is_applied else "to be done", columns, rows, limit)]
    tables.append(limited_table("originals", ("path",), [(path,) for path in result.kept], limit))
    is_open = bool(result.steps) and not result.is_applied
    findings = limited(map(str, result.remaining), len(result.remaining), limit)
    if result.needs_salvage:
        findings.insert(
            0, f"the log is not mended in place; a new store of all whole records: `{result.commands.salvage}`"
        )
    return Report(
        title=f"Repair of {store}",
        facts={
            "result": "fine" if result.is_fine else "to be applied" if is_open else "findings remain",
            "steps": len(result.steps),
            "findings": len(result.findings),
            "findings that no step mends": len(result.remaining),
            "messages lost": "see --salvage" if result.needs_salvage else result.lost_messages,
            "not closed": result.was_killed,
            "seconds": result.seconds,
        },
        tables=[table for table in tables if table.rows],
        findings=findings,
        paths={"store": store},
    )


def _salvage_report(store: str, result: SalvageResult, limit: int) -> Report:
    """Report: what is in the new store, what is lost, and findings of an audit of the new store."""
    from reput.jobs.findings import FindingClass
    from reput.jobs.report.report import Report

    rows = [
        (loss.path, loss.begin, loss.end, loss.size, _messages(loss), loss.placeholder.value, loss.reason)
        for loss in result.losses
    ]
    columns = ("file", "begin offset", "end offset", "bytes lost", "messages lost", "in its place", "why")
    tables = [
        limited_table("lost" if result.is_applied else "would be lost", columns, rows, limit),
        limited_table("files below config/", ("what",), [(note,) for note in result.config], limit),
    ]
    facts = {
        name.replace("_", " "): getattr(result, name)
        for name in ("path", "messages", "log_bytes", "log_files", "lost_bytes", "lost_messages", "seconds")
    }
    facts["lost messages"] = counted_loss(result.lost_messages, result.uncounted_bytes)
    facts["result"] = "fine" if result.is_fine else "findings" if result.is_applied else "to be applied"
    wrong = [finding for finding in result.findings if finding.kind.finding_class is not FindingClass.HARMLESS]
    return Report(
        title=f"Salvage of {store}",
        facts=facts,
        tables=[table for table in tables if table.rows],
        findings=limited(map(str, wrong), len(wrong), limit),
        paths={"store": store},
    )


def counted_loss(messages: int, uncounted_bytes: int) -> int | str:
    """Lost messages, as a report shows them."""
    return f"{messages}, and messages in {uncounted_bytes} bytes that no queue reaches" if uncounted_bytes else messages


def _messages(loss: Loss) -> int | str:
    return "unknown" if loss.messages is None else loss.messages
