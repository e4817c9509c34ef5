"""Iceberg's metadata of an export: the schema of a table, and the entry of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reput.errors import ConfigError
from reput.jobs.lake.field_ids import fresh_ids, with_ids
from reput.jobs.lake.file_bounds import file_bounds

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record

#: Folder of the metadata in a table's folder: readers of the Parquet files do not look below such a name.
METADATA = "_iceberg"


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Schema of a new table, with the ids that a catalog gives its fields.

    Raises ConfigError for a type that Iceberg lacks.
    """
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema

    try:
        return pyarrow_to_schema(with_ids(schema, fresh_ids(schema)))
    except (TypeError, UnsupportedPyArrowTypeException) as error:
        raise ConfigError(f"schema: Iceberg lacks a type: {error}; export as parquet") from error


def has_fields(table: Schema, wanted: Schema) -> bool:
    """Whether a table has all fields of a schema by their names, on every level, with the same types of values."""
    from pyiceberg.schema import index_by_name

    ids = index_by_name(table)
    return all(
        name in ids and (not (kind := wanted.find_type(number)).is_primitive or table.find_type(ids[name]) == kind)
        for name, number in index_by_name(wanted).items()
    )


def data_file(schema: Schema, path: str, partition: Record, rows: int, size: int) -> DataFile:
    """Entry of a Parquet file in a table's metadata.

    Args:
        partition: topic, and date in days since 1970.
    """
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    from reput.jobs.lake.iceberg_catalog import location

    bounds: list[tuple[int, Any, tuple[Any, Any]]] = []
    for name, values in file_bounds(path).items():
        field = schema.find_field(name)
        bounds.append((field.field_id, field.field_type, values))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location(path),
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=size,
        lower_bounds={number: to_bytes(kind, values[0]) for number, kind, values in bounds},
        upper_bounds={number: to_bytes(kind, values[1]) for number, kind, values in bounds},
    )
