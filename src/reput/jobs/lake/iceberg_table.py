"""Iceberg tables over an export's files: each commit of the export is one snapshot of a table, once.

The tables are as in `reput.jobs.lake.delta_table`, in a namespace of a catalog. A table's properties name the last
commit of the export that the table has, and its range of the log. They change with the snapshot, in one commit of the
catalog, and stay when snapshots expire or files are compacted. So a start after a kill knows whether a table has a
commit. A snapshot's summary has the same properties, for the history.

The files have the ids that the table's fields have: the export asks for them before it decides a commit. Files that an
earlier version of reput has written have none, and for these a table has a name mapping.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from reput.errors import ConfigError, ReputError, StoreError
from reput.files import FileLayer
from reput.jobs.lake.commits import Lacks, LakeCommit
from reput.jobs.lake.field_ids import differing_ids
from reput.jobs.lake.files import Kind
from reput.jobs.lake.iceberg_metadata import METADATA, data_file, has_fields, iceberg_schema
from reput.jobs.lake.staging import Staging
from reput.jobs.lake.table_formats import PARTITION_COLUMNS, Upkeep, lineage, table_schema
from reput.jobs.lake.table_left_out import TableLeftOutError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from reput.jobs.lake.upkeep_files import UpkeepFiles

COMMIT, OUTPUT = "reput.commit", "reput.output"
#: Many small commits stay quick: manifests are merged, and versions of the metadata removed but for the last hundred.
_PROPERTIES = {"commit.manifest-merge.enabled": "true", "write.metadata.delete-after-commit.enabled": "true"}
_EPOCH = date(1970, 1, 1)
_MAPPING = "schema.name-mapping.default"


class IcebergTables:
    """Iceberg tables of an export, as the files name them: `messages/orders` is the table `messages_orders`.

    Args:
        output: the folder of the export.
        schema: schema of the files of a kind and a topic; the partition columns come after it.
        store: path of the store, for the lineage.
        catalog: name of the catalog; None: the embedded one.
        namespace: of the tables; it is made if it is missing.

    Raises ConfigError if there is no such catalog.
    """

    def __init__(
        self, output: str, schema: Callable[[Kind, str], pa.Schema], store: str, files: FileLayer, upkeep: Upkeep,
        catalog: str | None, namespace: str,
    ) -> None:  # fmt: skip
        self._output, self._schema, self._store, self._files, self._upkeep = output, schema, store, files, upkeep
        self._catalog, self._namespace = catalog, tuple(namespace.split("."))
        self._killed: str | None = None
        self.left_out: dict[str, str] = {}
        if catalog is not None:  # the embedded one comes with the first commit
            self._open_catalog().close()

    def check_place(self, folders: Iterable[str]) -> None:
        """Raise StoreError if the tables of an earlier commit lead to another folder, from which this one came."""
        from reput.jobs.lake.iceberg_catalog import embedded_location

        if self._catalog is None:
            for folder in sorted(folders):
                metadata = embedded_location(self._output, self._identifier(folder)) or ""
                place, below, _ = metadata.partition(f"/{folder}/{METADATA}/")
                if below:
                    self._check_same(re.sub("^file:/+", "/", place))  # Iceberg's own writers give one slash
            return
        catalog = self._open_catalog()
        try:
            for folder in sorted(folders):
                with self._errors(folder, "cannot be read"):
                    if catalog.table_exists(self._identifier(folder)):
                        table = catalog.load_table(self._identifier(folder))
                        self._check_same(table.properties.get(OUTPUT, self._output))
        finally:
            catalog.close()

    def _check_same(self, place: str) -> None:
        if place != self._output:
            raise StoreError(
                f"{self._output}: the folder was moved or copied from {place}, and its Iceberg tables name their files "
                "by that path; move it back, or export to a new folder"
            )

    def field_ids(
        self, tables: Mapping[str, tuple[Kind, str]], check_new: Callable[[str], None]
    ) -> dict[str, dict[str, int]]:
        """Ids of the fields of tables, by folder and path; missing tables are made, and missing columns added."""
        from pyiceberg.schema import index_by_name

        catalog, ids = self._open_catalog(), {}
        try:
            for folder, (kind, topic) in sorted(tables.items()):
                with suppress(TableLeftOutError), self._errors(folder, "cannot be read"):  # `publish` tells
                    if (table := self._find(catalog, folder)) is None:
                        check_new(folder)
                    ids[folder] = index_by_name(self._ready(catalog, folder, kind, topic, table).schema())
        finally:
            catalog.close()
        return ids

    def publish(self, tables: Iterable[str], lacks: Lacks) -> None:
        """Add the files of commits to tables: what they lack."""
        catalog: Catalog | None = None
        listed = self._upkeep_files()
        try:
            for folder in tables:
                catalog = catalog or self._open_catalog()
                try:
                    self._publish(catalog, folder, partial(lacks, folder), listed)
                except TableLeftOutError as error:
                    self.left_out[folder] = str(error)
        finally:
            if catalog is not None:
                catalog.close()
        if listed.folder is not None:
            listed.end()

    def tidy(self, tables: Mapping[str, tuple[Kind, str]], staging: Staging) -> None:
        """Put small files of tables together, and let old snapshots go."""
        from reput.jobs.lake.iceberg_upkeep import compact, expire, small_files

        upkeep, catalog, listed = self._upkeep, self._open_catalog(), self._upkeep_files()
        try:
            for folder, (kind, topic) in sorted(tables.items()):
                with suppress(TableLeftOutError), self._errors(folder, "cannot be compacted"):
                    table = self._load(catalog, folder)
                    if groups := small_files(table, upkeep.target_bytes, upkeep.small_files):
                        compact(table, groups, self._schema(kind, topic), staging, listed, folder)
                        expire(table, upkeep.retain_hours, listed, folder)
        finally:
            catalog.close()

    def sweep(self) -> None:
        """Remove the files of a commit or an upkeep that was killed, and that its table does not name.

        What it has written as the next metadata may go only when there are such: at the second call.
        """
        listed = self._upkeep_files()
        if listed.folder is None and self._killed is not None:
            listed.begin(self._killed, ())
        self._killed = folder = listed.folder
        if folder is None:
            return
        catalog = self._open_catalog()
        try:
            with self._errors(folder, "cannot be swept"):
                table = self._find(catalog, folder)
                if table is None:
                    listed.end()
                else:
                    listed.sweep(table)
        except TableLeftOutError:
            listed.end()
        finally:
            catalog.close()

    def _upkeep_files(self) -> UpkeepFiles:
        from reput.jobs.lake.upkeep_files import UpkeepFiles

        return UpkeepFiles(self._output, self._files)

    def _open_catalog(self) -> Catalog:
        from reput.jobs.lake.iceberg_catalog import open_catalog

        return open_catalog(self._catalog, self._output, self._files)

    def _publish(
        self, catalog: Catalog, folder: str, lacks: Callable[[int], list[LakeCommit]], listed: UpkeepFiles
    ) -> None:
        with self._errors(folder, "cannot be read"):
            table = self._find(catalog, folder)
            number = -1 if table is None else int(table.properties.get(COMMIT, "-1"))
        advice = "; its files are there, and the next export tries again"
        for commit in lacks(number):
            with self._errors(folder, f"does not take commit {commit.number}", advice):
                one = commit.lake_files[0]
                table = self._ready(catalog, folder, one.kind, one.topic, table)
                self._append(table, commit, folder, listed)
            table = None

    def _identifier(self, folder: str) -> tuple[str, ...]:
        return (*self._namespace, folder.replace("/", "_"))

    @contextmanager
    def _errors(self, folder: str, what: str, advice: str = "") -> Iterator[None]:
        """StoreError for whatever a catalog raises: that depends on its kind, of SQL, of HTTP, of pyiceberg."""
        try:
            yield
        except ReputError:
            raise
        except FileNotFoundError as error:  # somebody has removed files of this table
            name = ".".join(self._identifier(folder))
            raise TableLeftOutError(
                f"{name}: the Iceberg table {what}: {error}. Its rows are in files below {self._output}, and the table "
                "does not get them; the other tables go on. Put its files back from a copy; or drop it from the "
                "catalog and give --allow-data-loss (fail_on_data_loss=False): it is made anew then, of the batches "
                "that are kept"
            ) from error
        except Exception as error:
            name = ".".join(self._identifier(folder))
            reason = str(error) or type(error).__name__
            raise StoreError(f"{name}: the Iceberg table {what}: {reason}{advice}") from error

    def _ready(self, catalog: Catalog, folder: str, kind: Kind, topic: str, table: Table | None = None) -> Table:
        """A table with all columns of its files; it is made if it is missing.

        Args:
            table: as it was just loaded; None: to be loaded.
        """
        schema = table_schema(self._schema(kind, topic))
        table = table or self._find(catalog, folder)
        if table is None:
            return self._create_table(catalog, folder, schema)
        if not has_fields(table.schema(), iceberg_schema(schema)):
            with table.update_schema() as columns:
                columns.union_by_name(schema)
        return table

    def _find(self, catalog: Catalog, folder: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._load(catalog, folder)
        except NoSuchTableError:
            return None

    def _load(self, catalog: Catalog, folder: str) -> Table:
        return self._own(catalog.load_table(self._identifier(folder)))

    def _own(self, table: Table) -> Table:
        if (owner := table.properties.get(OUTPUT)) != self._output:
            raise StoreError(
                f"{'.'.join(table.name())}: the table is not of this export, but of {owner or 'another'}; rename "
                "it in the catalog, and the next export goes on; or export to another folder with another namespace"
            )
        return table

    def _create_table(self, catalog: Catalog, folder: str, columns: pa.Schema) -> Table:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        schema = iceberg_schema(columns)
        fields = [
            PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
            for number, name in enumerate(PARTITION_COLUMNS.names)
        ]
        properties, place = {**_PROPERTIES, OUTPUT: self._output}, None
        if self._catalog is None:
            from reput.jobs.lake.iceberg_catalog import location

            place = location(os.path.join(self._output, folder))
            metadata = os.path.join(self._output, folder, METADATA)
            self._files.make_directories(metadata)
            self._files.sync_name(metadata)  # a killed process has not, perhaps
            properties["write.metadata.path"] = f"{place}/{METADATA}"
        catalog.create_namespace_if_not_exists(self._namespace)
        try:
            table = catalog.create_table_if_not_exists(
                self._identifier(folder), schema, location=place, partition_spec=PartitionSpec(*fields),
                properties=properties,
            )  # fmt: skip
        except ValueError as error:
            if self._catalog is None or "warehouse" in catalog.properties:
                raise
            raise ConfigError(
                f"catalog {self._catalog!r} has no warehouse: {error}; set `warehouse:` in ~/.pyiceberg.yaml, or "
                f"PYICEBERG_CATALOG__{self._catalog.upper()}__WAREHOUSE"
            ) from error
        return self._own(table)

    def _append(self, table: Table, commit: LakeCommit, folder: str, listed: UpkeepFiles) -> None:
        """Add files and lineage in one commit of the catalog.

        If another writer was quicker, pyiceberg tries again with the table as it is then.

        Args:
            folder: of the table, below the output.
            listed: the list for the case of a kill, of metadata that lie in the output.
        """
        from pyiceberg.schema import index_by_name
        from pyiceberg.typedef import Record

        from reput.jobs.lake.iceberg_catalog import TableChange

        if [field.name for field in table.spec().fields] != PARTITION_COLUMNS.names:
            raise ValueError(f"it is not partitioned by {' and '.join(PARTITION_COLUMNS.names)} any more")
        ids = index_by_name(table.schema())
        for one in commit.lake_files:
            if names := differing_ids(path := os.path.join(self._output, one.path), ids):
                raise ValueError(
                    f"{path}: its field {names[0]} has another id than in the table, whose columns were changed, or "
                    "which was made anew, after the file was written; undo that change, or export to another folder"
                )
        facts = {COMMIT: str(commit.number), **lineage(commit, self._store)}
        with TableChange(table) as change:
            # files of earlier versions have no ids of fields: readers find columns by their names
            mapping = table.schema().name_mapping.model_dump_json()
            change.set_properties(facts if _MAPPING in table.properties else {**facts, _MAPPING: mapping})
            with change.update_snapshot(snapshot_properties=facts).merge_append() as append:
                if self._catalog is None:
                    listed.begin(folder, (), append.commit_uuid)
                for one in commit.lake_files:
                    path = os.path.join(self._output, one.path)
                    partition = Record(one.topic, None if one.date is None else _days(one.date))
                    append.append_data_file(data_file(table.schema(), path, partition, one.rows, one.size))


def _days(day: str) -> int:
    return (date.fromisoformat(day) - _EPOCH).days
