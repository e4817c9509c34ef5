"""Google's protobuf package with the messages of RocketMQ's gRPC protocol, as twins of our own classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from reput.remoting.grpc.protobuf import Fields, wire_fields

_PACKAGE = "reput.tests"
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING, "bytes": _FIELD.TYPE_BYTES, "bool": _FIELD.TYPE_BOOL, "float": _FIELD.TYPE_FLOAT,
    "int32": _FIELD.TYPE_INT32, "int64": _FIELD.TYPE_INT64, "message": _FIELD.TYPE_MESSAGE, "map": _FIELD.TYPE_MESSAGE,
}  # fmt: skip


def twins(kinds: Iterable[type[Fields]]) -> dict[type[Fields], Any]:
    """The protobuf class of each of our classes."""
    file = descriptor_pb2.FileDescriptorProto(name="twins.proto", package=_PACKAGE, syntax="proto3")
    for kind in kinds:
        _add(file.message_type.add(name=kind.__name__), kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        kind: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{kind.__name__}"))
        for kind in kinds
    }


def _add(message: Any, kind: type[Fields]) -> None:
    if kind.ONEOF:
        message.oneof_decl.add(name="content")
    explicit = []
    for name, wire in wire_fields(kind).items():
        field = message.field.add(name=name, number=wire.number, type=_TYPES[wire.kind], label=_FIELD.LABEL_OPTIONAL)
        if wire.is_repeated or wire.kind == "map":
            field.label = _FIELD.LABEL_REPEATED
        if wire.message is not None:
            field.type_name = f".{_PACKAGE}.{wire.message.__name__}"
        elif wire.kind == "map":
            entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
            entry.options.map_entry = True
            for number, part in enumerate(("key", "value"), 1):
                entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
            field.type_name = f".{_PACKAGE}.{kind.__name__}.{entry.name}"
        elif wire.is_explicit and name not in kind.ONEOF:
            field.proto3_optional = True
            explicit.append(field)
        if name in kind.ONEOF:
            field.oneof_index = 0
    for field in explicit:  # synthetic oneofs come after the real one
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def ours(message: Any, kind: type[Fields]) -> Fields:
    """A message of protobuf's as one of ours."""
    values: dict[str, Any] = {}
    for name, wire in wire_fields(kind).items():
        value = getattr(message, name)
        if wire.kind == "map":
            values[name] = dict(value)
        elif wire.is_repeated:
            values[name] = [value if wire.message is None else ours(value, wire.message) for value in value] or ()
        elif wire.is_explicit and not message.HasField(name):
            values[name] = None
        else:
            values[name] = value if wire.message is None else ours(value, wire.message)
    return kind(**values)


def is_known(kind: type[Fields]) -> bool:
    """Whether a class is a message: it has fields."""
    return kind is not Fields and hasattr(kind, "__dataclass_fields__") and bool(fields(kind))  # type: ignore[arg-type]
