"""Plots of a report: options of Apache ECharts, which `browser/page.js` hands to it.

A value is drawn in the unit that its label tells (`units.py`), so an axis in MiB has round numbers of MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from reput.jobs.report.plot import Plot, Series
from reput.jobs.report.table import Value
from reput.jobs.report.units import UnitStep, unit_of, without_unit, write_name, write_number, write_value

#: Colours of names, which differ well from each other, and can be read on a light and on a dark page.
_PALETTE = (
    "#3f7cc4", "#dd7a2b", "#2f9a74", "#c54f88", "#8267c7", "#ad8a1f", "#2b98b0", "#cf5650", "#6c962d", "#976a50",
    "#5163c6", "#ad61bb",
)  # fmt: skip
#: Colour of the topics after the last one of the palette, whose labels tell them apart, and of all small ones as one.
_OTHER = "#87909c"
_OTHERS = re.compile(r"\d+ others")
#: Colour of a plot of one measure that is not of a topic; the palette does not have it.
_MEASURE = "#6482a3"
#: Characters have about this width, in pixels; digits never have more.
_CHARACTER = 7.6
#: Bars that are drawn.
_MOST_NAMES = 60
#: A line or an area with more points has a slider, to look closer.
_ZOOMED_POINTS = 40
_PANE_HEIGHT, _PANE_GAP, _LABEL_HEIGHT = 210, 42, 30
_WITHIN = {"alignMinLabel": "left", "alignMaxLabel": "right"}
_AREA = {"stack": "all", "lineStyle": {"width": 0}, "areaStyle": {"opacity": 1}}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot for the page.

    Attributes:
        height: its height in pixels.
        legend: colours by name.
        option: what ECharts is given.
        caption: text that stands below it: what the lengths of bars are.
    """

    height: int
    legend: Mapping[str, str]
    option: Mapping[str, Any]
    caption: str = ""


class _Colours:
    """Colours of the names on a page: a name has one colour, whichever plots it stands in.

    When the palette is used up, new topics are grey, and other names have a colour that their own plot does not have.
    """

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def of(self, names: Iterable[str], *, are_topics: bool) -> dict[str, str]:
        """Colours of the names in one plot."""
        names = list(dict.fromkeys(names))
        for name in names:
            if name in self._of or _OTHERS.fullmatch(name):
                continue
            is_used_up = len(self._of) >= len(_PALETTE)
            taken = set(self._of.values()) if are_topics or not is_used_up else {self._of.get(one) for one in names}
            self._of[name] = next((colour for colour in _PALETTE if colour not in taken), _OTHER)
        return {name: self._of.get(name, _OTHER) for name in names}


def draw(plots: Sequence[Plot]) -> list[Drawing]:
    """Draw the plots of one page."""
    colours = _Colours()
    return [_draw(_stacked(_with_bars_for_one_x(plot)), colours) for plot in plots]


def _draw(plot: Plot, colours: _Colours) -> Drawing:
    match plot.kind:
        case "heatmap":
            return _heatmap(plot)
        case "bar":
            return _bars(plot, colours)
        case _:
            return _lines(plot, colours)


def _with_bars_for_one_x(plot: Plot) -> Plot:
    """Plot with a bar a series if lines or areas have a single x, and so no extent; any other plot as it is."""
    all_x = {x for series in plot.series for x in series.x}
    if plot.kind not in ("line", "area") or len(all_x) != 1 or any(series.y_label for series in plot.series):
        return plot
    values = {series.name: value for series in plot.series for value in series.y}
    (only_x,) = all_x
    topics = list(values) if plot.kind == "area" else None
    moment = write_value(only_x, plot.x_label).removesuffix(" UTC" if "(UTC)" in plot.x_label else "")
    label = f"{plot.y_label}, {plot.x_label} {moment}"
    bars = Series(plot.y_label, list(values), list(values.values()), topics=topics)
    return replace(plot, kind="bar", x_label="", y_label=label, series=[bars])


def _stacked(plot: Plot) -> Plot:
    """Plot of areas with a y at each x of any of them, since ECharts stacks them by number; any other plot as it is."""
    if plot.kind != "area":
        return plot
    all_x = sorted({x for series in plot.series for x in series.x if x is not None}, key=_order)
    series = []
    for one in plot.series:
        heights = dict(zip(one.x, one.y, strict=True))
        series.append(replace(one, x=all_x, y=[heights.get(x) or 0 for x in all_x]))
    return replace(plot, series=series)


