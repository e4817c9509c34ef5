"""Rows as text: CSV and lines of JSON, as queries and exports write them, and as imports and `reput put` read them.

| column | CSV | JSON |
|---|---|---|
| bytes, `body` | `body` if they are UTF-8, else `body_base64` | the same |
| `keys` | RocketMQ's text: separated by a blank | a list |
| `properties`, other lists, maps and structs | text of JSON | as JSON |
| times | ISO 8601, UTC | milliseconds since 1970 UTC |
| decimals | all digits | a number with all digits |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import IO, Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from reput.errors import ConfigError
from reput.formats.properties import KEY_SEPARATOR
from reput.jobs.text_values import BASE64, bytes_fields, json_text, plain

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
            self._file.write("".join([json_text(row) + "\n" for row in json_rows(batch)]).encode())

    def close(self) -> None:
        """End the text."""
        if self._csv is not None:
            self._csv.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def python_values(column: pa.Array) -> list[Any]:
    """Values of a column as Python's.

    Raises ConfigError for dates and times that Python has not, as infinity, and for bytes that are no text in a text.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # Python has microseconds
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind):
        column = column.cast(pa.time64("us"), safe=False)
    try:
        return _pylist(column, maps_as_pydicts="strict")
    except ConfigError:  # a ValueError, too
        raise
    except (OverflowError, ValueError):
        raise _no_date() from None


def _pylist(column: pa.Array, **options: Any) -> list[Any]:
    """Values as Python's; raises ConfigError for bytes that are no text: Spark takes any bytes for one."""
    try:
        return column.to_pylist(**options)  # type: ignore[no-any-return]
    except UnicodeDecodeError as error:
        found = f"a text is no UTF-8: {error.object[:20]!r}; take the bytes, or make text of them, as by hex(...)"
        raise ConfigError(found) from None


def _no_date() -> ConfigError:
    return ConfigError(
        "a date or time is infinite, of a year that is not one of 1 to 9999, or has nanoseconds in a list or struct: "
        "make text of it, as by cast(... as varchar)"
    )


def _refuse_infinity(column: pa.Array) -> None:
    """Raise ConfigError if a date or time is infinite: DuckDB has the largest numbers of Arrow's type for that."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type)):
        return
    number = pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()
    least, most = pc.min_max(column.view(number)).as_py().values()
    if most is not None and max(most, -least) >= 2 ** (number.bit_width - 1) - 1:
        raise _no_date()


# -- JSON


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as JSON."""
    names: list[Iterable[str]] = []
    values: list[Sequence[Any]] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _is_bytes(column.type):
            fields = [bytes_fields(name, value) if value is not None else {name: None} for value in column.to_pylist()]
            names.append([next(iter(one)) for one in fields])
            values.append([next(iter(one.values())) for one in fields])
        else:
            names.append(repeat(name))
            values.append(_json_values(column))
    of_rows = zip(zip(*names, strict=False), zip(*values, strict=True), strict=False)  # names may be without end
    return [dict(zip(fields, row, strict=True)) for fields, row in of_rows]


def _json_values(column: pa.Array) -> list[Any]:
    """Values of a column as JSON. The types of messages are made a column at a time."""
    kind, types = column.type, pa.types
    if types.is_timestamp(kind):
        _refuse_infinity(column)
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    elif types.is_map(kind) and types.is_string(kind.key_type) and types.is_string(kind.item_type):
        lists = zip(_cut(column, column.keys), _cut(column, column.items), strict=True)
        return [None if names is None else dict(zip(names, texts, strict=True)) for names, texts in lists]
    elif types.is_list(kind) and types.is_string(kind.value_type):
        return _cut(column, column.values)
    elif not (types.is_integer(kind) or types.is_string(kind) or types.is_boolean(kind) or types.is_null(kind)):
        return [plain(value) for value in python_values(column)]
    return _pylist(column)


def _cut(column: pa.Array, values: pa.Array) -> list[Any]:
    """Values of each list or map of a column; `values` are the values of the array that the column is a part of."""
    ends = column.offsets.to_pylist()
    first = ends[0]
    some = _pylist(values.slice(first, ends[-1] - first))
    cut = [some[begin - first : end - first] for begin, end in pairwise(ends)]
    if not column.null_count:
        return cut
    return [one if is_valid else None for one, is_valid in zip(cut, column.is_valid().to_pylist(), strict=True)]


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
            _refuse_infinity(array)
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
    return pa.array([None if value is None else json_text(value) for value in _json_values(array)], pa.string())
