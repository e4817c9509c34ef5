"""What reports show over time adds up to what was counted, in few points."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reput.jobs.report.over_time import RateOverTime, StoredOverTime, stacked_over_time

#: The years 1 to 9999, in microseconds since 1970.
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
NEAR = st.integers(1_700_000_000_000_000, 1_700_000_300_000_000)


def batch(rows: list[tuple[str, int | None]]) -> pa.RecordBatch:
    topics = pa.array([topic for topic, _ in rows], pa.string())
    times = pa.array([time for _, time in rows], pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([topics, times], ["topic", "store_timestamp"])


@given(st.lists(st.tuples(st.sampled_from("abc"), TIMES | NEAR | st.none()), max_size=400), st.integers(1, 50))
def test_each_message_is_counted_in_the_stretch_of_its_time(rows: list[tuple[str, int | None]], step: int) -> None:
    stored = StoredOverTime()
    for begin in range(0, len(rows), step):
        stored.add(batch(rows[begin : begin + step]))
    plots = stored.plots()
    dated = [(topic, time) for topic, time in rows if time is not None]
    assert len(plots) == (1 if dated else 0)
    if dated:
        found = {series.name: sum(int(y or 0) for y in series.y) for series in plots[0].series}
        assert found == Counter(topic for topic, _ in dated)
        starts = [datetime.fromisoformat(str(x)) for x in plots[0].series[0].x]
        assert len(starts) <= 300
        assert starts == sorted(starts)
        assert starts[0].timestamp() * 1e6 <= min(time for _, time in dated)


def test_a_few_seconds_are_shown_by_the_second() -> None:
    stored = StoredOverTime()
    stored.add(batch([("a", 1_700_000_000_000_000 + n * 1_000_000) for n in range(20)]))
    (plot,) = stored.plots()
    assert plot.title == "Messages over time"
    assert list(plot.series[0].y) == [1] * 20


def test_one_time_only_is_no_course_of_time() -> None:
    assert stacked_over_time({"a": {"2026-11-21T00:00:00Z": 3}}, "stored (UTC)").title == "Messages"


def test_more_series_than_can_be_told_apart_are_one() -> None:
    plot = stacked_over_time({f"t{n}": {"2026-11-21": n, "2026-11-22": 1} for n in range(12)}, "stored (UTC)")
    assert [series.name for series in plot.series] == ["t11", "t10", "t9", "t8", "t7", "t6", "t5", "5 others"]
    assert list(plot.series[-1].y) == [0 + 1 + 2 + 3 + 4, 5]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10_000), st.none() | st.floats(-5, 50)), max_size=40),
    st.integers(1, 40),
)
def test_rates_add_up_and_the_longest_lag_stays(steps: list[tuple[int, int, float | None]], times: int) -> None:
    now = 100.0
    rate = RateOverTime("behind (s)", lambda: now)
    for pause, count, lag in steps * times:
        now += pause
        rate.add(count, lag)
    plots = rate.plots()
    total = times * sum(count for _, count, _ in steps)
    assert len(plots) == (1 if total else 0)
    if total:
        rates, *others = plots[0].series
        ends = [0, *map(float, rates.x)]  # type: ignore[arg-type]
        assert len(rates.x) <= 300
        done = sum(float(y or 0) * (end - begin) for y, begin, end in zip(rates.y, ends, ends[1:], strict=False))
        assert abs(done - total) <= 0.5 * ends[-1]
        assert len(others) == (1 if len(rates.x) > 1 else 0)
        told = [lag for _, _, lag in steps if lag is not None]
        for lags in others:
            assert max((float(y) for y in lags.y if y is not None), default=None) == max(told, default=None)


def test_without_a_lag_there_is_one_line() -> None:
    rate = RateOverTime()
    rate.add(5)
    assert [series.name for series in rate.plots()[0].series] == ["messages a second"]
