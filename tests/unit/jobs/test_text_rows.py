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
from reput.jobs.text_rows import TextWriter

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


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_within_a_body_is_the_same_in_every_time_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        kind = pa.struct({"naive": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")})
        value = {"naive": datetime(2026, 1, 2, 3, 4, 5, 678999), "utc": datetime(2026, 1, 2, 3, 4, 5, 678999)}
        batch = pa.record_batch({"body": pa.array([value], kind)})
        assert json.loads(_text("jsonl", batch)) == {"body": {"naive": 1767323045678, "utc": 1767323045678}}
    finally:
        monkeypatch.undo()
        time.tzset()
