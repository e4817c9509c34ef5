"""`reput diff`: compare two stores message by message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli.display.limited import limited, limited_table
from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    MAX_FINDINGS,
    Json,
    Master,
    MaxFindings,
    ReportFile,
    RunnerName,
    WorkDir,
    check_path,
    choose_runner,
    parse_list,
)

if TYPE_CHECKING:
    from reput.jobs.diff.job import DiffResult
    from reput.jobs.report.report import Report

#: Fields that a store sets anew when a message is put again; --ignore leaves them out.
_SET_ANEW = frozenset({"store_timestamp", "store_host"})


def diff(
    left: Annotated[str, typer.Argument(metavar="LEFT", callback=check_path, help="A store's directory.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", callback=check_path, help="Another store's directory.")],
    *,
    by: Annotated[
        Literal["log", "queue"],
        typer.Option(
            "--by", help="Compare messages of the same commit log offset, or of the same queue and queue offset."
        ),
    ] = "log",
    ignore: Annotated[
        str | None, typer.Option("--ignore", metavar="LIST", help="Fields that may differ: store_timestamp,store_host.")
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", metavar="N", min=0, help="Limit of differences that are listed; all count.")
    ] = 10_000,
    max_findings: MaxFindings = MAX_FINDINGS,
    report: ReportFile = None,
    work_dir: WorkDir = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Compare two stores, message by message.

    A message is missing (in LEFT only), extra (in RIGHT only) or different; then its differing fields are named, and
    its properties that differ with both values. By log all bytes must be the same: compare a backup or a replica so. By
    queue the commit log offset may differ, and the order of the properties: compare a store whose messages were put
    again so. If one of the stores has no log, as the output of `reput rebuild`, the
    units of the queues are compared. Nothing is changed. The exit status is 0 if the stores are equal, 1 if
    they differ.

    These fields can be ignored: commit_log_offset, prepared_transaction_offset, property_crc (these three are always
    ignored by queue), store_timestamp, store_host, born_timestamp, born_host, reconsume_times, flag, magic_code,
    properties.

    See docs/jobs/diff.md.

    Examples:
      cp -r /tmp/store /tmp/copy && reput diff /tmp/store /tmp/copy
      reput diff /tmp/store /tmp/copy --by queue --ignore store_timestamp,store_host --json
    """
    from reput.jobs.diff import job
    from reput.log.directory import StoreDirectory

    ignored = parse_list(ignore) or []
    if report is not None:
        StoreDirectory(right).check_output(report)
    with job_run(left, report) as progress:
        result = job.diff(
            left,
            right,
            runner=choose_runner(runner_name, master, left, None),
            by=by,
            ignore=ignored,
            max_rows=max_rows,
            work_dir=work_dir,
            progress=progress,
        )
    differences = {"differences": result.table.to_pylist()} if as_json else {}
    end_job(
        _report(left, right, by, ignored, result, max_findings),
        report,
        _facts(result) | differences if as_json else None,
    )
    return 0 if result.is_equal else 1


def _facts(result: DiffResult) -> dict[str, Any]:
    from reput.log.damages import joined

    return {
        "left_messages": result.left_messages,
        "right_messages": result.right_messages,
        "compared": "units of the queues" if result.of_queues else "messages of the logs",
        "missing": result.missing,
        "extra": result.extra,
        "different": result.different,
        **joined((result.left_damages, result.right_damages)).as_json(),
        "seconds": result.seconds,
    }


def _report(left: str, right: str, by: str, ignored: Sequence[str], result: DiffResult, max_findings: int) -> Report:
    """Report: counts, the first differences, and a plot of the listed differences by kind and topic."""
    from reput.jobs.report.plot import Plot, Series
    from reput.jobs.report.report import Report

    facts = _facts(result) | {"result": "equal" if result.is_equal else "differences"}
    for name in ("damages", "damage_count", "damaged_bytes"):
        del facts[name]
    if hint := _hint(by, ignored, result):
        facts["hint"] = hint
    rows = [
        [*list(row.values())[:-2], ", ".join(row["fields"] or ()), _properties(row["properties"])]
        for row in result.table.slice(0, max_findings or None).to_pylist()
    ]
    total = result.missing + result.extra + result.different
    table = limited_table("differences", result.table.column_names, rows, max_findings, result.table.num_rows)
    damages = (*result.left_damages, *result.right_damages)
    damage_count = result.left_damages.count + result.right_damages.count
    counted = result.table.group_by(["kind", "topic"]).aggregate([([], "count_all")]).to_pylist()
    topics = sorted({row["topic"] for row in counted})
    series = [
        Series(kind, topics, [_count(counted, kind, topic) for topic in topics])
        for kind in dict.fromkeys(row["kind"] for row in counted)
    ]
    return Report(
        title=f"{left} and {right}",
        facts={name.replace("_", " "): value for name, value in facts.items()},
        tables=[replace(table, total=None if len(rows) == total else total)] if rows else [],
        plots=[Plot("bar", "Listed differences by topic", "topic", "messages", series)] if series else [],
        findings=limited(
            (
                f"{damage.path}: from commit log offset {damage.begin} to {damage.end} passed over: {damage.reason}"
                for damage in damages
            ),
            damage_count,
            max_findings,
        ),
        paths={"left": left, "right": right},
    )


def _properties(pairs: Sequence[dict[str, str | None]] | None) -> str:
    """Text of properties that differ: `region: eu / us`."""
    if pairs is None:
        return ""
    texts = ["{}: {} / {}".format(*("none" if part is None else part for part in pair.values())) for pair in pairs]
    return ", ".join(texts) or "only their order or separators"


def _hint(by: str, ignored: Sequence[str], result: DiffResult) -> str | None:
    """Hint to ignore fields that differ because messages were put again; None if there are none."""
    differing = {name for names in result.table["fields"].to_pylist() for name in names or ()}
    anew = sorted(differing & _SET_ANEW)
    if by != "queue" or not anew:
        return None
    ignore = ",".join([*ignored, *anew])
    return (
        f"a store sets {' and '.join(anew)} when messages are put again, as by a replay. Leave out what was set "
        f"anew: --ignore {ignore}"
    )


def _count(counted: list[dict[str, Any]], kind: str, topic: str) -> int:
    return sum(row["count_all"] for row in counted if row["kind"] == kind and row["topic"] == topic)
