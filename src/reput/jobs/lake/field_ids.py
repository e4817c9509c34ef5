"""Ids of fields in Parquet files: by them, not by names, Iceberg's readers find the columns of a table.

An id belongs to a path, which names the fields from the top, as Iceberg does: `body.total`, `keys.element`,
`properties.key`, `properties.value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyarrow import parquet

_KEY = b"PARQUET:field_id"


def fresh_ids(schema: pa.Schema) -> dict[str, int]:
    """Ids that a catalog gives the fields of a new table: from 1 on, fields of a level before the fields within them.

    The order is that of Iceberg's `TypeUtil.assignFreshIds`.
    """
    ids: dict[str, int] = {}

    def number(fields: list[tuple[str, pa.Field]], above: str) -> None:
        for name, _ in fields:
            ids[above + name] = len(ids) + 1
        for name, field in fields:
            number(_within(field.type), f"{above}{name}.")

    number([(field.name, field) for field in schema], "")
    return ids


def with_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """The schema with the id of each field in the field's metadata, where Arrow's writer of Parquet takes it from."""
    return pa.schema(_with_ids([(field.name, field) for field in schema], ids, ""))


def differing_ids(path: str, ids: Mapping[str, int]) -> list[str]:
    """Fields of a Parquet file that have other ids. A file without ids has none: its names count."""
    fields = [(field.name, field) for field in parquet.read_schema(path)]
    return [name for name, number in _ids(fields, "") if ids.get(name) != number]


def _ids(fields: list[tuple[str, pa.Field]], above: str) -> Iterator[tuple[str, int]]:
    for name, field in fields:
        if _KEY in (field.metadata or {}):
            yield above + name, int(field.metadata[_KEY])
        yield from _ids(_within(field.type), f"{above}{name}.")


def _with_ids(fields: list[tuple[str, pa.Field]], ids: Mapping[str, int], above: str) -> list[pa.Field]:
    numbered = []
    for name, field in fields:
        kind = _type_with_ids(field.type, ids, f"{above}{name}.")
        numbered.append(field.with_type(kind).with_metadata({_KEY: str(ids[above + name])}))
    return numbered


def _type_with_ids(kind: pa.DataType, ids: Mapping[str, int], above: str) -> pa.DataType:
    within = _with_ids(_within(kind), ids, above)
    if pa.types.is_struct(kind):
        return pa.struct(within)
    if pa.types.is_list(kind):
        return pa.list_(*within)
    return pa.map_(*within) if pa.types.is_map(kind) else kind


def _within(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Fields within a type, by the names that Iceberg gives them."""
    if pa.types.is_struct(kind):
        return [(field.name, field) for field in kind]
    if pa.types.is_list(kind):
        return [("element", kind.value_field)]
    return [("key", kind.key_field), ("value", kind.item_field)] if pa.types.is_map(kind) else []
