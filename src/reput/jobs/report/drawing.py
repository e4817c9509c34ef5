"""Draw the plots of a report with plotly (the extra `report`), which is imported at the first use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reput.extras import require
from reput.jobs.report.plot import Plot, Series
from reput.jobs.report.table import format_value

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
_FONT = {"family": FONT, "size": 13, "color": "#26303c"}
_COLOURS = ("#2b6cb0", "#dd7f2e", "#2f9e77", "#c0477f", "#7863c4", "#b3902b", "#3f9fc0", "#8a93a0")
_COLOUR_SCALE = ((0.0, "#fbf4e8"), (0.35, "#f6cf8f"), (0.65, "#e8894a"), (1.0, "#a8281f"))


def draw(plots: Sequence[Plot]) -> tuple[str, list[str]]:
    """Draw plots: Plotly's script, and the HTML of each plot.

    Raises ConfigError when plotly is not installed.
    """
    require("plotly", "a report with plots")
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs

    shared: dict[str, str] = {}
    config = {"responsive": True, "displayModeBar": False}  # the mouse zooms, a double click shows all again
    drawn = [
        to_html(_figure(plot, shared), config=config, include_plotlyjs=False, full_html=False, div_id=f"plot-{number}")
        for number, plot in enumerate(plots)
    ]
    return get_plotlyjs(), drawn


def _figure(plot: Plot, shared: dict[str, str]) -> Any:
    """Plotly Figure of a plot. A name has one colour in all areas and treemaps of a page, kept in `shared`."""
    from plotly.subplots import make_subplots

    if plot.kind == "treemap":
        return _treemap(plot, shared)
    plot = _with_bars_for_one_x(plot)
    pane_labels = list(dict.fromkeys(series.y_label or plot.y_label for series in plot.series))
    figure = make_subplots(rows=len(pane_labels), shared_xaxes=True, vertical_spacing=0.06)
    for trace, pane_label in _traces(plot, shared):
        figure.add_trace(trace, row=pane_labels.index(pane_label) + 1, col=1)
    longest = max(len(series.x) for series in plot.series)
    legend = len(plot.series) > 1 and plot.kind != "heatmap"
    height = {"bar": 90 + 30 * longest * len(plot.series), "heatmap": 110 + 46 * len(plot.series)}
    figure.update_layout(
        template="plotly_white",
        font=_FONT,
        height=height.get(plot.kind, 120 + 230 * len(pane_labels)),
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left", "traceorder": "normal"},
        showlegend=legend,
        hovermode="x unified" if plot.kind in ("line", "area") else "closest",
        bargap=0.3,
    )
    figure.update_xaxes(automargin=True, ticklabelstandoff=4, title_font=_FONT)
    figure.update_yaxes(automargin=True, title_font=_FONT)
    if plot.kind == "bar":
        figure.update_xaxes(showticklabels=False)  # each bar has its number; the label may be longer than any bar
        label = {"text": plot.y_label, "showarrow": False, "xref": "paper", "yref": "paper"}
        figure.add_annotation(label, x=1, xanchor="right", y=0, yanchor="top")
        figure.update_layout(margin_b=36)
        figure.update_yaxes(title_text=plot.x_label, autorange="reversed", ticks="outside", tickcolor="white")
    else:
        figure.update_xaxes(title_text=plot.x_label, row=len(pane_labels), col=1)
        for row, pane_label in enumerate(pane_labels, start=1):
            figure.update_yaxes(title_text=pane_label, row=row, col=1)
    return figure


def _with_bars_for_one_x(plot: Plot) -> Plot:
    """Plot with a bar a series where lines or areas have a single x, and so no extent; any other plot as it is."""
    all_x = {x for series in plot.series for x in series.x}
    if plot.kind not in ("line", "area") or len(all_x) != 1 or any(series.y_label for series in plot.series):
        return plot
    values = {series.name: value for series in plot.series for value in series.y}
    (only_x,) = all_x
    bars = Series(plot.y_label, list(values), list(values.values()))
    return replace(
        plot, kind="bar", x_label="", y_label=f"{plot.y_label}, {plot.x_label} {format_value(only_x)}", series=[bars]
    )


def _treemap(plot: Plot, shared: dict[str, str]) -> Any:
    """Plotly Figure of a treemap. A rectangle too small for its text shows the text under the mouse."""
    from plotly import graph_objects

    labels = [str(label) for series in plot.series for label in series.x]
    values = [value for series in plot.series for value in series.y]
    cells = graph_objects.Treemap(
        ids=[str(number) for number in range(len(labels))],
        labels=labels,
        parents=[""] * len(labels),
        values=values,
        marker={
            "colors": [_shared_colour(label, shared) for label in labels],
            "cornerradius": 4,
            "pad": dict.fromkeys("tlrb", 0),
        },
        texttemplate=f"<b>%{{label}}</b><br>%{{value:.3s}} {plot.y_label}, %{{percentRoot:.1%}}",
        hovertemplate=f"%{{label}}: %{{value:,}} {plot.y_label}, %{{percentRoot:.1%}}<extra></extra>",
        textfont={"color": "white"},
        tiling={"pad": 3},
        pathbar={"visible": False},
    )
    figure = graph_objects.Figure(cells)
    figure.update_layout(
        template="plotly_white",
        font={"family": FONT, "size": 13},
        height=360,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        uniformtext={"minsize": 10, "mode": "hide"},
    )
    return figure


def _shared_colour(name: str, shared: dict[str, str]) -> str:
    return shared.setdefault(name, _COLOURS[len(shared) % len(_COLOURS)])


def _traces(plot: Plot, shared: dict[str, str]) -> list[tuple[Any, str]]:
    """Plotly's traces of a plot, each with the label of its pane."""
    from plotly import graph_objects

    if plot.kind == "heatmap":
        cells = graph_objects.Heatmap(
            x=list(plot.series[0].x),
            y=[series.name for series in plot.series],
            z=[list(series.y) for series in plot.series],
            colorscale=_COLOUR_SCALE,
            colorbar={
                "title": {"text": plot.value_label, "side": "right", "font": _FONT},
                "thickness": 14,
                "outlinewidth": 0,
            },
            xgap=2,
            ygap=2,
            hovertemplate="%{y}, %{x}: %{z:.3~s}<extra></extra>",
        )
        return [(cells, plot.y_label)]
    traces = []
    for number, series in enumerate(plot.series):
        x, y = list(series.x), list(series.y)
        colour = _shared_colour(series.name, shared) if plot.kind == "area" else _COLOURS[number % len(_COLOURS)]
        if plot.kind == "bar":
            texts = [format_value(value) for value in y]
            bar = {"orientation": "h", "x": y, "y": x, "name": series.name, "marker_color": colour, "hoverinfo": "skip"}
            number_style = {"textposition": "auto", "insidetextanchor": "end", "textangle": 0, "cliponaxis": False}
            trace = graph_objects.Bar(text=texts, **number_style, **bar)
        else:
            stack = {"stackgroup": "all", "line": {"width": 0}, "fillcolor": colour} if plot.kind == "area" else {}
            line = {"name": series.name, "mode": "lines", "line": {"width": 1.6, "color": colour}} | stack
            trace = graph_objects.Scatter(x=x, y=y, connectgaps=False, **line)
        traces.append((trace, series.y_label or plot.y_label))
    return traces
