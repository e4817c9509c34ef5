"""A descriptor set as protoc makes it, of messages with every kind of field."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, timestamp_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto


def descriptor_set(*, imports: bool = True) -> bytes:
    """`shop.proto`: Order, Line, Node (recursive) and Empty; with or without google/protobuf/timestamp.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "DONE")):
        state.value.add(name=name, number=number)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".shop.Node", label=_FIELD.LABEL_OPTIONAL)
    file.message_type.add(name="Empty")
    _add_order(file)
    found = descriptor_pb2.FileDescriptorSet()
    if imports:
        timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    return found.SerializeToString()


def _add_order(file: descriptor_pb2.FileDescriptorProto) -> None:
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="SizesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_FIELD.TYPE_INT32, label=_FIELD.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    fields = [
        ("id", _FIELD.TYPE_SINT64, "", False), ("count", _FIELD.TYPE_UINT32, "", False),
        ("big", _FIELD.TYPE_UINT64, "", False), ("paid", _FIELD.TYPE_BOOL, "", False),
        ("weight", _FIELD.TYPE_FLOAT, "", False), ("total", _FIELD.TYPE_DOUBLE, "", False),
        ("name", _FIELD.TYPE_STRING, "", False), ("raw", _FIELD.TYPE_BYTES, "", False),
        ("state", _FIELD.TYPE_ENUM, ".shop.State", False), ("tags", _FIELD.TYPE_STRING, "", True),
        ("lines", _FIELD.TYPE_MESSAGE, ".shop.Line", True),
        ("sizes", _FIELD.TYPE_MESSAGE, ".shop.Order.SizesEntry", True),
        ("at", _FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp", False), ("note", _FIELD.TYPE_STRING, "", False),
        ("first", _FIELD.TYPE_MESSAGE, ".shop.Line", False),
    ]  # fmt: skip
    for number, (name, kind, type_name, is_repeated) in enumerate(fields, start=1):
        label = _FIELD.LABEL_REPEATED if is_repeated else _FIELD.LABEL_OPTIONAL
        field = order.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)
        if name == "note":
            field.oneof_index, field.proto3_optional = 0, True
