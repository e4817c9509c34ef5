"""Screen of `reput top`: one look at a store, drawn for a terminal of any width and height.

On a narrow terminal names are cut and columns are left out; a number is whole, or it is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.text import Text

from reput.cli.display.output import iso_time, number_text
from reput.counts import counted
from reput.jobs.report.terminal_table import draw_fields, draw_table, printable

if TYPE_CHECKING:
    from reput.store.runtime_info import RuntimeInfo, TopicInfo

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
#: Lines of the two tables that are no rows: the heading (groups have one of up to two lines), its rule, a blank line.
_TOPICS_LINES, _GROUPS_LINES = 3, 4
_FEWEST_ROWS = 3
_FULL, _NEARLY_FULL = 0.9, 0.75
#: Least width of a screen that has a bar of the disk's use, and the width of the bar.
_WITH_BAR, _BAR = 60, 24


def draw(
    path: str,
    state: str,
    info: RuntimeInfo,
    rates: dict[str, float] | None,
    log_rate: float | None,
    width: int,
    height: int,
) -> RenderableType:
    """Draw the screen.

    Args:
        path: the store's directory.
        state: text about the process that has the store open.
        info: a reader's snapshot of the store.
        rates: messages a second by topic; None before the second look.
        log_rate: bytes a second of the log; None before the second look.
        width: characters of a line of the terminal.
        height: lines of the terminal.
    """
    head: list[RenderableType] = [
        Text(printable(path), style="bold", no_wrap=True, overflow="ellipsis"),
        Text(state, style="dim"),
        _head(info, rates, log_rate, width),
        Text(),
    ]
    foot: list[RenderableType] = [Text(printable(finding), style="red") for finding in info.findings]
    hint = "q ends. As the files show it; only the writer knows gets and latencies."
    foot.append(Text(hint, style="dim", no_wrap=True, overflow="ellipsis"))
    other_lines = len(Console(width=width).render_lines(Group(*head, *foot)))
    room = height - other_lines - _TOPICS_LINES
    tables = []
    if info.groups and room - _GROUPS_LINES >= 2 * _FEWEST_ROWS:
        room -= _GROUPS_LINES
        group_rows = min(len(info.groups), max(_FEWEST_ROWS, room // 3))
        room -= group_rows
        tables = [_groups(info, group_rows, width), Text()]
    tables = [_topics(info, rates, max(_FEWEST_ROWS, room), width), Text(), *tables]
    return Group(*head, *tables, *foot)


def _head(info: RuntimeInfo, rates: dict[str, float] | None, log_rate: float | None, width: int) -> RenderableType:
    per_second = "..." if rates is None else f"{number_text(round(sum(rates.values())))} messages/s"
    grew = "" if log_rate is None else f", {_size(log_rate)}/s"
    files = counted(info.commit_log.files, "file")
    log = f"{_size(info.commit_log_max_offset - info.commit_log_min_offset)} in {files}"
    last = info.latest_message_time_stamp
    fields = {
        "put": Text(per_second + grew),
        "log": Text(f"{log}, up to offset {info.commit_log_max_offset}"),
        "last message": Text("none" if last is None else iso_time(last).replace("T", " ")),  # it may wrap at the blank
        "dispatch lag": Text(_size(info.dispatch_behind_bytes)),
        "disk": _disk(info.commit_log_disk_ratio, info.disk_free_bytes, has_bar=width >= _WITH_BAR),
    }
    return draw_fields(fields, width)


def _disk(ratio: float, free_bytes: int, *, has_bar: bool) -> Text:
    style = "red" if ratio >= _FULL else "yellow" if ratio >= _NEARLY_FULL else "green"
    bar = f"[{'#' * round(ratio * _BAR):-<{_BAR}}] " if has_bar else ""  # all encodings have these characters
    return Text.assemble((bar, style), (f"{ratio:.0%}", style), f" used, {_size(free_bytes)} free")


def _topics(info: RuntimeInfo, rates: dict[str, float] | None, rows: int, width: int) -> RenderableType:
    rate_of = rates or {}
    ordered = sorted(info.topics, key=lambda topic: (-rate_of.get(topic.topic, 0), -topic.messages, topic.topic))
    shown = ordered if len(ordered) <= rows else ordered[: rows - 1]

    def row(name: str, topics: Sequence[TopicInfo]) -> list[str]:
        rate = "" if rates is None else number_text(round(sum(rate_of.get(topic.topic, 0) for topic in topics)))
        queues, messages = sum(topic.queues for topic in topics), sum(topic.messages for topic in topics)
        return [name, number_text(queues), number_text(messages), rate]

    cells = [row(printable(topic.topic), [topic]) for topic in shown]
    if len(shown) < len(ordered):
        cells.append(row(f"{len(ordered) - len(shown)} more", ordered[len(shown) :]))
    columns, numeric = ("topic", "queues", "messages", "messages/s"), (False, True, True, True)
    return draw_table(columns, cells, numeric, ("topic",), width, spare=("queues", "messages"))


def _groups(info: RuntimeInfo, rows: int, width: int) -> RenderableType:
    ordered = sorted(info.groups, key=lambda group: (-group.fall_behind_messages, group.group, group.topic))
    cells = [
        [
            printable(group.group),
            printable(group.topic),
            number_text(group.fall_behind_messages),
            "unknown" if group.fall_behind_ms is None else duration(group.fall_behind_ms),
        ]
        for group in ordered[:rows]
    ]
    columns, numeric = ("group", "topic", "lag in messages", "time lag"), (False, False, True, True)
    return draw_table(columns, cells, numeric, ("group", "topic"), width, spare=("topic", "time lag"))


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
