"""Messages of gRPC clients: written and read as Google's protobuf does; whatever bytes come, it is one error."""

from __future__ import annotations

import time
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import RemotingDecodeError
from reput.formats.java import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from reput.remoting.grpc import grpc_interface, grpc_parts
from reput.remoting.grpc.grpc_interface import (
    AckMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    TelemetryCommand,
)
from reput.remoting.grpc.grpc_parts import GrpcMessage, GrpcMessageQueue, Settings, SystemProperties
from reput.remoting.grpc.protobuf import MAX_FIELDS, Fields, decode, encode, wire_fields
from tests.oracles.wire_messages import is_known, ours, twins

KINDS = sorted(
    {
        each
        for module in (grpc_parts, grpc_interface)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Fields) and is_known(each)
    },
    key=lambda kind: kind.__name__,
)
TWINS = twins(KINDS)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=300),
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "int32": st.integers(INT32_MIN, INT32_MAX),
    "int64": st.integers(INT64_MIN, INT64_MAX),
    "map": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Fields]) -> Fields:
    values: dict[str, Any] = {}
    for name, wire in wire_fields(kind).items():
        if not draw(st.booleans()):
            continue
        one = VALUES[wire.kind] if wire.message is None else messages(wire.message)
        values[name] = draw(st.lists(one, min_size=1, max_size=3)) if wire.is_repeated else draw(one)
    for name in [name for name in values if name in kind.ONEOF][1:]:
        del values[name]
    return kind(**values)


ANY = st.sampled_from(KINDS).flatmap(messages)


def test_all_messages_have_twins() -> None:
    assert len(KINDS) > 40
    assert {SendMessageRequest, ReceiveMessageResponse, TelemetryCommand, SystemProperties} <= set(KINDS)


@given(ANY)
def test_a_message_is_read_and_written_as_by_protobuf(message: Fields) -> None:
    kind = type(message)
    data = encode(message)
    twin = TWINS[kind].FromString(data)
    assert ours(twin, kind) == message
    assert decode(kind, data) == message
    assert decode(kind, twin.SerializeToString()) == message
    assert len(data) == twin.ByteSize()


def both(kind: type[Fields], data: bytes) -> tuple[Fields | None, Fields | None]:
    """What we read, and what protobuf reads; None for bytes that are refused."""
    try:
        found: Fields | None = decode(kind, data)
    except RemotingDecodeError:
        found = None
    try:
        expected: Fields | None = ours(TWINS[kind].FromString(data), kind)
    except DecodeError:
        expected = None
    return found, expected


@given(st.sampled_from(KINDS), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused_as_by_protobuf(kind: type[Fields], data: bytes) -> None:
    found, expected = both(kind, data)
    assert repr(found) == repr(expected)  # a float that is no number is not equal to itself


@given(ANY, ANY, st.data())
def test_damaged_and_mixed_messages_are_read_or_refused_as_by_protobuf(
    first: Fields, second: Fields, data: st.DataObject
) -> None:
    whole = bytearray(encode(first) + encode(second))
    if whole:
        for _ in range(data.draw(st.integers(0, 3))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        del whole[data.draw(st.integers(0, len(whole))) :]
    found, expected = both(type(first), bytes(whole))
    assert repr(found) == repr(expected)


@given(ANY, st.binary(max_size=20), st.integers(1000, (1 << 29) - 1))
def test_fields_that_nobody_knows_are_passed_over(message: Fields, text: bytes, number: int) -> None:
    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes((*out, value))

    unknown = [
        varint(number << 3) + b"\xff\x01",
        varint(number << 3 | 1) + bytes(8),
        varint(number << 3 | 2) + varint(len(text)) + text,
        varint(number << 3 | 3) + varint(number + 1 << 3) + b"\x05" + varint(number << 3 | 4),
        varint(number << 3 | 5) + bytes(4),
    ]
    data = encode(message)
    for part in unknown if number + 1 < 1 << 29 else ():
        assert decode(type(message), part + data) == message
        assert decode(type(message), data + part) == message


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (SendMessageRequest, b"\x0a\x00"),
        (GrpcMessage, b"\x12\x02\x0a\x00"),
        (GrpcMessage, b"\x12\x00"),
        (AckMessageRequest, b"\x1a\x00"),
        (SystemProperties, b"\x12\x00"),
        (Settings, b"\xfa\x01\x00"),
        (Settings, b"\xfb\x01\xfc\x01"),
        (Settings, b"\x78\x01"),
        (SystemProperties, b"\x68\x01"),
    ],
)
def test_a_message_of_very_many_fields_is_refused_soon(kind: type[Fields], data: bytes) -> None:
    assert decode(kind, data * 1000)
    began = time.process_time()
    with pytest.raises(RemotingDecodeError, match=f"more than {MAX_FIELDS} fields"):
        decode(kind, data * 1_000_000)
    assert time.process_time() - began < 2


def test_a_list_in_many_parts_takes_no_longer_than_in_one() -> None:
    numbers = [1] * (MAX_FIELDS // 2)
    began = time.process_time()
    whole = encode(GrpcMessageQueue(accept_message_types=numbers))
    read = decode(GrpcMessageQueue, whole + b"\x2a\x01\x01" * (MAX_FIELDS // 5))
    assert time.process_time() - began < 0.2
    assert len(read.accept_message_types) == len(numbers) + MAX_FIELDS // 5


def test_numbers_of_a_list_are_fields() -> None:
    data = b"\x2a\xc0\x84\x3d" + b"\x01" * 1_000_000
    with pytest.raises(RemotingDecodeError, match=f"more than {MAX_FIELDS} fields"):
        decode(GrpcMessageQueue, data)
    assert decode(GrpcMessageQueue, b"\x28\x01\x2a\x02\x02\x03\x28\x04").accept_message_types == [1, 2, 3, 4]


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"])
def test_a_text_is_utf_8(text: bytes) -> None:
    with pytest.raises(RemotingDecodeError, match="tag is no UTF-8"):
        decode(SystemProperties, b"\x0a" + bytes((len(text),)) + text)


def test_groups_end_somewhere() -> None:
    with pytest.raises(RemotingDecodeError, match="groups within groups"):
        decode(Settings, b"\xfb\x01" * 1000)
