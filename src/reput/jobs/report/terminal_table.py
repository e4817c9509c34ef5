"""Tables on a terminal: a table where it fits, else a block for each row with a line for each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Least width of a column whose cells are cut, and of a column whose cells wrap (the width of a time).
_LEAST_CUT, _LEAST_WRAPPED = 10, 24
#: Blanks between two columns.
_GAP = 2


def printable(text: str) -> str:
    """Escape control characters: the text of a message must not reach the terminal as a command."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def draw_table(
    columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], cut: Sequence[str], room: int
) -> RenderableType:
    """Make a table or blocks of rows for rich to print.

    Args:
        columns: names of the columns.
        cells: printable texts by row and column.
        numeric: whether a column holds numbers, by column; numbers are aligned right, and never cut or wrapped.
        cut: names of the columns whose cells are cut where they do not fit; cells of other columns wrap.
        room: characters of a line.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    widths = _fit(columns, cells, numeric, cut, room)
    if widths is None:
        return _blocks(columns, cells)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name, width, is_number in zip(columns, widths, numeric, strict=True):
        table.add_column(
            Text(name),
            justify="right" if is_number else "left",
            width=width,
            no_wrap=name in cut,
            overflow="ellipsis" if name in cut else "fold",
        )
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _fit(
    columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], cut: Sequence[str], room: int
) -> list[int] | None:
    """Width of each column: its natural width as far as there is room; None where the columns would be too narrow."""
    from rich.cells import cell_len

    natural, least = [], []
    for number, name in enumerate(columns):
        content = max((cell_len(row[number]) for row in cells), default=0)
        heading = max(map(len, name.split()))  # headings wrap at their blanks
        shrunk = content if numeric[number] else min(content, _LEAST_CUT if name in cut else _LEAST_WRAPPED)
        natural.append(max(content, len(name)))
        least.append(max(shrunk, heading))
    spare = room - sum(least) - _GAP * (len(columns) - 1)
    if spare < 0:
        return None
    wanted = [most - width for most, width in zip(natural, least, strict=True)]
    by_want = sorted(range(len(columns)), key=wanted.__getitem__)
    for done, number in enumerate(by_want):
        more = min(wanted[number], spare // (len(columns) - done))
        least[number] += more
        spare -= more
    return least


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    blocks: list[Any] = []
    for row in cells:
        block = Table.grid(padding=(0, 2))
        block.add_column(no_wrap=True, style="dim")
        block.add_column(overflow="fold")
        for name, value in zip(columns, row, strict=True):
            if value:
                block.add_row(Text(name), Text(value))
        blocks += [block, Text()]
    return Group(*blocks)
