"""`reput stats`: messages and bytes by topic, queue, tag and time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli.options import CommitLogPath, Json, Master, RunnerName, Store, choose_runner
from reput.cli.output import progress_bar, write_json, write_report

if TYPE_CHECKING:
    from reput.jobs.report import Plot, Report
    from reput.jobs.statistics import Statistics

#: Groups that a table of the report shows, and series that a plot shows.
_SHOWN_GROUPS, _SHOWN_SERIES = 40, 6


def stats(
    store: Store,
    *,
    by: Annotated[
        str, typer.Option("--by", metavar="LIST", help="What makes a group: some of topic,queue,tag.")
    ] = "topic,queue,tag",
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="WIDTH", help="Also by time: 30s, 15m, 1h, 1d.")
    ] = None,
    time_of: Annotated[
        Literal["store", "born"], typer.Option("--time-of", help="Which timestamp makes the time bucket.")
    ] = "store",
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Also write an HTML report with plots; a file of that name is replaced.",
        ),
    ] = None,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Count messages and bytes by topic, queue, tag and time.

    What counts is the record as stored: its bytes, and a batch as one message. Nothing is changed.

    Examples:
      reput stats /tmp/store
      reput stats /tmp/store --by topic --bucket 1h --report /tmp/report.html
    """
    from reput.jobs.statistics import statistics
    from reput.log.directory import StoreDirectory
    from reput.warm import load_kernels

    if report is not None:
        StoreDirectory(store, commit_log_path=commit_log_path).check_output(report)
    load_kernels()
    with progress_bar() as progress:
        result = statistics(
            store,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            by=[name.strip() for name in by.split(",") if name.strip()],  # type: ignore[misc]  # checked there
            bucket=bucket,
            time_of=time_of,
            commit_log_path=commit_log_path,
            progress=progress,
        )
    if report is not None:
        _report(store, result).write_html(report)
    if as_json:
        totals = {"messages": result.messages, "log_bytes": result.log_bytes, "seconds": result.seconds}
        write_json(totals | {"groups": [_with_times(row, _milliseconds) for row in result.table.to_pylist()]})
    else:
        write_report(_report(store, result))


def _with_times(row: dict[str, Any], convert: Callable[[datetime], Any]) -> dict[str, Any]:
    return {name: convert(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _report(store: str, result: Statistics) -> Report:
    """The largest groups as a table, and messages over time or by group as a plot."""
    from reput.jobs.report import Report, Table

    groups = [_with_times(row, datetime.isoformat) for row in result.table.to_pylist()]
    largest = sorted(groups, key=lambda group: -group["messages"])[:_SHOWN_GROUPS]
    shown = [group for group in groups if group in largest]
    name = "groups" if len(groups) <= _SHOWN_GROUPS else f"the {_SHOWN_GROUPS} largest of {len(groups)} groups"
    return Report(
        title=f"Messages of {store}",
        facts={
            "messages": result.messages,
            "bytes": result.log_bytes,
            "seconds": result.seconds,
            "messages a second": round(result.messages / result.seconds),
        },
        tables=[Table(name, result.table.column_names, [list(group.values()) for group in shown])],
        plots=[_plot(groups)] if groups else [],
    )


def _plot(groups: list[dict[str, Any]]) -> Plot:
    """Messages by time, stacked by the first dimension, where there are times; else a bar for each group."""
    from reput.jobs.report import Plot, Series

    names = [name for name in groups[0] if name not in ("messages", "bytes", "body_bytes")]
    time_column = next((name for name in names if name.endswith("_timestamp")), None)
    if time_column is None:
        largest = sorted(groups, key=lambda group: -group["messages"])[:_SHOWN_GROUPS]
        labels = [" / ".join(str(group[name]) for name in names) or "all" for group in largest]
        bars = Series("messages", labels, [group["messages"] for group in largest])
        return Plot("bar", "Messages by group", " / ".join(names), "messages", [bars])
    counts: dict[str, dict[str, int]] = {}
    for group in groups:
        of_series = counts.setdefault(str(group[names[0]]) if names[0] != time_column else "all", {})
        if group[time_column] is not None:
            of_series[group[time_column]] = of_series.get(group[time_column], 0) + group["messages"]
    times = sorted({moment for of_series in counts.values() for moment in of_series})
    largest_series = sorted(counts, key=lambda name: -sum(counts[name].values()))[:_SHOWN_SERIES]
    series = [Series(name, times, [counts[name].get(moment, 0) for moment in times]) for name in largest_series]
    return Plot("area", "Messages over time", time_column, "messages", series)
