"""Rows as text: no number is changed, however deep in a row it is."""

from __future__ import annotations

import csv
import io
import json
import time
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.cli.display.rows import SeenRows
from reput.errors import ConfigError
from reput.jobs.report.over_time import StoredOverTime
from reput.jobs.text_rows import TextWriter, json_rows, python_values

_AMOUNTS = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(f"{number}e-4"))
_DEEP = st.fixed_dictionaries({"n": _AMOUNTS, "list": st.lists(_AMOUNTS, max_size=3), "text": st.text(max_size=3)})
_DEEP_TYPE = pa.struct({"n": pa.decimal128(38, 4), "list": pa.list_(pa.decimal128(38, 4)), "text": pa.string()})
_COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "whole": (st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal), pa.decimal128(38, 0)),
    "amount": (_AMOUNTS, pa.decimal128(38, 4)),
    "long": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "unsigned": (st.integers(0, 2**64 - 1), pa.uint64()),
    "double": (st.floats(allow_nan=False, allow_infinity=False), pa.float64()),
    "body": (st.one_of(st.none(), _DEEP), _DEEP_TYPE),
    "map": (st.dictionaries(st.text(max_size=3), _AMOUNTS, max_size=3), pa.map_(pa.string(), pa.decimal128(38, 4))),
}
_SCHEMA = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])
_ROWS = st.lists(
    st.fixed_dictionaries({name: values for name, (values, _) in _COLUMNS.items()}), min_size=1, max_size=5
)


def _text(kind: Any, batch: pa.RecordBatch) -> str:
    file = io.BytesIO()
    with TextWriter(kind, file, batch.schema) as writer:
        writer.write_batch(batch)
    return file.getvalue().decode()


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    table = [row | {"map": list(row["map"].items())} for row in rows]
    return pa.RecordBatch.from_pylist(table, _SCHEMA)


@given(rows=_ROWS)
def test_each_number_is_read_from_json_as_it_was(rows: list[dict[str, Any]]) -> None:
    lines = _text("jsonl", _batch(rows)).split("\n")[:-1]  # texts may have other ends of lines
    found = [json.loads(line, parse_float=Decimal) for line in lines]
    assert [row | {"double": float(row["double"])} for row in found] == rows


@given(rows=_ROWS)
def test_each_number_is_read_from_csv_as_it_was(rows: list[dict[str, Any]]) -> None:
    found = list(csv.DictReader(io.StringIO(_text("csv", _batch(rows)), newline="")))
    for name in ("whole", "amount"):
        assert [Decimal(row[name]) for row in found] == [row[name] for row in rows]
    for name in ("long", "unsigned"):
        assert [int(row[name]) for row in found] == [row[name] for row in rows]
    for name in ("body", "map"):
        texts = [json.loads(row[name], parse_float=Decimal) if row[name] else None for row in found]
        assert texts == [row[name] for row in rows]


@given(rows=_ROWS)
def test_each_number_is_in_the_table_as_it_was(rows: list[dict[str, Any]]) -> None:
    seen = SeenRows(pa.RecordBatchReader.from_batches(_SCHEMA, [_batch(rows)]), len(rows))
    list(seen)
    for row, cells in zip(rows, seen.cells, strict=True):
        whole, amount, long, unsigned, double, body, _ = cells
        assert (whole, Decimal(amount), long, unsigned, double) == tuple(row[name] for name in list(_COLUMNS)[:5])
        assert (json.loads(str(body), parse_float=Decimal) if body else None) == row["body"]


def cells(batch: pa.RecordBatch) -> list[list[str | int | float]]:
    seen = SeenRows(pa.RecordBatchReader.from_batches(batch.schema, [batch]), batch.num_rows)
    list(seen)
    return seen.cells


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_are_the_same_in_every_time_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        moment = datetime(2026, 1, 2, 3, 4, 5, 678999)
        times = pa.record_batch({zone: pa.array([moment], pa.timestamp("us", zone)) for zone in (None, "UTC")})
        assert cells(times) == [["2026-01-02T03:04:05.678Z"] * 2]
        kind = pa.struct({"naive": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")})
        value = {"naive": datetime(2026, 1, 2, 3, 4, 5, 678999), "utc": datetime(2026, 1, 2, 3, 4, 5, 678999)}
        batch = pa.record_batch({"body": pa.array([value], kind)})
        assert json.loads(_text("jsonl", batch)) == {"body": {"naive": 1767323045678, "utc": 1767323045678}}
    finally:
        monkeypatch.undo()
        time.tzset()


_TOO_LATE = pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, 2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([-(2**63) + 1], pa.int64()).cast(pa.timestamp("us")),
        pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([[_TOO_LATE]], pa.list_(pa.date32())),
    ],
    ids=["date", "time", "time of a zone", "list"],
)
@pytest.mark.parametrize("kind", ["table", "csv", "jsonl"])
def test_an_infinite_date_is_refused(column: pa.Array, kind: str) -> None:
    batch = pa.record_batch({"d": column})
    with pytest.raises(ConfigError, match=r"a date or time is infinite.* make text of it"):
        cells(batch) if kind == "table" else _text(kind, batch)


def test_nanoseconds_are_left_out_of_a_table() -> None:
    """Python has no nanoseconds, nor has a table of times in milliseconds."""
    column = pa.array([1_767_323_045_678_999_001], pa.timestamp("ns"))
    assert cells(pa.record_batch({"t": column})) == [["2026-01-02T03:04:05.678Z"]]


@pytest.mark.parametrize(
    ("topic", "moment", "counts"),
    [
        (pa.string(), pa.timestamp("us", "UTC"), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.timestamp("us"), True),
        (pa.int32(), pa.timestamp("us", "UTC"), False),
        (pa.string(), pa.date32(), False),
        (pa.string(), pa.int64(), False),
        (pa.string(), pa.timestamp("s"), False),
    ],
)
def test_only_columns_as_messages_have_them_are_plotted(topic: pa.DataType, moment: pa.DataType, counts: bool) -> None:
    """SQL may give any column the name of one of a message."""
    assert StoredOverTime.counts(pa.schema({"topic": topic, "store_timestamp": moment})) is counts
    assert not StoredOverTime.counts(pa.schema({"topic": topic}))


@pytest.mark.parametrize("kind", ["text", "list", "struct", "map"])
def test_bytes_that_are_no_text_are_told_as_such(kind: str) -> None:
    """Spark casts any bytes to a text: a table said that a date is infinite, and JSON lines ended in Python's error."""
    text = pa.array([b"\xffabc"]).view(pa.string())
    column = {
        "text": lambda: text,
        "list": lambda: pa.ListArray.from_arrays([0, 1], text),
        "struct": lambda: pa.StructArray.from_arrays([text], ["a"]),
        "map": lambda: pa.MapArray.from_arrays([0, 1], pa.array(["a"]), text),
    }[kind]()
    batch = pa.record_batch({"name": column})
    for show in (json_rows, lambda rows: python_values(rows.column(0))):
        with pytest.raises(ConfigError, match=r"a text is no UTF-8: b'.*xffabc'; take the bytes"):
            show(batch)
