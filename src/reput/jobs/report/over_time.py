"""Plots over time for reports: when messages were stored, and how fast a job was, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from reput.jobs.report.plot import Plot, Series

#: Limit of a line's points.
_MOST_POINTS = 300
#: Series that are shown; all other series are one more.
_SHOWN_SERIES = 7
_DAY_S = 86_400
#: Widths of a time interval; each is a multiple of the width before it, and the last one fits thousands of years.
_WIDTHS_MS = tuple(1000 * width for width in (1, 10, 60, 600, 3_600, 21_600, *(_DAY_S * 10**n for n in range(6))))
#: First time that Python's dates can show.
_FIRST_MS = -62_135_596_800_000


def stacked_over_time(counts: Mapping[str, Mapping[str, int]], x_label: str) -> Plot:
    """Plot of messages by series and time (ISO 8601), the largest series first, all small series as one."""
    joined = join_times(moment for of_series in counts.values() for moment in of_series)
    counts = {name: _joined(of_series, joined) for name, of_series in counts.items()}
    times = list(dict.fromkeys(joined.values()))
    largest = sorted(counts, key=lambda name: -sum(counts[name].values()))
    shown = largest if len(largest) == _SHOWN_SERIES + 1 else largest[:_SHOWN_SERIES]
    series = [Series(name, times, [counts[name].get(moment, 0) for moment in times]) for name in shown]
    if rest := largest[len(shown) :]:
        others = [sum(counts[name].get(moment, 0) for name in rest) for moment in times]
        series.append(Series(f"{len(rest)} others", times, others))
    # One time has no extent, and is drawn as a bar for each series.
    return Plot("area", "Messages" if len(times) == 1 else "Messages over time", x_label, "messages", series)


def join_times(times: Iterable[str]) -> dict[str, str]:
    """Each time, in order, with the time of its point in a plot: neighbours share one if there are many times."""
    in_order = sorted(set(times))
    width = -(-len(in_order) // _MOST_POINTS)
    return {moment: in_order[number // width * width] for number, moment in enumerate(in_order)}


def _joined(counts: Mapping[str, int], joined: Mapping[str, str]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for moment, count in counts.items():
        sums[joined[moment]] = sums.get(joined[moment], 0) + count
    return sums


class StoredOverTime:
    """Counts messages by topic and store time, in intervals of a second, or of more if there are many intervals."""

    def __init__(self) -> None:
        self._width = 0
        self._counts: dict[tuple[str, int], int] = {}

    @staticmethod
    def counts(schema: pa.Schema) -> bool:
        """Whether rows have `topic` and `store_timestamp` as messages have them: SQL may give anything these names."""
        topic, time = (schema.get_field_index(name) for name in ("topic", "store_timestamp"))
        if -1 in (topic, time):
            return False
        kind, moment = schema.types[topic], schema.types[time]
        is_text = pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind)
        return bool(is_text and pa.types.is_timestamp(moment) and moment.unit == "us")

    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows by their columns `topic` and `store_timestamp`; rows that lack either are passed over."""
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
        """The plot; an empty list without messages."""
        counts: dict[str, dict[str, int]] = {}
        width_ms = _WIDTHS_MS[self._width]
        for (topic, start), count in self._counts.items():
            moment = pa.scalar(max(start * width_ms, _FIRST_MS), pa.timestamp("ms", "UTC")).as_py()
            counts.setdefault(topic, {})[moment.isoformat(timespec="seconds").replace("+00:00", "Z")] = count
        return [stacked_over_time(counts, "stored (UTC)")] if counts else []


class _Interval(NamedTuple):
    """Messages of a time interval, and its longest lag. It ends at `end_s`, in seconds since the start.

    An interval begins at the end of the interval before it.
    """

    end_s: float
    messages: int
    lag: float | None

    def joined(self, later: _Interval) -> _Interval:
        """One interval of this one and the next."""
        lags = [lag for lag in (self.lag, later.lag) if lag is not None]
        return _Interval(later.end_s, self.messages + later.messages, max(lags, default=None))


class RateOverTime:
    """Messages a second of a job from its start to its end, and its lag.

    Args:
        lag_label: name and unit of the lag that is given to `add`; None if `add` is given none.
        clock: seconds that only grow.
    """

    def __init__(self, lag_label: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._lag_label = lag_label
        self._clock = clock
        self._started = clock()
        self._least_s = 0.2
        self._intervals: list[_Interval] = []

    def add(self, messages: int, lag: float | None = None) -> None:
        """Count messages that are done now."""
        intervals = self._intervals
        new = _Interval(self._clock() - self._started, messages, lag)
        if intervals and intervals[-1].end_s - (intervals[-2].end_s if len(intervals) > 1 else 0) < self._least_s:
            new = intervals.pop().joined(new)
        intervals.append(new)
        if len(intervals) > _MOST_POINTS:
            self._least_s *= 2
            pairs = [intervals[i : i + 2] for i in range(0, len(intervals), 2)]
            self._intervals = [pair[0].joined(pair[-1]) if len(pair) == 2 else pair[0] for pair in pairs]

    def plots(self) -> list[Plot]:
        """The plot; an empty list without messages."""
        if not any(interval.messages for interval in self._intervals):
            return []
        begins = [0.0, *(interval.end_s for interval in self._intervals)]
        rates = [
            round(interval.messages / max(interval.end_s - begin, 1e-3))
            for begin, interval in zip(begins, self._intervals, strict=False)
        ]
        series = [Series("messages a second", [round(one.end_s, 1) for one in self._intervals], rates)]
        if self._lag_label is not None and len(self._intervals) > 1:  # one interval is drawn as a bar, in one pane
            known = [one for one in self._intervals if one.lag is not None]
            lags = [one.lag for one in known]
            series.append(Series(self._lag_label, [round(one.end_s, 1) for one in known], lags, self._lag_label))
        return [Plot("line", "Messages a second", "seconds since the start", "messages a second", series)]
