"""Protobuf bodies become columns by a descriptor set, and bodies that are no such message have a reason."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import ConfigError
from reput.jobs.decoding import ProtobufDecoder, make_decoder
from reput.jobs.protobuf_bodies import ProtobufSchema
from tests.support.descriptors import descriptor_set

ORDER = ProtobufSchema(descriptor_set(), "shop.Order")


def message(schema: ProtobufSchema = ORDER) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(schema.descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.message))()


def test_a_message_with_every_type_becomes_a_row() -> None:
    order = message()
    order.id, order.count, order.big, order.paid, order.weight, order.total = -5, 7, (1 << 64) - 1, True, 1.5, 2.5
    order.name, order.raw, order.state = "ö", b"\xff", 1
    order.tags.extend(["a", ""])
    order.lines.add().sku = "s"
    order.sizes["x"] = 1
    order.at.seconds, order.at.nanos = 1, 5000
    order.note = ""
    decoder = make_decoder("protobuf", ORDER)
    values, reasons = pickle.loads(pickle.dumps(decoder)).decode(pa.array([order.SerializeToString(), b""]))
    row = {
        "id": -5, "count": 7, "big": Decimal((1 << 64) - 1), "paid": True, "weight": 1.5, "total": 2.5, "name": "ö",
        "raw": b"\xff", "state": "DONE", "tags": ["a", ""], "lines": [{"sku": "s"}], "sizes": {"x": 1},
        "at": datetime(1970, 1, 1, 0, 0, 1, 5, UTC), "note": "", "first": None,
    }  # fmt: skip
    nothing = {
        "id": 0, "count": 0, "big": Decimal(0), "paid": False, "weight": 0.0, "total": 0.0, "name": "", "raw": b"",
        "state": "NEW", "tags": [], "lines": [], "sizes": {}, "at": None, "note": None, "first": None,
    }  # fmt: skip
    assert values.type == decoder.type
    assert values.to_pylist(maps_as_pydicts="strict") == [row, nothing]
    assert reasons.to_pylist() == [None, None]


def test_a_number_that_an_enum_lacks_and_fields_that_the_schema_lacks() -> None:
    other = message(ProtobufSchema(descriptor_set(), "shop.Line"))
    other.sku = "x"
    order = message()
    order.state = 9
    values, _ = ProtobufDecoder(ORDER).decode(pa.array([order.SerializeToString() + b"\xfa\x7f\x01z"]))
    assert (values[0]["state"].as_py(), values[0]["id"].as_py()) == ("9", 0)


def test_a_body_that_is_no_such_message_has_a_reason_and_spoils_no_other() -> None:
    late = message()
    late.at.seconds = 1 << 62
    order = message()
    order.id = 3
    values, reasons = ProtobufDecoder(ORDER).decode(
        pa.array([order.SerializeToString(), b"\xff", late.SerializeToString(), order.SerializeToString()])
    )
    assert [value and value["id"] for value in values.to_pylist()] == [3, None, None, 3]
    found = reasons.to_pylist()
    assert (found[0], found[3]) == (None, None)
    assert "no Protobuf of the schema: Error parsing message" in found[1]
    assert found[2] is not None


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_a_row_or_have_a_reason(bodies: list[bytes]) -> None:
    values, reasons = ProtobufDecoder(ORDER).decode(pa.array(bodies, pa.binary()))
    assert (len(values), values.type) == (len(bodies), ProtobufDecoder(ORDER).type)
    assert values.is_null().to_pylist() == reasons.is_valid().to_pylist()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (ProtobufSchema(b"\xff", "shop.Order"), "no descriptor set"),
        (ProtobufSchema(descriptor_set(), "Order"), "no message 'Order'; there are .*shop.Order"),
        (ProtobufSchema(descriptor_set(), "shop.Node"), "next has the type shop.Node, of which it is a part"),
        (ProtobufSchema(descriptor_set(), "shop.Empty"), "a message without fields"),
        (ProtobufSchema(descriptor_set(imports=False), "shop.Order"), "make it with --include_imports"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: ProtobufSchema, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_decoder("protobuf", schema)


def test_another_schema_than_that_of_a_message_is_refused() -> None:
    for decode, schema in (("protobuf", "id int"), ("protobuf", None), ("json", ORDER), ("utf8", ORDER)):
        with pytest.raises(ConfigError, match="schema"):
            make_decoder(decode, schema)
