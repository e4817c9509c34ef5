"""Schema of the format `reput` in Spark's types; the columns of `reput.kernels.records.record_batch.SCHEMA`.

Written out, not converted: Spark asks for the schema in a separate process, which need not load Arrow and Numba.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from reput.config.arguments import texts_of
from reput.errors import ConfigError

_TYPES: dict[str, DataType] = {
    "store": StringType(),
    "topic": StringType(),
    "queue_id": IntegerType(),
    "queue_offset": LongType(),
    "commit_log_offset": LongType(),
    "store_size": IntegerType(),
    "magic_code": IntegerType(),
    "flag": IntegerType(),
    "sys_flag": IntegerType(),
    "born_timestamp": TimestampType(),
    "store_timestamp": TimestampType(),
    "born_host": StringType(),
    "store_host": StringType(),
    "reconsume_times": IntegerType(),
    "prepared_transaction_offset": LongType(),
    "body_crc": IntegerType(),
    "tags": StringType(),
    "unique_key": StringType(),
    "keys": ArrayType(StringType()),
    "properties": MapType(StringType(), StringType()),
    "body": BinaryType(),
    "status": StringType(),
}


def spark_schema(columns: Iterable[str] | None = None) -> StructType:
    """Schema of some columns, in their order; None: of all columns.

    Raises ConfigError for an unknown column, with the nearest name, for an empty list, and for one text, which would be
    taken letter by letter.
    """
    names = list(_TYPES) if columns is None else texts_of("columns", columns)
    if not names:
        raise ConfigError("columns: name at least one, or leave it out for all")
    schema = StructType()
    for name in names:
        schema.add(name, _type_of(name))
    return schema


def column_names(schema: StructType) -> tuple[str, ...]:
    """Names of the columns in a user's schema.

    Raises ConfigError for an unknown name, another type than ours, and a column that is declared as not nullable.
    """
    for field in schema.fields:
        expected = _type_of(field.name)
        if field.dataType.simpleString() == expected.simpleString():
            if not field.nullable or field.dataType != expected:
                raise ConfigError(
                    f"columns: {field.name}, or its elements, are declared as never null, but a log may have nulls: "
                    "leave NOT NULL and nullable=False out, and filter"
                )
        else:
            raise ConfigError(
                f"columns: {field.name} is of type {expected.simpleString()}, not {field.dataType.simpleString()}; "
                "read it as it is and cast it afterwards"
            )
    return tuple(schema.fieldNames())


def _type_of(name: str) -> DataType:
    if name not in _TYPES:
        nearest = difflib.get_close_matches(name, _TYPES, 1, 0)
        raise ConfigError(f"columns: a log has no column {name!r}; did you mean {nearest[0]!r}?")
    return _TYPES[name]
