"""What reports show over time: when messages were stored, and how fast a job was; in little memory, however many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from reput.jobs.report.plot import Plot, Series

#: Points of a line, at the most.
_MOST_POINTS = 300
#: Series that are shown; the rest is one.
_SHOWN_SERIES = 7
_DAY_S = 86_400
#: Of a stretch of time; each is a multiple of the one before it, and the last one fits thousands of years.
_WIDTHS_MS = tuple(1000 * width for width in (1, 10, 60, 600, 3_600, 21_600, *(_DAY_S * 10**n for n in range(6))))
#: When Python's dates begin.
_FIRST_MS = -62_135_596_800_000


def stacked_over_time(counts: Mapping[str, Mapping[str, int]], x_label: str) -> Plot:
    """Messages by series and time (ISO 8601), the largest series first and the rest as one."""
    times = sorted({moment for of_series in counts.values() for moment in of_series})
    largest = sorted(counts, key=lambda name: -sum(counts[name].values()))
    shown = largest if len(largest) == _SHOWN_SERIES + 1 else largest[:_SHOWN_SERIES]
    series = [Series(name, times, [counts[name].get(moment, 0) for moment in times]) for name in shown]
    if rest := largest[len(shown) :]:
        others = [sum(counts[name].get(moment, 0) for name in rest) for moment in times]
        series.append(Series(f"{len(rest)} others", times, others))
    # One time has no extent, and is drawn as a bar for each series.
    return Plot("area", "Messages" if len(times) == 1 else "Messages over time", x_label, "messages", series)


class StoredOverTime:
    """Counts messages by topic and store time: by the second, and by longer stretches where there are many."""

    def __init__(self) -> None:
        self._width = 0
        self._counts: dict[tuple[str, int], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of `topic` and `store_timestamp`; those without either are passed over."""
        rows = pa.table([batch["topic"], batch["store_timestamp"].view(pa.int64())], ["topic", "start"]).drop_null()
        starts = rows["start"].to_numpy() // (_WIDTHS_MS[self._width] * 1000)
        groups = rows.set_column(1, "start", pa.array(starts))
        for row in groups.group_by(["topic", "start"]).aggregate([([], "count_all")]).to_pylist():
            self._count(row["topic"], row["start"], row["count_all"])
        while len({start for _, start in self._counts}) > _MOST_POINTS and self._width + 1 < len(_WIDTHS_MS):
            before, self._counts = self._counts, {}
            wider = _WIDTHS_MS[self._width + 1]
            for (topic, start), count in before.items():
                self._count(topic, start * _WIDTHS_MS[self._width] // wider, count)
            self._width += 1

    def _count(self, topic: str, start: int, count: int) -> None:
        self._counts[topic, start] = self._counts.get((topic, start), 0) + count

    def plots(self) -> list[Plot]:
        """The picture of it; none of nothing."""
        counts: dict[str, dict[str, int]] = {}
        width_ms = _WIDTHS_MS[self._width]
        for (topic, start), count in self._counts.items():
            moment = pa.scalar(max(start * width_ms, _FIRST_MS), pa.timestamp("ms", "UTC")).as_py()
            counts.setdefault(topic, {})[moment.isoformat(timespec="seconds").replace("+00:00", "Z")] = count
        return [stacked_over_time(counts, "stored (UTC)")] if counts else []


class _Stretch(NamedTuple):
    """What was done from the end of the stretch before to `end_s`, in seconds since the start; and the longest lag."""

    end_s: float
    messages: int
    lag: float | None

    def joined(self, later: _Stretch) -> _Stretch:
        """Both as one."""
        lags = [lag for lag in (self.lag, later.lag) if lag is not None]
        return _Stretch(later.end_s, self.messages + later.messages, max(lags, default=None))


class RateOverTime:
    """How many messages a second a job came through, from its first second to its last, and how far behind it was.

    Args:
        lag_label: what `add` is told as lag, with its unit; None where it is told none.
        clock: seconds that only grow.
    """

    def __init__(self, lag_label: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._lag_label = lag_label
        self._clock = clock
        self._started = clock()
        self._least_s = 0.2
        self._stretches: list[_Stretch] = []

    def add(self, messages: int, lag: float | None = None) -> None:
        """So many messages more are done now."""
        known = self._stretches
        new = _Stretch(self._clock() - self._started, messages, lag)
        if known and known[-1].end_s - (known[-2].end_s if len(known) > 1 else 0) < self._least_s:
            new = known.pop().joined(new)
        known.append(new)
        if len(known) > _MOST_POINTS:
            self._least_s *= 2
            pairs = [known[i : i + 2] for i in range(0, len(known), 2)]
            self._stretches = [pair[0].joined(pair[-1]) if len(pair) == 2 else pair[0] for pair in pairs]

    def plots(self) -> list[Plot]:
        """The picture of it; none of nothing."""
        if not any(stretch.messages for stretch in self._stretches):
            return []
        begins = [0.0, *(stretch.end_s for stretch in self._stretches)]
        rates = [
            round(stretch.messages / max(stretch.end_s - begin, 1e-3))
            for begin, stretch in zip(begins, self._stretches, strict=False)
        ]
        series = [Series("messages a second", [round(one.end_s, 1) for one in self._stretches], rates)]
        if self._lag_label is not None and len(self._stretches) > 1:  # else it is a bar, and has one pane
            behind = [one for one in self._stretches if one.lag is not None]
            lags = [one.lag for one in behind]
            series.append(Series(self._lag_label, [round(one.end_s, 1) for one in behind], lags, self._lag_label))
        return [Plot("line", "Messages a second", "seconds since the start", "messages a second", series)]
