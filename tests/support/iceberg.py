"""Iceberg tables of an export, read as a user does: through the catalog in the output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table


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
