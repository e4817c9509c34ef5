"""Catalogs of an export's Iceberg tables: one embedded in the output, or any that pyiceberg's configuration names."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import quote

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata

from reput.errors import ConfigError, StoreError
from reput.files import DISK, FileLayer

#: Name of the embedded catalog: SQLite's rows have it, so readers must give the same.
EMBEDDED = "reput"
#: SQLite file of the embedded catalog, below the output.
CATALOG_FILE = "catalog.db"


def open_catalog(name: str | None, output: str, files: FileLayer) -> Catalog:
    """Open a catalog; the caller closes it.

    Args:
        name: as pyiceberg's configuration has it; None: the one that is embedded in the output.

    Raises ConfigError if the configuration has no such catalog, or it cannot be opened; StoreError for an embedded
    one that cannot be opened.
    """
    try:
        return _EmbeddedCatalog(output, files) if name is None else load_catalog(name)
    except Exception as error:  # what a catalog raises depends on its kind
        if name is None:
            raise StoreError(f"{os.path.join(output, CATALOG_FILE)}: the catalog cannot be opened: {error}") from error
        raise ConfigError(
            f"catalog: {name!r} cannot be opened: {error}; ~/.pyiceberg.yaml or PYICEBERG_CATALOG__{name.upper()}__URI "
            "say where it is"
        ) from error


def embedded_location(output: str, identifier: tuple[str, ...]) -> str | None:
    """Path of a table's metadata, as the embedded catalog has it; None without catalog or table."""
    database = os.path.join(output, CATALOG_FILE)
    if not DISK.exists(database):
        return None
    asked = (EMBEDDED, ".".join(identifier[:-1]), identifier[-1])
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute(
            "select metadata_location from iceberg_tables "
            "where catalog_name = ? and table_namespace = ? and table_name = ?", asked,
        ).fetchone()  # fmt: skip
    return None if found is None else str(found[0])


def location(path: str) -> str:
    """Path as a table's metadata have it: absolute, as Iceberg asks for."""
    return f"file://{os.path.abspath(path)}"


def local_path(place: str) -> str:
    """Inverse of `location`; a place that is no local path stays as it is."""
    return place.removeprefix(location("/").removesuffix("/"))


class TableChange(Transaction):
    """Transaction of a table that works out the table's new metadata once after each update.

    pyiceberg does it at each look: 13 times in an append, each with a deep copy, which took half of its time.
    """

    _known: tuple[object, object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """Metadata of the table with the updates so far."""
        known = self._known
        if known is None or known[0] is not self._table.metadata or known[1] is not self._updates:
            known = self._known = (self._table.metadata, self._updates, super().table_metadata)
        return known[2]


class _EmbeddedCatalog(SqlCatalog):
    """Catalog of which every name leads to files that are on the disk.

    pyiceberg writes files without a sync, and SQLite syncs: after a power cut the catalog could name a file that is
    lost, and the table with it. So all that a commit has written is synced before SQLite hears of it.
    """

    def __init__(self, output: str, files: FileLayer) -> None:
        self._database, self._layer = os.path.join(output, CATALOG_FILE), files
        super().__init__(EMBEDDED, uri=f"sqlite:///{quote(self._database)}", warehouse=location(output))

    def _write_metadata(self, metadata: Any, io: Any, metadata_path: str) -> None:  # type: ignore[override]
        SqlCatalog._write_metadata(metadata, io, metadata_path)
        written = [metadata_path]
        if (snapshot := metadata.current_snapshot()) is not None:
            manifests = [one for one in snapshot.manifests(io) if one.added_snapshot_id == snapshot.snapshot_id]
            written += [snapshot.manifest_list, *(one.manifest_path for one in manifests)]
        paths = [path.removeprefix("file://") for path in written]
        self._layer.sync_files(paths)
        self._layer.sync_directories(sorted({os.path.dirname(path) for path in paths}))

    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        """As that of SQLite, which syncs by itself; the file layer has to know, before old files are removed."""
        response = super().commit_table(*arguments, **named)
        self._layer.sync_files([self._database])
        return response

    def close(self) -> None:
        """Close the catalog; its file has a durable name then."""
        super().close()
        self._layer.sync_files([self._database])
        self._layer.sync_directory(os.path.dirname(self._database))
