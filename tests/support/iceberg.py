"""Iceberg tables of an export, read as a user does: through the catalog in the output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import index_by_name
from pyiceberg.table import Table

from reput.jobs.lake.rows import LakeRows


@contextmanager
def catalog_of(output: Path) -> Iterator[Catalog]:
    with SqlCatalog("reput", uri=f"sqlite:///{output}/catalog.db") as catalog:
        yield catalog


def table_of(output: Path, name: str) -> Table:
    with catalog_of(output) as catalog:
        return catalog.load_table(f"reput.{name}")


def rows_of_table(output: Path, name: str) -> pa.Table:
    """All rows in log order."""
    return table_of(output, name).scan().to_arrow().sort_by("commit_log_offset")


def names_of_tables(output: Path) -> list[str]:
    if not (output / "catalog.db").exists():
        return []
    with catalog_of(output) as catalog:
        return sorted(name for _, name in catalog.list_tables("reput")) if catalog.namespace_exists("reput") else []


@contextmanager
def files_without_ids() -> Iterator[None]:
    """Exports write files as versions up to 0.3 did: their fields have no ids."""
    with patch.object(LakeRows, "file_schema", LakeRows.schema):
        yield


def ids_of_files(table: Table) -> list[dict[str, int]]:
    """Ids of fields in the files of a table, by path, in log order; empty for a file without ids."""
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    ids = []
    for path in sorted(paths, key=os.path.basename):
        schema = parquet.read_schema(path)
        is_with_ids = b"PARQUET:field_id" in (schema.field(0).metadata or {})
        ids.append(index_by_name(pyarrow_to_schema(schema)) if is_with_ids else {})
    return ids
