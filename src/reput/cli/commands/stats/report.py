"""Report of `reput stats`: tables of the largest groups, plots of volume, latency and disk use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reput.cli.display.limited import limited
from reput.cli.options import MAX_FINDINGS
from reput.jobs.report.over_time import join_times, stacked_over_time
from reput.jobs.report.plot import Plot, Series, bars_by_size
from reput.jobs.report.report import Report
from reput.jobs.report.table import Table, Value
from reput.jobs.statistics.counting import SUMS
from reput.jobs.statistics.latency import QUANTILES

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.jobs.statistics.job import Statistics

#: Limit of groups in a table.
_SHOWN_GROUPS = 40
_AXIS = {"store_timestamp": "stored (UTC)", "born_timestamp": "born (UTC)"}
_NOT_NAMES = frozenset((*SUMS, *QUANTILES))
_SHOWN_QUANTILES = {"latency_p50_ms": "50 % within", "latency_p99_ms": "99 % within", "latency_max_ms": "slowest"}


def report_of(store: str, result: Statistics, max_findings: int = MAX_FINDINGS) -> Report:
    """Make the report of a store's statistics."""
    groups = _rows(result.table)
    largest = sorted(groups, key=lambda group: -group["messages"])[:_SHOWN_GROUPS]
    shown = [group for group in groups if group in largest]
    is_whole = len(groups) <= _SHOWN_GROUPS
    topics = _rows(result.disk.topics)
    tables = [_table("Groups" if is_whole else "The largest groups", shown, result.table.column_names, len(groups))]
    if topics:
        tables.append(
            _table("Who uses the disk, and when retention deletes it", topics, result.disk.topics.column_names)
        )
    if result.largest.num_rows:
        tables.append(_table("Largest bodies", _rows(result.largest), result.largest.column_names))
    return Report(
        title=f"Messages of {store}",
        facts={
            "messages": result.messages,
            "bytes": result.log_bytes,
            "topics": len(topics),
            "log files": result.disk.files.num_rows,
            "seconds": result.seconds,
            "messages a second": round(result.messages / result.seconds),
        },
        tables=tables,
        plots=_plots(groups, topics),
        findings=limited(result.findings, len(result.findings), max_findings),
        paths={"store": store},
    )


def _plots(groups: Sequence[dict[str, Any]], topics: Sequence[dict[str, Any]]) -> list[Plot]:
    if not groups:
        return []
    names = [name for name in groups[0] if name not in _NOT_NAMES]
    time_column = next((name for name in names if name.endswith("_timestamp")), None)
    plots = [_by_group(groups, names) if time_column is None else _over_time(groups, names, time_column)]
    if "latency_max_ms" in groups[0]:
        plots.append(_latencies(groups, names, time_column))
    if topics:
        plots.append(bars_by_size("Disk use by topic", "topic", {topic["topic"]: topic["bytes"] for topic in topics}))
    return plots


def _by_group(groups: Sequence[dict[str, Any]], names: Sequence[str]) -> Plot:
    largest = sorted(groups, key=lambda group: -group["messages"])[:_SHOWN_GROUPS]
    labels: list[Value] = [_label(group, names) for group in largest]
    topics = [group["topic"] for group in largest] if "topic" in names else None
    bars = Series("messages", labels, [group["messages"] for group in largest], topics=topics)
    return Plot("bar", "Messages by group", " / ".join(names), "messages", [bars])


def _over_time(groups: Sequence[dict[str, Any]], names: Sequence[str], time_column: str) -> Plot:
    """Plot of messages by time, stacked by the first dimension; bars if there is a single time."""
    counts: dict[str, dict[str, int]] = {}
    for group in groups:
        of_series = counts.setdefault(str(group[names[0]]) if names[0] != time_column else "all", {})
        if group[time_column] is not None:
            of_series[group[time_column]] = of_series.get(group[time_column], 0) + group["messages"]
    return stacked_over_time(counts, _AXIS[time_column])


def _latencies(groups: Sequence[dict[str, Any]], names: Sequence[str], time_column: str | None) -> Plot:
    """Plot of the time from birth to store: over time, for the label with most messages, or a bar a group."""
    title, unit = "Time from birth to store", "milliseconds"
    if time_column is None:
        largest = sorted(groups, key=lambda group: -group["messages"])[: _SHOWN_GROUPS // 3]
        labels: list[Value] = [_label(group, names) for group in largest]
        bars = [Series(text, labels, [group[name] for group in largest]) for name, text in _SHOWN_QUANTILES.items()]
        return Plot("bar", title, " / ".join(names), unit, bars)
    others = [name for name in names if name != time_column]
    of_label: dict[str, list[dict[str, Any]]] = {}
    for group in groups:
        of_label.setdefault(_label(group, others), []).append(group)
    label, most = max(of_label.items(), key=lambda item: sum(group["messages"] for group in item[1]))
    lines = [_highest(most, time_column, name, text) for name, text in _SHOWN_QUANTILES.items()]
    return Plot("line", f"{title}: {label}", _AXIS[time_column], unit, lines)


def _highest(groups: Sequence[dict[str, Any]], time_column: str, name: str, text: str) -> Series:
    """Line of a latency; if there are more times than points, the highest latency of each point."""
    joined = join_times(group[time_column] for group in groups if group[time_column] is not None)
    highest: dict[str, int] = {}
    for group in groups:
        moment, latency = joined.get(group[time_column]), group[name]
        if moment is not None and latency is not None:
            highest[moment] = max(latency, highest.get(moment, latency))
    return Series(text, list(highest), list(highest.values()))


def _label(group: dict[str, Any], names: Sequence[str]) -> str:
    return " / ".join("–" if group[name] is None else str(group[name]) for name in names) or "all"


def _table(name: str, rows: Sequence[dict[str, Any]], columns: Sequence[str], total: int | None = None) -> Table:
    some = total if total != len(rows) else None
    return Table(name, list(columns), [[row[column] for column in columns] for row in rows], some)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table, with times as ISO 8601."""
    return [{name: _shown(value) for name, value in row.items()} for row in table.to_pylist()]


def _shown(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds").replace("+00:00", "Z")