def _order(x: Value) -> tuple[bool, float, str]:
    return (False, x, "") if isinstance(x, int | float) else (True, 0, str(x))


def _bars(plot: Plot, colours: _Colours) -> Drawing:
    """Horizontal bars, each with its number; so the axis of the lengths needs none."""
    shown = [_first_bars(one) for one in plot.series]
    has_legend = len(shown) > 1
    written = [[write_value(value, plot.y_label) for value in series.y] for series in shown]
    longest = max(len(text) for texts in written for text in texts)
    legend = colours.of((one.name for one in shown), are_topics=False) if has_legend else {}
    series = []
    for one, texts in zip(shown, written, strict=True):
        colour = legend.get(one.name, _MEASURE)
        topics = colours.of(one.topics or (), are_topics=True)
        points = [
            {"value": value, "text": text, "itemStyle": {"color": topics[one.topics[i]] if one.topics else colour}}
            for i, (value, text) in enumerate(zip(one.y, texts, strict=True))
        ]
        series.append(
            {
                "type": "bar", "name": one.name, "data": points, "color": colour, "barMaxWidth": 18,
                "label": {"show": True, "position": "right"},
            }
        )  # fmt: skip
    rows = max(len(one.x) for one in shown)
    most = max((y for one in shown for y in one.y if isinstance(y, int | float)), default=0)
    label = _bars_label(plot)
    if (bars := len(plot.series[0].x)) > rows:
        label = f"{label} ({rows} of {write_number(bars)})"
    option = {
        "grid": {
            "left": 4, "right": longest * _CHARACTER + 12, "top": 4, "bottom": 8,
            "outerBoundsContain": "axisLabel", "outerBoundsClampWidth": 20,
        },
        "xAxis": {
            "type": "value", "axisLabel": {"show": False}, "max": most if most > 0 else None,
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "category", "data": [str(x) for x in shown[0].x], "inverse": True,
            "axisLine": {"onZero": False}, "axisLabel": {"interval": 0},
        },
        "series": series,
    }  # fmt: skip
    height = rows * (8 + 20 * len(shown)) + 12
    return Drawing(height, legend, option, label)


def _first_bars(series: Series) -> Series:
    topics = series.topics and series.topics[:_MOST_NAMES]
    return replace(series, x=series.x[:_MOST_NAMES], y=series.y[:_MOST_NAMES], topics=topics)


def _bars_label(plot: Plot) -> str:
    """Label of bars: what their lengths are, by what, as far as numbers with units and the title do not tell."""
    lengths, names = without_unit(plot.y_label), f"by {write_name(plot.x_label)}"
    return f"{lengths} {names}".strip() if plot.x_label and names not in plot.title else lengths


class _Pane(NamedTuple):
    """One quantity of a plot of lines: the label of its axis, and the unit that its values are divided to."""

    label: str
    unit: UnitStep

    @classmethod
    def of(cls, label: str, series: Sequence[Series], *, is_stacked: bool) -> _Pane:
        heights: dict[Value, float] = {}
        for one in series:
            for x, y in zip(one.x, one.y, strict=True):
                height = abs(y) if isinstance(y, int | float) else 0
                heights[x] = heights.get(x, 0) + height if is_stacked else max(heights.get(x, 0), height)
        most = max(heights.values(), default=0)
        unit = unit_of(label)
        if unit is None:
            return cls(label, UnitStep("", 1, 0))
        step = unit.step_of(most)
        return cls(unit.label(label, step), step)

    def divided(self, value: Value) -> Value:
        if not isinstance(value, int | float) or self.unit.size == 1:
            return value
        return float(f"{value / self.unit.size:.5g}")


