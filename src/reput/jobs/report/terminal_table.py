"""Tables and fields on a terminal of any width: what does not fit side by side goes below each other.

No number is cut: a number that differs from the whole one by its last digits would be believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

#: Least width of a column whose cells are cut, and of a column whose cells wrap: the width of the largest offset.
_LEAST_CUT, _LEAST_WRAPPED = 10, 25
#: Blanks between two columns.
_GAP = 2


def printable(text: str) -> str:
    """Escape control characters: the text of a message must not reach the terminal as a command."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def draw_fields(fields: Mapping[str, Text], room: int) -> RenderableType:
    """Make names and printable values for rich to print.

    Each value stands beside its name, or below it if a line of `room` characters is too short for its numbers.
    """
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    names = max(map(cell_len, fields), default=0)
    words = max((cell_len(word) for value in fields.values() for word in value.plain.split()), default=0)
    grid = Table.grid(padding=(0, _GAP))
    if names + _GAP + min(words, _LEAST_WRAPPED) <= room:
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(overflow="fold")  # paths and times are copied by users, so they are not cut
        for name, value in fields.items():
            grid.add_row(name, value)
    else:
        grid.add_column(overflow="fold")
        for name, value in fields.items():
            grid.add_row(Text(name, style="dim"))
            grid.add_row(Padding(value, (0, 0, 0, _GAP)))
    return grid


def draw_table(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    cut: Sequence[str],
    room: int,
    spare: Sequence[str] = (),
) -> RenderableType:
    """Make a table or blocks of rows for rich to print.

    Args:
        columns: names of the columns.
        cells: printable texts by row and column.
        numeric: whether a column holds numbers, by column; numbers are aligned right, and never cut or wrapped.
        cut: names of the columns whose cells are cut if they do not fit; cells of other columns wrap.
        room: characters of a line.
        spare: names of the columns that are left out if the table does not fit, the first one first.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    widths = _fit(columns, cells, numeric, cut, room)
    if widths is None and spare:
        kept = [number for number, name in enumerate(columns) if name != spare[0]]
        columns, numeric = [columns[number] for number in kept], [numeric[number] for number in kept]
        cells = [[row[number] for number in kept] for row in cells]
        return draw_table(columns, cells, numeric, cut, room, spare[1:])
    if widths is None:
        return _blocks(columns, cells, room)
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
    """Width of each column: its natural width as far as there is room; None if the columns would be too narrow."""
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


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    blocks: list[RenderableType] = []
    for row in cells:
        fields = {name: Text(value) for name, value in zip(columns, row, strict=True) if value}
        blocks += [draw_fields(fields, room), Text()]
    return Group(*blocks)
