"""Protobuf bodies: one message each.

The schema is a descriptor set: `protoc --descriptor_set_out=FILE.desc --include_imports`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from reput.config.arguments import an_object_of, check_text
from reput.errors import ConfigError
from reput.extras import require

_TIMESTAMP = "google.protobuf.Timestamp"
_UTC = pa.timestamp("us", "UTC")
_Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """Schema of bodies.

    Attributes:
        descriptors: bytes of the descriptor set.
        message: full name of the bodies' message: `shop.Order`.

    Raises ConfigError for one of another type; what they say is looked at when bodies are read by them.
    """

    descriptors: bytes
    message: str

    def __post_init__(self) -> None:
        an_object_of(bytes)("descriptors", self.descriptors)
        check_text("message", self.message)

    @property
    def text(self) -> str:
        """Text that is the same for the same schema."""
        return f"{self.message} {hashlib.blake2b(self.descriptors, digest_size=8).hexdigest()}"


def protobuf_type(schema: ProtobufSchema) -> pa.DataType:
    """Type of the values of a schema: a struct.

    Unsigned numbers have the next larger signed type, 64 bits decimal(20,0). An enum is the name of its value, or its
    number as text if it has no name. A Timestamp is one. Raises ConfigError for what is no descriptor set, one
    without the message, and a message whose values have no columns: without fields, or recursive.
    """
    return _columns(schema)[1]


def protobuf_reader(schema: ProtobufSchema) -> Callable[[bytes], Mapping[str, Any]]:
    """Function that reads one body; it raises for a body that is no such message.

    A field that a body lacks is null if the schema tells it from a default value (a message, `optional`, `oneof`), else
    the default value. Fields that the schema lacks are left out.
    """
    made, _, read_fields = _columns(schema)

    def read(body: bytes) -> Mapping[str, Any]:
        message = made()
        message.ParseFromString(body)
        return read_fields(message)  # type: ignore[no-any-return]

    return read


@lru_cache(maxsize=64)
def _columns(schema: ProtobufSchema) -> tuple[Callable[[], Any], pa.DataType, _Read]:
    """The message's class, its type, and what reads its fields."""
    require("google.protobuf", "decode protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(schema.descriptors)
    except message.DecodeError as error:
        raise ConfigError(f"schema: no descriptor set of protoc --descriptor_set_out: {error}") from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in found.file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(schema.message)
    except TypeError as error:
        raise ConfigError(f"schema: an incomplete descriptor set: {error}; make it with --include_imports") from error
    except KeyError:
        names = sorted(_names(found))
        raise ConfigError(f"schema: no message {schema.message!r}; there are {', '.join(names[:20])}") from None
    kind, read = _struct(descriptor, "", ())
    return message_factory.GetMessageClass(descriptor), kind, read


def _names(found: Any) -> list[str]:
    return [f"{file.package}.{one.name}".lstrip(".") for file in found.file for one in file.message_type]


def _struct(descriptor: Any, path: str, outer: tuple[str, ...]) -> tuple[pa.DataType, _Read]:
    """Type of a message, and what makes a dict of one."""
    name = descriptor.full_name
    if name in outer:
        raise ConfigError(f"schema: {path} has the type {name}, of which it is a part; that has no columns")
    if not descriptor.fields:
        raise ConfigError(f"schema: {path or name} is a message without fields, which has no columns")
    fields, reads = [], []
    for one in descriptor.fields:
        kind, read = _field(one, f"{path}.{one.name}".lstrip("."), (*outer, name))
        fields.append(pa.field(one.name, kind))
        reads.append((one.name, read))
    return pa.struct(fields), lambda value: {field: read(value) for field, read in reads}


def _field(field: Any, path: str, outer: tuple[str, ...]) -> tuple[pa.DataType, _Read]:
    """Type of a field, and what reads it out of its message."""
    name, entry = field.name, field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, _ = _value(entry.fields_by_name["key"], path, outer)
        item, read_item = _value(entry.fields_by_name["value"], path, outer)

        def read_map(message: Any) -> list[tuple[Any, Any]]:
            return [(one, read_item(value)) for one, value in getattr(message, name).items()]

        return pa.map_(key, item), read_map
    kind, read = _value(field, path, outer)
    if field.is_repeated:
        return pa.list_(kind), lambda message: [read(one) for one in getattr(message, name)]
    if field.has_presence:
        return kind, lambda message: read(getattr(message, name)) if message.HasField(name) else None
    return kind, lambda message: read(getattr(message, name))


def _value(field: Any, path: str, outer: tuple[str, ...]) -> tuple[pa.DataType, _Read]:
    """Type of one value of a field, and what makes a value of Arrow's of it."""
    from google.protobuf.descriptor import FieldDescriptor as Kind

    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return _UTC, lambda value: value.seconds * 1_000_000 + value.nanos // 1000
        return _struct(field.message_type, path, outer)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return pa.string(), lambda value: names.get(value, str(value))
    kinds = {
        Kind.CPPTYPE_INT32: pa.int32(), Kind.CPPTYPE_INT64: pa.int64(), Kind.CPPTYPE_UINT32: pa.int64(),
        Kind.CPPTYPE_UINT64: pa.decimal128(20, 0), Kind.CPPTYPE_FLOAT: pa.float32(), Kind.CPPTYPE_DOUBLE: pa.float64(),
        Kind.CPPTYPE_BOOL: pa.bool_(), Kind.CPPTYPE_STRING: pa.string(),
    }  # fmt: skip
    is_bytes = field.type == Kind.TYPE_BYTES
    return pa.binary() if is_bytes else kinds[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value
