"""`Report`: what every job returns. It prints itself, becomes one JSON object, or one HTML file with plots.

A report is data only: facts, tables, plots and findings, made of texts, numbers and None. The HTML file carries its
script and style within, so that it opens anywhere, without a network. Drawing needs plotly (the extra `report`),
printing needs rich; both are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from reput.files import DISK
from reput.jobs.terminal_table import BETWEEN_DIGITS, draw_table, printable

if TYPE_CHECKING:
    from rich.console import Console

Value = str | int | float | bool | None
"""What a fact, a cell or a point may be. Times are ISO 8601 texts: a plot places them on a time axis."""

PlotKind = Literal["bar", "line", "area", "heatmap", "treemap"]


@dataclass(frozen=True, slots=True)
class Table:
    """A named table; each row has one value for each column.

    Raises ValueError for a row of another length.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name!r}: row {number} has {len(row)} values for {len(self.columns)} columns"
                )


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a plot: `y[i]` at `x[i]`; None is a gap.

    `y_label` names another quantity than the plot's: lines that differ in it are drawn in panes of their own, one below
    the other, over the same x axis. Raises ValueError when x and y differ in length.
    """

    name: str
    x: Sequence[Value]
    y: Sequence[Value]
    y_label: str | None = None

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} x for {len(self.y)} y")


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot, described and not drawn. Labels carry the units.

    kind: "bar" draws a horizontal bar a category (x: categories, top down; y: lengths); "line" a line a series; "area"
    the series stacked; "heatmap" a row a series (name: its label; x: columns; y: colours, named by `value_label`);
    "treemap" a rectangle a category, each as large as its y. Lines and areas over one x only are drawn as bars.
    Raises ValueError without any series.
    """

    kind: PlotKind
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    value_label: str | None = None

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError(f"plot {self.title!r} has no series")


@dataclass(slots=True)
class Report:
    """The result of a job. `findings` are sentences that name what is wrong and where; without any the job is fine."""

    title: str
    facts: Mapping[str, Value] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    findings: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as dict, list, str, int, float, bool and None: what `json.dumps` takes."""
        return asdict(self)

    def print(self, console: Console | None = None) -> None:
        """Print facts, tables and findings on the terminal (plots are for the HTML file)."""
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        console = console or Console()
        console.print(Text(printable(self.title), style="bold"))
        facts = Grid.grid(padding=(0, 2))
        facts.add_column()
        facts.add_column(overflow="fold")
        for name, value in self.facts.items():
            facts.add_row(Text(name, style="dim"), Text(printable(format_value(value))))
        console.print(facts)
        for table in self.tables:
            cells = [[printable(format_value(value)) for value in row] for row in table.rows]
            console.print(Text(f"\n{table.name}", style="italic"))
            headings = [name.replace("_", " ") for name in table.columns]  # which wrap
            console.print(draw_table(headings, cells, numeric_columns(table), (), console.width))
        for finding in self.findings:
            console.print(Text.assemble(("finding  ", "bold red"), printable(finding)), soft_wrap=True)

    def to_html(self) -> str:
        """The whole report as one HTML page that needs nothing else.

        Raises ReputError when there are plots and plotly is not installed.
        """
        from reput.jobs.report_page import page

        return page(self)

    def write_html(self, path: str) -> None:
        """Write `to_html()` to `path` in one step: the file is the old or the new one, never a part."""
        DISK.write_atomically(path, self.to_html().encode())


def format_value(value: Value) -> str:
    """A value for people: 1 027 730, 3.14, 0.00123; yes and no; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", BETWEEN_DIGITS)
    if isinstance(value, float):
        return format_value(round(value)) if abs(value) >= 1000 else f"{value:.3g}"
    return value


def numeric_columns(table: Table) -> list[bool]:
    """Whether a column holds numbers (and None) only: such columns are set flush right."""
    return [
        all(value is None or type(value) in (int, float) for value in (row[index] for row in table.rows))
        for index in range(len(table.columns))
    ]
