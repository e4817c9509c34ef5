"""Result of an export as a report, and as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.cli.display.limited import limited
from reput.cli.display.output import write_error, write_line
from reput.cli.job_run import write_page

if TYPE_CHECKING:
    from reput.jobs.lake.export_job import Export
    from reput.jobs.report.report import Report


def report_of(store: str, output: str, result: Export, max_findings: int) -> Report:
    """Report: rows, bytes and files of each topic."""
    from reput.jobs.report.plot import bars_by_size
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    rows = [(one.topic, one.messages, one.rejected, one.files, one.bytes) for one in result.topics]
    sizes = {one.topic: one.bytes for one in result.topics if one.bytes}
    facts: dict[str, str | int | float | None] = {
        "messages": result.messages,
        "rejected": result.rejected,
        "from offset": result.begin_offset,
        "to offset": result.end_offset,
        "commits": result.commits,
        "bytes": sum(one.bytes for one in result.topics),
        "newest message's age in seconds": None if result.age_seconds is None else round(result.age_seconds, 2),
        "lag bytes": result.lag_bytes,
        "seconds": result.seconds,
        "messages a second": round(result.messages / result.seconds),
    }
    tables = [Table("topics", ("topic", "messages", "rejected", "files", "bytes"), rows)]
    if result.body_schemas:
        tables.append(Table("schemas of bodies", ("topic", "fields"), list(result.body_schemas.items())))
    return Report(
        title=f"Export of {store} to {output}",
        facts=facts,
        tables=tables,
        plots=[bars_by_size("Bytes by topic", "topic", sizes)] if sizes else [],
        findings=limited(result.findings, len(result.findings), max_findings),
        paths={"store": store, "written to": output},
    )


def write_run(result: Export, shown: Report, report: str | None) -> None:
    """Print a run that has found something on one line, and its findings; with a path also write its report."""
    write_line(
        {
            "to_offset": result.end_offset, "messages": result.messages, "rejected": result.rejected,
            "topics": len(result.topics), "files": sum(one.files for one in result.topics),
            "bytes": sum(one.bytes for one in result.topics), "newest_timestamp": result.newest_ms,
            "age_seconds": None if result.age_seconds is None else round(result.age_seconds, 2),
            "lag_bytes": result.lag_bytes, "seconds": round(result.seconds, 3),
        }
    )  # fmt: skip
    for finding in shown.findings:
        write_error(finding)
    if report is not None:
        write_page(shown, report)
