"""Avro bodies: one value of a record schema each, without a container file and without the header of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from reput.errors import ConfigError
from reput.extras import require

_UTC = pa.timestamp("us", "UTC")
_PRIMITIVES = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
#: By primitive and logical type. Of others the primitive counts, as the specification says.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MOST_DIGITS = 38


def avro_type(schema: str) -> pa.DataType:
    """Type of the values of a schema, the text of an .avsc file: a struct.

    A union of null and one other type is that type. Raises ConfigError for what is no schema, and for one whose values
    have no columns: no record, recursive, a union of several types.
    """
    return _parsed(schema)[1]


def avro_reader(schema: str) -> Callable[[bytes], Mapping[str, Any]]:
    """Function that reads one body; it raises for a body that is not one value of the schema, whatever it meets."""
    from fastavro import schemaless_reader

    parsed = _parsed(schema)[0]

    def read(body: bytes) -> Mapping[str, Any]:
        stream = io.BytesIO(body)
        try:
            value: Any = schemaless_reader(stream, parsed, None)
        except (EOFError, IndexError):
            raise ValueError("it ends within the value") from None
        if stream.tell() < len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes after the value")
        return value  # type: ignore[no-any-return]

    return read


@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[Any, pa.DataType]:
    """The schema as fastavro wants it, and its type."""
    require("fastavro", "decode avro")
    import fastavro
    from fastavro.schema import SchemaParseException

    try:
        schema = _plain(json.loads(text))
        parsed = fastavro.parse_schema(schema)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SchemaParseException) as error:
        raise ConfigError(f"schema: no Avro schema: {error}") from error
    kind = _Types().of(parsed, "")
    if not pa.types.is_struct(kind):
        raise ConfigError("schema: an Avro schema of bodies is a record, whose fields become columns")
    return parsed, kind


def _plain(schema: Any) -> Any:
    """The schema without logical types that fastavro would make objects of, which Arrow does not take: uuid."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if isinstance(schema, dict):
        is_uuid = schema.get("logicalType") == "uuid"
        return {name: _plain(value) for name, value in schema.items() if not (is_uuid and name == "logicalType")}
    return schema


class _Types:
    """Types of Arrow for a parsed schema, whose named types may be referred to by name."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}
        self._open = set[str]()

    def of(self, schema: Any, path: str) -> pa.DataType:
        """Type of a schema; `path` is the field that has it, for errors."""
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in self._open:
                raise ConfigError(f"schema: {path} has the type {schema}, of which it is a part; that has no columns")
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._named[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "array":
            return pa.list_(self.of(schema["items"], path))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], path))
        if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            made = _decimal(schema, path)
        elif kind == "enum":
            made = pa.string()
        elif kind == "fixed":
            made = pa.binary(schema["size"])
        elif not isinstance(kind, str):
            return self.of(kind, path)
        else:
            return _LOGICAL.get((kind, schema.get("logicalType")), _PRIMITIVES.get(kind)) or self.of(kind, path)
        if "name" in schema:
            self._named[schema["name"]] = made
        return made

    def _record(self, schema: Mapping[str, Any], path: str) -> pa.DataType:
        name = schema["name"]
        self._open.add(name)
        fields = [pa.field(one["name"], self.of(one["type"], _joined(path, one["name"]))) for one in schema["fields"]]
        self._open.remove(name)
        if not fields:
            raise ConfigError(f"schema: {path or name} is a record without fields, which has no columns")
        self._named[name] = pa.struct(fields)
        return self._named[name]

    def _union(self, branches: list[Any], path: str) -> pa.DataType:
        kinds = [self.of(one, path) for one in branches if one != "null"]
        if len(kinds) > 1:
            raise ConfigError(f"schema: {path} is a union of several types, which has no column")
        return kinds[0] if kinds else pa.null()


def _decimal(schema: Mapping[str, Any], path: str) -> pa.DataType:
    precision = schema["precision"]
    if precision > _MOST_DIGITS:
        raise ConfigError(f"schema: {path} is a decimal of {precision} digits; a column has {_MOST_DIGITS}")
    return pa.decimal128(precision, schema.get("scale", 0))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