def _lines(plot: Plot, colours: _Colours) -> Drawing:
    """Lines or stacked areas over one x axis, with a pane for each quantity."""
    by_label: dict[str, list[Series]] = {}
    for one in plot.series:
        by_label.setdefault(one.y_label or plot.y_label, []).append(one)
    panes = [_Pane.of(label, series, is_stacked=plot.kind == "area") for label, series in by_label.items()]
    has_legend = len(plot.series) > 1
    names = [one.name for one in plot.series]
    is_named = has_legend or plot.kind == "area"
    legend = colours.of(names, are_topics=plot.kind == "area") if is_named else dict.fromkeys(names, _MEASURE)
    x_kind = _x_kind(plot.series)
    is_zoomed = max(len(one.x) for one in plot.series) > _ZOOMED_POINTS
    tops = [_LABEL_HEIGHT + number * (_PANE_HEIGHT + _PANE_GAP) for number in range(len(panes))]
    grid = {"right": 18, "height": _PANE_HEIGHT, "outerBoundsMode": "none"}  # the page knows what `left` takes
    option = {
        "grid": [grid | {"top": top} for top in tops],
        "xAxis": [_x_axis(plot, x_kind, number, is_last=number == len(panes) - 1) for number in range(len(panes))],
        "yAxis": [
            {"gridIndex": number, "name": pane.label, "nameLocation": "end", "nameTextStyle": {"align": "left"}}
            for number, pane in enumerate(panes)
        ],
        "axisPointer": {"link": [{"xAxisIndex": "all"}]},
        "tooltip": {"trigger": "axis"},
        "dataZoom": [{"type": "slider", "xAxisIndex": "all", "height": 16, "bottom": 6}] if is_zoomed else [],
        "series": [
            _line(one, number, pane, x_kind, legend[one.name]) | (_AREA if plot.kind == "area" else {})
            for number, (pane, series) in enumerate(zip(panes, by_label.values(), strict=True))
            for one in series
        ],
    }  # fmt: skip
    height = tops[-1] + _PANE_HEIGHT + 50 + (30 if is_zoomed else 0)
    return Drawing(height, legend if has_legend else {}, option)


def _x_kind(series: Sequence[Series]) -> Literal["time", "value", "category"]:
    """Kind of an x axis: of times if each x is an ISO 8601 text."""
    all_x = {x for one in series for x in one.x}
    if all(isinstance(x, str) and _milliseconds(x) is not None for x in all_x):
        return "time"
    return "category" if any(isinstance(x, str) for x in all_x) else "value"


def _x_axis(plot: Plot, kind: str, number: int, *, is_last: bool) -> dict[str, Any]:
    axis = {"type": kind, "gridIndex": number, "axisLabel": {"hideOverlap": True, "show": is_last} | _WITHIN}
    return axis | {"name": plot.x_label if is_last else "", "nameLocation": "middle", "nameGap": 30}


def _line(series: Series, number: int, pane: _Pane, x_kind: str, colour: str) -> dict[str, Any]:
    points = [
        (_milliseconds(str(x)) if x_kind == "time" else x, pane.divided(y))
        for x, y in zip(series.x, series.y, strict=True)
    ]
    return {
        "type": "line", "name": series.name, "data": points, "color": colour, "unit": pane.unit.name,
        "xAxisIndex": number, "yAxisIndex": number, "showSymbol": False, "lineStyle": {"width": 1.6},
    }  # fmt: skip


def _milliseconds(text: str) -> int | None:
    """Milliseconds since 1970 UTC of an ISO 8601 text; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _heatmap(plot: Plot) -> Drawing:
    """Cells of a row for each series; the scale's colours are the page's."""
    columns = [str(x) for x in plot.series[0].x]
    cells = [
        (column, row, value)
        for row, series in enumerate(plot.series)
        for column, value in enumerate(series.y)
        if value is not None
    ]
    values = [value for _, _, value in cells if isinstance(value, int | float)] or [0]
    label = plot.value_label or ""
    most = f"{write_value(max(values), label)} {without_unit(label)}".strip()
    option = {
        "grid": {"left": 4, "right": 4, "top": _LABEL_HEIGHT, "bottom": 74, "outerBoundsContain": "axisLabel"},
        "xAxis": {"type": "category", "data": columns, "name": plot.x_label, "nameLocation": "middle", "nameGap": 30},
        "yAxis": {
            "type": "category", "data": [one.name for one in plot.series], "name": plot.y_label,
            "nameTextStyle": {"align": "left"},
        },
        "visualMap": {
            "min": min(values), "max": max(values), "orient": "horizontal", "left": "center", "bottom": 0,
            "itemWidth": 12, "itemHeight": 140,
            "text": [most, write_value(min(values), label)],
        },
        "series": [{"type": "heatmap", "name": label, "data": cells, "unit": label}],
    }  # fmt: skip
    return Drawing(_LABEL_HEIGHT + 74 + 44 * len(plot.series), {}, option)
