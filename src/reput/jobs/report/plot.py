"""Plots of a report as data; `reput.jobs.report.drawing` says how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reput.jobs.report.table import Value

PlotKind = Literal["bar", "line", "area", "heatmap"]

#: Bars of a plot by size; all smaller ones are one more.
_SHOWN_BARS = 20


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a plot: `y[i]` at `x[i]`; None is a gap.

    `y_label` names another quantity than the plot's: each `y_label` has its own pane, and the panes stand one below the
    other over the same x axis. `topics` names the topic of each bar, which gives it its colour; so does the name of an
    area. Raises ValueError when x and y or topics differ in length.
    """

    name: str
    x: Sequence[Value]
    y: Sequence[Value]
    y_label: str | None = None
    topics: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} x for {len(self.y)} y")
        if self.topics is not None and len(self.topics) != len(self.x):
            raise ValueError(f"series {self.name!r}: {len(self.topics)} topics for {len(self.x)} x")


@dataclass(frozen=True, slots=True)
class Plot:
    """Description of one plot. Labels carry the units.

    kind: "bar" draws a horizontal bar a category (x: categories, top down; y: lengths); "line" a line a series; "area"
    the series stacked; "heatmap" a row a series (name: its label; x: columns; y: colours, named by `value_label`).
    Lines and areas with a single x are drawn as bars.
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


def bars_by_size(title: str, x_label: str, sizes: Mapping[str, int]) -> Plot:
    """Plot of sizes in bytes, the largest first, all small ones as one; with the `x_label` "topic", of topics."""
    names = sorted(sizes, key=lambda name: -sizes[name])
    shown = names if len(names) == _SHOWN_BARS + 1 else names[:_SHOWN_BARS]
    labels, lengths = list(shown), [sizes[name] for name in shown]
    if rest := names[len(shown) :]:
        labels.append(f"{len(rest)} others")
        lengths.append(sum(sizes[name] for name in rest))
    bars = Series("bytes", labels, lengths, topics=labels if x_label == "topic" else None)
    return Plot("bar", title, x_label, "bytes", [bars])
