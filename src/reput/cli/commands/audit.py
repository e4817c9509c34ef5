"""`reput audit`: compare queues, extensions and index with the log."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from reput.cli.commands.repair import counted_loss
from reput.cli.display.limited import limited_table
from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    MAX_FINDINGS,
    CommitLogPath,
    Json,
    Master,
    MaxFindings,
    ReportFile,
    RunnerName,
    Settings,
    Store,
    WorkDir,
    choose_runner,
    job_arguments,
)

if TYPE_CHECKING:
    from reput.jobs.audit.job import AuditResult
    from reput.jobs.report.report import Report

#: Keys that `--set` takes here: values that the files do not tell.
_KEYS = (
    "max_hash_slot_num",
    "max_index_num",
    "message_delay_level",
    "message_index_enable",
    "force_verify_prop_crc",
    "file_reserved_time",
)


def audit(
    store: Store,
    *,
    settings: Settings,
    max_findings: MaxFindings = MAX_FINDINGS,
    report: ReportFile = None,
    work_dir: WorkDir = None,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Compare queues, extensions, index, checkpoint and settings with the log.

    Every record is checked by its CRC; it must have its unit and its index entries, and every unit and entry must have
    its record. A finding has a code, a class, a file and a position in it, and advice. The classes are: lost (stored,
    and cannot be read any more), hidden (in the log, but consumers, queries or a start do not reach it), harmless (left
    by a kill or a retention by RocketMQ's own rules). Findings that are lost or hidden make the exit status 1.

    Nothing is changed. The store may be open: then its log is audited up to its end at the start. --set takes values
    that the files do not have: messageDelayLevel, maxHashSlotNum, maxIndexNum, messageIndexEnable=false for a broker
    without index, forceVerifyPropCRC=true for a log whose records must all carry a property CRC, and fileReservedTime,
    which shows whether the first log files went before their time.

    See docs/jobs/audit.md.

    Examples:
      reput audit /tmp/store
      reput audit /tmp/store --report /tmp/audit.html --work-dir /tmp/audit
    """
    from reput.jobs.audit import job

    arguments = job_arguments(settings, _KEYS, "an audit")
    with job_run(store, report, commit_log_path=commit_log_path) as progress:
        result = job.audit(
            store,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            commit_log_path=commit_log_path,
            work_dir=work_dir,
            progress=progress,
            **arguments,
        )
    end_job(_report(store, result, max_findings), report, _json(result) if as_json else None)
    return 0 if result.is_clean else 1


def _facts(result: AuditResult) -> dict[str, Any]:
    return {
        "messages": result.messages,
        "log_bytes": result.log_bytes,
        "log_end": result.log_end,
        "units": result.units,
        "units_before_the_log": result.expired_units,
        "queues": result.queues,
        "index_entries": result.index_entries,
        "index_files": result.index_files,
        "seconds": result.seconds,
    }


def _counts(result: AuditResult) -> dict[str, int]:
    """Counts of findings by their class: a finding is of one message, or of many."""
    from reput.jobs.findings import KINDS, FindingClass

    counts = Counter[FindingClass]()
    for code, count in result.counts.items():
        counts[KINDS[code].finding_class] += count
    return {f"{one}_findings": counts[one] for one in FindingClass}


def _json(result: AuditResult) -> dict[str, Any]:
    lost = {"lost_messages": result.lost_messages, "uncounted_bytes": result.uncounted_bytes}
    lists = {"phase_seconds": result.phase_seconds, "codes": result.counts, "findings": result.table.to_pylist()}
    return _facts(result) | lost | _counts(result) | lists


def _report(store: str, result: AuditResult, max_findings: int) -> Report:
    """Report: meaning, advice and count of each code, the worst findings, and a plot of the codes."""
    from reput.jobs.findings import KINDS, FindingClass
    from reput.jobs.report.plot import Plot, Series
    from reput.jobs.report.report import Report

    lost = counted_loss(result.lost_messages, result.uncounted_bytes)
    facts = _facts(result) | {"log bytes a second": round(result.log_bytes / result.seconds)}
    facts |= {"messages lost": lost} | _counts(result)
    facts["result"] = "clean" if result.is_clean else "findings"
    codes = {code: result.counts[code] for code in dict.fromkeys(finding.code for finding in result.findings)}
    shown = result.findings[: max_findings or None]
    rows = [(one.code, one.kind.finding_class.value, one.path, one.position, one.count, one.text) for one in shown]
    columns = ("code", "class", "file", "position", "count", "text")
    table = limited_table("findings, the worst first", columns, rows, max_findings, sum(codes.values()))
    bars = Series("findings", list(codes), list(codes.values()))
    return Report(
        title=f"Audit of {store}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        tables=[table] if result.findings else [],
        plots=[Plot("bar", "Findings by code", "code", "findings", [bars])] if codes else [],
        findings=[
            f"{code}, {count} ({kind.finding_class.value}): {kind.meaning}. "
            f"What to do: {kind.advice_with(result.commands)}"
            for code, count in codes.items()
            if (kind := KINDS[code]).finding_class is not FindingClass.HARMLESS
        ],
        paths={"store": store},
    )
