"""Avro bodies become columns by their schema, and bodies that are not of it have a reason."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import ConfigError
from reput.jobs.decoding import AvroDecoder, make_decoder

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "total", "type": ["null", "double"]},
        {"name": "raw", "type": "bytes"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
        {"name": "first", "type": ["null", "Line"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hour", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
VALUE: dict[str, Any] = {
    "id": 1 << 40, "count": -7, "paid": True, "weight": 1.5, "total": None, "raw": b"\xff", "name": "ö",
    "state": "DONE", "before": "NEW", "hash": b"abcd", "tags": ["a", ""], "sizes": {"x": 1}, "lines": [{"sku": "s"}],
    "first": {"sku": "t"}, "day": date(2026, 11, 26), "hour": time(1, 2, 3, 4),
    "at": datetime(2026, 11, 26, 1, 2, 3, 4000, UTC), "price": Decimal("12.30"),
    "key": "2b0c4b2e-0f7e-4d53-8a0b-c9d2c1e4b1aa",
}  # fmt: skip
SMALL = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2}},
        ],
    }
)


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_a_value_of_every_type_becomes_a_row() -> None:
    decoder = make_decoder("avro", json.dumps(SCHEMA))
    values, reasons = pickle.loads(pickle.dumps(decoder)).decode(pa.array([encoded(SCHEMA, VALUE)]))
    assert values.type == decoder.type
    assert values.to_pylist(maps_as_pydicts="strict") == [VALUE]
    assert reasons.to_pylist() == [None]
    types = {field.name: str(field.type) for field in decoder.type}
    assert (types["at"], types["price"], types["before"], types["hash"]) == (
        "timestamp[us, tz=UTC]", "decimal128(10, 2)", "string", "fixed_size_binary[4]",
    )  # fmt: skip


def test_a_body_that_is_not_of_the_schema_has_a_reason_and_spoils_no_other() -> None:
    good = encoded(json.loads(SMALL), {"n": 1, "p": Decimal(12)})
    bodies = [good, b"", good + b"\0", b"\x02\x06abc", b"\x80\x80\x80\x80\x80\x01\x00", good]
    values, reasons = AvroDecoder(SMALL).decode(pa.array(bodies))
    assert values.to_pylist() == [{"n": 1, "p": Decimal(12)}, None, None, None, None, {"n": 1, "p": Decimal(12)}]
    for reason, words in zip(
        reasons.to_pylist(),
        [None, "it ends within the value", "1 bytes after the value", "precision", "too large", None],
        strict=True,
    ):
        assert (reason is None) == (words is None)
        assert words is None or words in reason


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_a_row_or_have_a_reason(bodies: list[bytes]) -> None:
    decoder = AvroDecoder(json.dumps(SCHEMA))
    values, reasons = decoder.decode(pa.array(bodies, pa.binary()))
    assert (len(values), values.type) == (len(bodies), decoder.type)
    assert values.is_null().to_pylist() == reasons.is_valid().to_pylist()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "no Avro schema"),
        ("[1]", "no Avro schema"),
        ('{"type": "record"}', "no Avro schema"),
        ('"string"', "a record, whose fields become columns"),
        ({"fields": [{"name": "a", "type": "other"}]}, "no Avro schema"),
        ({"fields": [{"name": "a", "type": ["int", "string"]}]}, "a is a union of several types"),
        ({"fields": [{"name": "next", "type": ["null", "r"]}]}, "next has the type r, of which it is a part"),
        ({"fields": []}, "a record without fields"),
        (
            {"fields": [{"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50}}]},
            "a is a decimal of 50 digits",
        ),
    ],
)
def test_a_schema_without_columns_is_refused(schema: str | dict[str, Any], reason: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps({"type": "record", "name": "r", **schema})
    with pytest.raises(ConfigError, match=reason):
        make_decoder("avro", text)


def test_avro_without_a_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="avro needs a schema file"):
        make_decoder("avro")
