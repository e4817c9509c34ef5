"""`Report`: what every job returns. It prints itself, becomes one JSON object, or one HTML file with plots.

A report is data only: facts, tables, plots and findings, made of texts, numbers and None. The HTML file carries its
script and style within, so that it opens anywhere, without a network. Drawing needs plotly (the extra `report`),
printing needs rich; both are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from reput.errors import ReputError
from reput.files import DISK

if TYPE_CHECKING:
    from rich.console import Console

Value = str | int | float | bool | None
"""What a fact, a cell or a point may be. Times are ISO 8601 texts: a plot places them on a time axis."""

PlotKind = Literal["bar", "line", "area", "heatmap"]


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
    the series stacked; "heatmap" a row a series (name: its label; x: columns; y: colours, named by `value_label`).
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
        from rich import box
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        console = console or Console()
        console.print(Text(self.title, style="bold"))
        facts = Grid.grid(padding=(0, 2))
        for name, value in self.facts.items():
            facts.add_row(Text(name, style="dim"), Text(format_value(value)))
        console.print(facts)
        for table in self.tables:
            grid = Grid(title=Text(table.name), title_justify="left", box=box.SIMPLE_HEAD)
            for name, numeric in zip(table.columns, _numeric_columns(table), strict=True):
                grid.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
            for row in table.rows:
                grid.add_row(*(Text(format_value(value)) for value in row))
            console.print(grid)
        for finding in self.findings:
            console.print(Text.assemble(("finding  ", "bold red"), finding), soft_wrap=True)

    def to_html(self) -> str:
        """The whole report as one HTML page that needs nothing else.

        Raises ReputError when there are plots and plotly is not installed.
        """
        script, drawn = _draw(self.plots) if self.plots else ("", [])
        verdict = "".join(f"<li>{escape(finding)}</li>" for finding in self.findings)
        parts = [
            f"<h1>{escape(self.title)}</h1>",
            f'<section class="findings"><h2>Findings</h2><ul>{verdict}</ul></section>' if verdict else "",
            '<dl class="facts">',
            *(f"<div><dt>{escape(k)}</dt><dd>{escape(format_value(v))}</dd></div>" for k, v in self.facts.items()),
            "</dl>",
            *map(_html_table, self.tables),
            *(
                f"<figure><h2>{escape(plot.title)}</h2>{html}</figure>"
                for plot, html in zip(self.plots, drawn, strict=True)
            ),
        ]
        return _PAGE.format(title=escape(self.title), style=_STYLE, script=script, body="\n".join(parts))

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
        return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    if isinstance(value, float):
        return format_value(round(value)) if abs(value) >= 1000 else f"{value:.3g}"
    return value


def _numeric_columns(table: Table) -> list[bool]:
    """Whether a column holds numbers (and None) only: such columns are set flush right."""
    return [
        all(value is None or type(value) in (int, float) for value in (row[index] for row in table.rows))
        for index in range(len(table.columns))
    ]


def _html_table(table: Table) -> str:
    classes = ['class="number"' if numeric else "" for numeric in _numeric_columns(table)]
    head = "".join(f"<th {css}>{escape(name)}</th>" for css, name in zip(classes, table.columns, strict=True))
    rows = (
        "".join(f"<td {css}>{escape(format_value(v))}</td>" for css, v in zip(classes, row, strict=True))
        for row in table.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<section><h2>{escape(table.name)}</h2>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def _draw(plots: Sequence[Plot]) -> tuple[str, list[str]]:
    """Plotly's script, and the HTML of each plot."""
    try:
        from plotly.io import to_html
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReputError("a report with plots needs plotly: pip install 'reput[report]'") from error

    config = {"responsive": True, "displayModeBar": False}  # the mouse zooms, a double click shows all again
    drawn = [
        to_html(_figure(plot), config=config, include_plotlyjs=False, full_html=False, div_id=f"plot-{number}")
        for number, plot in enumerate(plots)
    ]
    return get_plotlyjs(), drawn


