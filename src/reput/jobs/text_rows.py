"""Rows as text: CSV and lines of JSON, as queries and exports write them, and as imports and `reput put` read them.

| column | CSV | JSON |
|---|---|---|
| bytes, `body` | `body` where they are UTF-8, else `body_base64` | the same |
| `keys` | RocketMQ's text: separated by a blank | a list |
| `properties`, other lists, maps and structs | text of JSON | as JSON |
| times | ISO 8601, UTC | milliseconds since 1970 UTC |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from reput.formats.properties import KEY_SEPARATOR
from reput.jobs.text_values import BASE64, bytes_fields, plain

TextKind = Literal["csv", "jsonl"]
TEXT_KINDS: tuple[TextKind, ...] = ("csv", "jsonl")


class TextWriter:
    """Writer of rows of one schema as text; a context manager that ends the text, and does not close the file."""

    def __init__(self, kind: TextKind, file: IO[bytes] | pa.NativeFile, schema: pa.Schema) -> None:
        self._file = file
        self._schema = csv_schema(schema) if kind == "csv" else schema
        self._csv = csv.CSVWriter(file, self._schema) if kind == "csv" else None

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        if self._csv is not None:
            self._csv.write_batch(csv_rows(batch, self._schema))
        else:
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in json_rows(batch)]
            self._file.write("".join(lines).encode())

    def close(self) -> None:
        """End the text."""
        if self._csv is not None:
            self._csv.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- JSON


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as JSON."""
    return [_json_row(row) for row in batch.to_pylist(maps_as_pydicts="strict")]


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            shown |= bytes_fields(name, value)
        else:
            shown[name] = plain(value)
    return shown


# -- CSV


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of CSV for the columns of rows."""
    fields: list[pa.Field] = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if _is_bytes(kind):
            fields += [pa.field(field.name, pa.string()), pa.field(field.name + BASE64, pa.string())]
        else:
            fields.append(pa.field(field.name, pa.string() if pa.types.is_nested(kind) else kind))
    return pa.schema(fields)


def csv_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as CSV has them, with the columns of `csv_schema`."""
    arrays: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        array = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if _is_bytes(array.type):
            arrays += _text_and_base64(array)
        elif name == "keys" and pa.types.is_list(array.type) and pa.types.is_string(array.type.value_type):
            arrays.append(pc.binary_join(array, KEY_SEPARATOR))
        elif pa.types.is_nested(array.type):
            arrays.append(_json_texts(array))
        else:
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_one(kind) for is_one in (types.is_binary, types.is_large_binary, types.is_fixed_size_binary))


def _text_and_base64(array: pa.Array) -> list[pa.Array]:
    try:
        return [array.cast(pa.binary()).cast(pa.string()), pa.nulls(len(array), pa.string())]
    except pa.ArrowInvalid:  # one of them is no UTF-8
        fields = [{} if value is None else bytes_fields("", value) for value in array.to_pylist()]
        return [pa.array([one.get(name) for one in fields], pa.string()) for name in ("", BASE64)]


def _json_texts(array: pa.Array) -> pa.Array:
    values = array.to_pylist(maps_as_pydicts="strict")
    texts = [None if value is None else json.dumps(plain(value), ensure_ascii=False) for value in values]
    return pa.array(texts, pa.string())
