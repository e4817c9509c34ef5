"""The plots of the flights job: what happened in 2013, drawn from the counts."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from examples.flights.counts import Counts
from examples.flights.events import CANCELLED, DEPARTED, TOPICS
from reput.jobs.report.plot import Plot, Series

LEAST_DEPARTURES = 20
"""A mean over fewer departures is not shown."""


def flight_plots(found: Counts, airlines: Mapping[str, str]) -> list[Plot]:
    """Volume and delay over the year, by hour and airport, and by carrier."""
    return [
        _volume(found.counts),
        _delay_by_day(found.counts),
        _delay_by_hour(found.delays),
        _delay_by_carrier(found.delays, airlines),
    ]


def _by_day(counts: pa.Table, topic: str) -> pa.Table:
    """Columns day (timestamp), messages and delay_minutes: the sums of one topic by day (UTC)."""
    counts = counts.filter(pc.equal(counts["topic"], topic))
    day = pc.floor_temporal(counts["hour"].cast(pa.timestamp("s")), unit="day")
    return _sums(counts.append_column("day", day), ["day"]).sort_by("day")


def _sums(table: pa.Table, keys: list[str]) -> pa.Table:
    sums = table.group_by(keys).aggregate([("messages", "sum"), ("delay_minutes", "sum")])
    return sums.rename_columns({"messages_sum": "messages", "delay_minutes_sum": "delay_minutes"})


def _days(by_day: pa.Table) -> list[str]:
    return [day.date().isoformat() for day in by_day["day"].to_pylist()]


def _mean_delay(sums: pa.Table) -> list[float | None]:
    means = pc.round(pc.divide(sums["delay_minutes"].cast(pa.float64()), sums["messages"]), ndigits=1)
    shown: list[float | None] = pc.if_else(pc.less(sums["messages"], LEAST_DEPARTURES), None, means).to_pylist()
    return shown


def _volume(counts: pa.Table) -> Plot:
    series = []
    for topic in TOPICS:
        by_day = _by_day(counts, topic)
        series.append(Series(topic, _days(by_day), by_day["messages"].to_pylist()))
    return Plot("area", "Messages a day by topic", "day of the event (UTC)", "messages a day", series)


def _delay_by_day(counts: pa.Table) -> Plot:
    departed = _by_day(counts, DEPARTED)
    cancelled = dict(zip(*(_by_day(counts, CANCELLED)[name].to_pylist() for name in ("day", "messages")), strict=True))
    share = [
        round(100 * cancelled.get(day, 0) / (cancelled.get(day, 0) + count), 2)
        for day, count in zip(departed["day"].to_pylist(), departed["messages"].to_pylist(), strict=True)
    ]
    days = _days(departed)
    series = [
        Series("mean departure delay", days, _mean_delay(departed)),
        Series("cancelled share", days, share, y_label="cancelled flights (%)"),
    ]
    title = "Departure delay and cancelled flights, day by day"
    return Plot("line", title, "day of the departure (UTC)", "mean delay (minutes)", series)


def _delay_by_hour(delays: pa.Table) -> Plot:
    sums = _sums(delays, ["scheduled_hour", "airport"])
    cells = zip(sums["airport"].to_pylist(), sums["scheduled_hour"].to_pylist(), strict=True)
    mean = dict(zip(cells, _mean_delay(sums), strict=True))
    hours = sorted({hour for (_, hour), value in mean.items() if value is not None})
    labels = [f"{hour:02}:00" for hour in hours]
    airports = sorted({airport for airport, _ in mean}, reverse=True)
    series = [Series(airport, labels, [mean.get((airport, hour)) for hour in hours]) for airport in airports]
    title = "Mean departure delay by scheduled hour and airport"
    return Plot("heatmap", title, "scheduled hour of departure (New York)", "airport", series, value_label="minutes")


def _delay_by_carrier(delays: pa.Table, airlines: Mapping[str, str]) -> Plot:
    sums = _sums(delays, ["carrier"])
    means = zip(_mean_delay(sums), sums["carrier"].to_pylist(), strict=True)
    rows = sorted(((mean, carrier) for mean, carrier in means if mean is not None), reverse=True)
    names = [f"{airlines[carrier]} ({carrier})" for _, carrier in rows]
    series = [Series("mean delay", names, [mean for mean, _ in rows])]
    return Plot("bar", "Mean departure delay by airline", "", "mean delay (minutes)", series)