def _figure(plot: Plot) -> Any:
    """The plotly Figure of a plot."""
    from plotly.subplots import make_subplots

    pane_labels = list(dict.fromkeys(series.y_label or plot.y_label for series in plot.series))
    figure = make_subplots(rows=len(pane_labels), shared_xaxes=True, vertical_spacing=0.06)
    for trace, pane_label in _traces(plot):
        figure.add_trace(trace, row=pane_labels.index(pane_label) + 1, col=1)
    longest = max(len(series.x) for series in plot.series)
    legend = len(plot.series) > 1 and plot.kind != "heatmap"
    height = {"bar": 90 + 30 * longest * len(plot.series), "heatmap": 110 + 46 * len(plot.series)}
    figure.update_layout(
        template="plotly_white",
        font={"family": _FONT, "size": 13, "color": "#26303c"},
        height=height.get(plot.kind, 120 + 230 * len(pane_labels)),
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left", "traceorder": "normal"},
        showlegend=legend,
        hovermode="x unified" if plot.kind in ("line", "area") else "closest",
        bargap=0.3,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    if plot.kind == "bar":
        lengths = [value for series in plot.series for value in series.y if isinstance(value, int | float)]
        room = [1.12 * min(0, *lengths, 0), 1.12 * max(0, *lengths, 0)]  # for the numbers at the ends of the bars
        figure.update_xaxes(title_text=plot.y_label, range=room)
        figure.update_yaxes(title_text=plot.x_label, autorange="reversed", ticks="outside", tickcolor="white")
    else:
        figure.update_xaxes(title_text=plot.x_label, row=len(pane_labels), col=1)
        for row, pane_label in enumerate(pane_labels, start=1):
            figure.update_yaxes(title_text=pane_label, row=row, col=1)
    return figure


def _traces(plot: Plot) -> list[tuple[Any, str]]:
    """Plotly's traces of a plot, each with the label of the pane that it belongs to."""
    from plotly import graph_objects

    if plot.kind == "heatmap":
        cells = graph_objects.Heatmap(
            x=list(plot.series[0].x),
            y=[series.name for series in plot.series],
            z=[list(series.y) for series in plot.series],
            colorscale=_COLOUR_SCALE,
            colorbar={"title": {"text": plot.value_label, "side": "right"}, "thickness": 14, "outlinewidth": 0},
            xgap=2,
            ygap=2,
            hovertemplate="%{y}, %{x}: %{z:.3~s}<extra></extra>",
        )
        return [(cells, plot.y_label)]
    traces = []
    for number, series in enumerate(plot.series):
        x, y = list(series.x), list(series.y)
        colour = _COLOURS[number % len(_COLOURS)]
        if plot.kind == "bar":
            texts = [format_value(value) for value in y]
            bar = {"orientation": "h", "x": y, "y": x, "name": series.name, "marker_color": colour, "hoverinfo": "skip"}
            trace = graph_objects.Bar(text=texts, textposition="outside", cliponaxis=False, **bar)
        else:
            stack = {"stackgroup": "all", "line": {"width": 0}, "fillcolor": colour} if plot.kind == "area" else {}
            line = {"name": series.name, "mode": "lines", "line": {"width": 1.6, "color": colour}} | stack
            trace = graph_objects.Scatter(x=x, y=y, connectgaps=False, **line)
        traces.append((trace, series.y_label or plot.y_label))
    return traces


_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
_COLOURS = ("#2b6cb0", "#dd7f2e", "#2f9e77", "#c0477f", "#8a93a0", "#7863c4")
_COLOUR_SCALE = ((0.0, "#fbf4e8"), (0.35, "#f6cf8f"), (0.65, "#e8894a"), (1.0, "#a8281f"))
_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: #f5f7f9; color: #26303c; font: 15px/1.5 FONT; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 28px; line-height: 1.25; margin: 0 0 20px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 12px; }
section, figure, .facts { background: white; border: 1px solid #e1e6ec; border-radius: 10px; }
section, figure, .facts { padding: 20px 24px; margin: 0 0 18px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 16px 28px; }
.facts dt { color: #667282; font-size: 13px; }
.facts dd { margin: 0; font-size: 17px; font-weight: 600; overflow-wrap: anywhere; }
.findings { border-color: #e3a79c; background: #fdf3f1; }
.findings ul { margin: 0; padding-left: 20px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
figure { overflow: hidden; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; font-size: 13px; color: #667282; white-space: nowrap; }
th, td { padding: 7px 18px 7px 0; border-bottom: 1px solid #e9edf1; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; min-width: 9em; }
.number { text-align: right; white-space: nowrap; }
@media (max-width: 640px) { section, figure, .facts { padding: 14px; } h1 { font-size: 23px; } }
@media print { body { background: white; } section, figure { break-inside: avoid; } }
""".replace("FONT", _FONT)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<script>{script}</script>
</head>
<body><main>
{body}
</main></body>
</html>
"""
