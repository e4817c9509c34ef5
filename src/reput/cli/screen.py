"""Screen of `reput top`: one look at a store, drawn for a terminal of any width and height."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reput.cli.output import iso_time
from reput.jobs.report.table import format_value
from reput.jobs.report.terminal_table import printable

if TYPE_CHECKING:
    from reput.store.runtime_info import RuntimeInfo

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
#: Lines that are no rows of the two tables: head, headings and blank lines.
_OTHER_LINES = 15
_FEWEST_ROWS = 3
_FULL, _NEARLY_FULL = 0.9, 0.75


def draw(
    path: str, state: str, info: RuntimeInfo, rates: dict[str, float] | None, log_rate: float | None, height: int
) -> RenderableType:
    """Draw the screen.

    Args:
        path: the store's directory.
        state: text about the process that has the store open.
        info: a reader's snapshot of the store.
        rates: messages a second by topic; None before the second look.
        log_rate: bytes a second of the log; None before the second look.
        height: lines of the terminal.
    """
    room = max(2 * _FEWEST_ROWS, height - _OTHER_LINES - len(info.findings))
    group_rows = min(len(info.groups), max(_FEWEST_ROWS, room // 3))
    blocks: list[RenderableType] = [
        Text(printable(path), style="bold", no_wrap=True, overflow="ellipsis"),
        Text(state, style="dim"),
        _head(info, rates, log_rate),
        Text(),
        _topics(info, rates, room - group_rows),
        Text(),
    ]
    if info.groups:
        blocks += [_groups(info, group_rows), Text()]
    blocks += [Text(printable(finding), style="red") for finding in info.findings]
    blocks.append(
        Text("As the files show it; only the writer knows gets and latencies. q ends.", style="dim", no_wrap=True)
    )
    return Group(*blocks)


def _head(info: RuntimeInfo, rates: dict[str, float] | None, log_rate: float | None) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=len("dispatch lag"))
    grid.add_column(overflow="ellipsis", no_wrap=True)
    per_second = "..." if rates is None else f"{format_value(round(sum(rates.values())))} messages/s"
    grew = "" if log_rate is None else f", {_size(log_rate)}/s"
    grid.add_row("put", per_second + grew)
    files = "1 file" if info.commit_log.files == 1 else f"{info.commit_log.files} files"
    log = f"{_size(info.commit_log_max_offset - info.commit_log_min_offset)} in {files}"
    grid.add_row("log", f"{log}, up to offset {info.commit_log_max_offset}")
    last = info.latest_message_time_stamp
    grid.add_row("last message", iso_time(last) if last is not None else "none")
    grid.add_row("dispatch lag", _size(info.dispatch_behind_bytes))
    grid.add_row("disk", _disk(info.commit_log_disk_ratio, info.disk_free_bytes))
    return grid


def _disk(ratio: float, free_bytes: int) -> Table:
    style = "red" if ratio >= _FULL else "yellow" if ratio >= _NEARLY_FULL else "green"
    bar = ProgressBar(total=1, completed=ratio, width=24, complete_style=style, finished_style=style)
    line = Table.grid(padding=(0, 1))
    line.add_row(bar, f"{ratio:.0%} used, {_size(free_bytes)} free")
    return line


def _topics(info: RuntimeInfo, rates: dict[str, float] | None, rows: int) -> Table:
    table = _table("topic", numbers=("queues", "messages", "messages/s"))
    rate_of = rates or {}
    ordered = sorted(info.topics, key=lambda topic: (-rate_of.get(topic.topic, 0), -topic.messages, topic.topic))
    shown = ordered if len(ordered) <= rows else ordered[: rows - 1]
    for topic in shown:
        rate = "" if rates is None else format_value(round(rate_of.get(topic.topic, 0)))
        table.add_row(printable(topic.topic), format_value(topic.queues), format_value(topic.messages), rate)
    if len(shown) < len(ordered):
        rest = ordered[len(shown) :]
        table.add_row(
            f"and {len(rest)} more", format_value(sum(t.queues for t in rest)),
            format_value(sum(t.messages for t in rest)),
            "" if rates is None else format_value(round(sum(rate_of.get(t.topic, 0) for t in rest))), style="dim",
        )  # fmt: skip
    return table


def _groups(info: RuntimeInfo, rows: int) -> Table:
    table = _table("group", "topic", numbers=("lag in messages", "lag in time"))
    ordered = sorted(info.groups, key=lambda group: (-group.fall_behind_messages, group.group, group.topic))
    for group in ordered[:rows]:
        lag_ms = group.fall_behind_ms
        table.add_row(
            printable(group.group), printable(group.topic), format_value(group.fall_behind_messages),
            "unknown" if lag_ms is None else duration(lag_ms),
        )  # fmt: skip
    return table


def _table(*names: str, numbers: tuple[str, ...]) -> Table:
    """Table with names on the left, which are cut where they do not fit, and numbers on the right, never cut."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def duration(milliseconds: int) -> str:
    """Text of a duration in its largest whole unit: 12 s, 3 min, 5 h, 2 d."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def _size(count: float) -> str:
    """Text of a size in bytes: 512 B, 3.2 MiB."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == _UNITS[0] else f"{count:.1f} {unit}"
