"""Ids of fields: those that Iceberg gives a new table's fields, and in Parquet files on every level."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import assign_fresh_schema_ids, index_by_name

from reput.jobs.lake.field_ids import differing_ids, fresh_ids, with_ids
from reput.jobs.lake.iceberg_metadata import iceberg_schema

ITEM = pa.struct([("sku", pa.string()), ("tags", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("body", pa.struct([("items", pa.list_(ITEM)), ("at", pa.struct([("zip", pa.int64())])), ("id", pa.int32())])),
        ("properties", pa.map_(pa.string(), ITEM)),
        ("keys", pa.list_(pa.list_(pa.string()))),
        ("topic", pa.string()),
    ]
)
#: A level before the levels within it.
FIRST = ["body", "properties", "keys", "topic", "body.items", "body.at", "body.id", "body.items.element"]


def test_a_new_table_has_the_ids_that_iceberg_gives() -> None:
    ids = fresh_ids(SCHEMA)
    assert list(ids)[: len(FIRST)] == FIRST
    assert list(ids.values()) == list(range(1, 20))
    given = assign_fresh_schema_ids(iceberg_schema(SCHEMA))
    assert {path: index_by_name(given)[path] for path in ids} == ids


def test_a_parquet_file_has_the_ids_on_every_level(tmp_path: Path) -> None:
    ids = {path: 7 * number for path, number in fresh_ids(SCHEMA).items()}
    schema = with_ids(SCHEMA, ids)
    assert schema.equals(SCHEMA)
    parquet.write_table(schema.empty_table(), tmp_path / "file")
    found = index_by_name(pyarrow_to_schema(parquet.read_schema(tmp_path / "file")))
    assert {path: found[path] for path in ids} == ids


@pytest.mark.parametrize("path", ["topic", "body.items.element.tags.element", "properties.value.sku", "keys.element"])
def test_an_id_that_differs_is_found_on_every_level(path: str, tmp_path: Path) -> None:
    ids = fresh_ids(SCHEMA)
    parquet.write_table(with_ids(SCHEMA, ids).empty_table(), tmp_path / "file")
    assert differing_ids(str(tmp_path / "file"), ids | {"more": 100}) == []
    assert differing_ids(str(tmp_path / "file"), ids | {path: 100}) == [path]
    assert differing_ids(str(tmp_path / "file"), {name: ids[name] for name in ids if name != path}) == [path]


def test_a_file_without_ids_differs_from_none(tmp_path: Path) -> None:
    parquet.write_table(SCHEMA.empty_table(), tmp_path / "file")
    assert differing_ids(str(tmp_path / "file"), {}) == []
