"""Columns of a table of messages: which are required, and conversion to their types.

They are as in `record_batch.SCHEMA`; columns that a store assigns are ignored.
"""

from __future__ import annotations

from difflib import get_close_matches

import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import MessageIllegalError
from reput.kernels.records.record_batch import SCHEMA

#: Columns that the store assigns.
ASSIGNED = frozenset(
    {
        "store",
        "queue_offset",
        "commit_log_offset",
        "store_size",
        "magic_code",
        "store_timestamp",
        "store_host",
        "body_crc",
        "status",
    }
)
_REQUIRED = ("topic", "body")
_TYPES: dict[str, pa.DataType] = {
    field.name: field.type for field in SCHEMA if field.name not in ASSIGNED and field.name != "born_timestamp"
}
_TEXT_OR_BYTES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)


def check_schema(schema: pa.Schema) -> None:
    """Raises MessageIllegalError for columns of which no row can be written; names the column and the nearest name."""
    check_columns(schema)
    typed_columns(pa.RecordBatch.from_pylist([], schema), 0)


def check_columns(schema: pa.Schema) -> None:
    """Raises MessageIllegalError for a missing, unknown or repeated column; names it and the nearest name."""
    for name in _REQUIRED:
        if name not in schema.names:
            raise MessageIllegalError(f"the table has no column {name!r}; it needs {' and '.join(_REQUIRED)}")
    if len(set(schema.names)) < len(schema.names):
        raise MessageIllegalError(f"the table has a column twice: {', '.join(schema.names)}")
    for name in schema.names:
        if name not in SCHEMA.names:
            nearest = get_close_matches(name, SCHEMA.names, 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known are {', '.join(SCHEMA.names)}"
            raise MessageIllegalError(f"the table has an unknown column {name!r}{hint}")


def typed_columns(batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """The batch with the columns that count, in their types.

    `first_row` is the number of the batch's first row. Raises MessageIllegalError for a column of another kind, a value
    that its type cannot hold, and a null in a required column, with the row's number.
    """
    columns = {
        name: _milliseconds(column) if name == "born_timestamp" else _cast(name, column, _TYPES[name])
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name not in ASSIGNED
    }
    for name in _REQUIRED:
        if columns[name].null_count:
            row = first_row + pc.index(pc.is_null(columns[name]), True).as_py()
            raise MessageIllegalError(f"row {row}: {name} is null")
    return pa.RecordBatch.from_pydict(columns)


def _cast(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type == wanted:
        return column
    if not _is_kind_of(column.type, wanted):
        told = f"{wanted}, in milliseconds, or a timestamp" if name == "born_timestamp" else wanted
        way = "split it into lists of texts" if pa.types.is_list(wanted) else "convert it"
        raise MessageIllegalError(f"column {name!r} is {column.type}, and must be {told}; {way} before")
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise MessageIllegalError(
            f"column {name!r} is {column.type}, and must be {wanted}; it has a value that this cannot hold: {error}"
        ) from error


def _is_kind_of(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may be converted to another: Arrow itself would convert any number to text."""
    types = pa.types
    if types.is_null(found):
        return True
    if types.is_dictionary(found):
        return _is_kind_of(found.value_type, wanted)
    if types.is_map(wanted):
        return types.is_map(found) and all(
            _is_kind_of(*pair) for pair in ((found.key_type, wanted.key_type), (found.item_type, wanted.item_type))
        )
    if types.is_list(wanted):
        lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        return any(is_one(found) for is_one in lists) and _is_kind_of(found.value_type, wanted.value_type)
    kinds = (types.is_integer,) if types.is_integer(wanted) else _TEXT_OR_BYTES
    return any(is_one(found) for is_one in kinds)


def _milliseconds(column: pa.Array) -> pa.Array:
    """A timestamp of any unit, or int64 milliseconds, as int64 milliseconds."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return _cast("born_timestamp", column, pa.int64())
