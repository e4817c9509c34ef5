"""Plots of a report as data; `reput.jobs.report.drawing` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reput.jobs.report.table import Value

PlotKind = Literal["bar", "line", "area", "heatmap", "treemap"]


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a plot: `y[i]` at `x[i]`; None is a gap.

    `y_label` names another quantity than the plot's: each `y_label` has its own pane, and the panes stand one below the
    other over the same x axis. Raises ValueError when x and y differ in length.
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
    """Description of one plot. Labels carry the units.

    kind: "bar" draws a horizontal bar a category (x: categories, top down; y: lengths); "line" a line a series; "area"
    the series stacked; "heatmap" a row a series (name: its label; x: columns; y: colours, named by `value_label`);
    "treemap" a rectangle a category, each as large as its y. Lines and areas with a single x are drawn as bars.
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
