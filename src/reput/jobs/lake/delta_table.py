"""Delta tables over an export's files: each commit of the export is one commit of a table, once.

Messages are one table, or, if each topic's bodies have a schema of their own, a table for each topic; rejects are
another one. The log of a table holds the number of the export's last commit (an application transaction, `txn`), and
the commit's range of the commit log (`commitInfo`). So a start after a kill knows whether a table has a commit.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from reput.errors import StoreError
from reput.files import FileLayer
from reput.jobs.lake.commits import Lacks, LakeCommit
from reput.jobs.lake.file_bounds import file_bounds
from reput.jobs.lake.files import Kind, LakeFile
from reput.jobs.lake.staging import Staging
from reput.jobs.lake.table_formats import PARTITION_COLUMNS, Upkeep, field_paths, lineage, table_schema
from reput.jobs.lake.table_left_out import TableLeftOutError

#: Application id of the transactions of exports.
APP_ID = "reput export"
#: Logs of as many tables are synced at once.
_SYNCED_TABLES = 256


class DeltaTables:
    """Delta tables of an export, as the files name them.

    Args:
        output: the folder of the export.
        schema: schema of the files of a kind and a topic; the partition columns come after it.
        store: path of the store, for the lineage.
    """

    def __init__(
        self, output: str, schema: Callable[[Kind, str], pa.Schema], store: str, files: FileLayer, upkeep: Upkeep
    ) -> None:
        self._output, self._schema, self._store, self._files, self._upkeep = output, schema, store, files, upkeep
        self.left_out: dict[str, str] = {}

    def check_place(self, folders: Iterable[str]) -> None:
        """Do nothing: Delta tables name their files by relative paths."""

    def field_ids(
        self, tables: Mapping[str, tuple[Kind, str]], check_new: Callable[[str], None]
    ) -> dict[str, dict[str, int]]:
        """Return none: Delta's readers find columns by their names."""
        return {}

    def publish(self, tables: Iterable[str], lacks: Lacks) -> None:
        """Add the files of commits to tables: what they lack."""
        deltalake = _deltalake()
        unsynced: list[str] = []
        for table in tables:
            path = os.path.join(self._output, table)
            try:
                self._publish(deltalake, path, partial(lacks, table))
            except TableLeftOutError as error:
                self.left_out[table] = str(error)
                continue
            unsynced.append(path)  # also one that lacks nothing: a killed process has not synced it, perhaps
            if len(unsynced) == _SYNCED_TABLES:
                self._sync(unsynced)
                unsynced.clear()
        self._sync(unsynced)

    def sweep(self) -> None:
        """Do nothing: a vacuum finds the files that no version of a table names."""

    def tidy(self, tables: Mapping[str, tuple[Kind, str]], staging: Staging) -> None:
        """Put small files of tables together, and remove what is older than the retention, and is not named any more.

        The number of the export's last commit stays in a table's log. Another writer in between wins.
        """
        deltalake = _deltalake()
        for folder in sorted(tables):
            path = os.path.join(self._output, folder)
            try:
                self._tidy(path, deltalake.DeltaTable(path))
            except deltalake.exceptions.CommitFailedError:
                continue
            except deltalake.exceptions.DeltaError as error:
                raise StoreError(f"{path}: the Delta table cannot be compacted: {error}") from error
            self._sync([path])

    def _tidy(self, path: str, table: Any) -> None:
        upkeep = self._upkeep
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        sizes = [((one["partition.topic"], one["partition.date"]), one["size_bytes"]) for one in actions]
        small = Counter(partition for partition, size in sizes if size < upkeep.target_bytes)
        if max(small.values(), default=0) < upkeep.small_files:
            return
        before = {one["path"] for one in actions}
        table.optimize.compact(target_size=upkeep.target_bytes)
        after = pa.table(table.get_add_actions())["path"].to_pylist()
        made = [os.path.join(path, unquote(one)) for one in sorted(set(after) - before)]  # paths in its log are URLs
        self._files.sync_files(made)
        self._files.sync_directories(sorted({os.path.dirname(one) for one in made}))
        self._sync([path])  # before old files go
        # full: also files that a killed upkeep has left, and no version names
        hours = math.ceil(upkeep.retain_hours)
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()
        table.cleanup_metadata()

    def _publish(self, deltalake: Any, path: str, lacks: Callable[[int], list[LakeCommit]]) -> None:
        table = self._find(deltalake, path)
        done = None if table is None else table.transaction_version(APP_ID)
        for number, commit in enumerate(lacks(-1 if done is None else done)):
            if number:
                self._sync([path])
                table = self._find(deltalake, path)
            try:
                self._append(deltalake, path, commit, table)
            except deltalake.exceptions.DeltaError as error:
                raise StoreError(
                    f"{path}: the Delta table does not take commit {commit.number}: {error}; its files are there, "
                    "and the next export tries again"
                ) from error

    def _append(self, deltalake: Any, path: str, commit: LakeCommit, table: Any) -> None:
        """Add files to a table, with the number of their commit; it is made with them if it is missing."""
        one = commit.lake_files[0]
        schema = table_schema(self._schema(one.kind, one.topic))
        actions = [self._action(deltalake, path, one) for one in commit.lake_files]
        properties = deltalake.CommitProperties(
            custom_metadata=lineage(commit, self._store),
            app_transactions=[deltalake.Transaction(APP_ID, commit.number)],
        )
        if table is None:
            self._files.make_directories(path)
            deltalake.transaction.create_table_with_add_actions(
                path, deltalake.Schema.from_arrow(schema), actions, partition_by=PARTITION_COLUMNS.names,
                commit_properties=properties,
            )  # fmt: skip
            return
        if not field_paths(schema) <= field_paths(pa.schema(table.schema())):
            # a commit of no rows: only it brings fields within a field
            deltalake.write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
        table.create_write_transaction(
            actions, mode="append", schema=table.schema(), partition_by=PARTITION_COLUMNS.names,
            commit_properties=properties,
        )  # fmt: skip

    def _find(self, deltalake: Any, path: str) -> Any:
        try:
            return deltalake.DeltaTable(path) if deltalake.DeltaTable.is_deltatable(path) else None
        except (deltalake.exceptions.DeltaError, OSError) as error:
            reason = " ".join(str(error).split())
            raise TableLeftOutError(
                f"{path}: the Delta table cannot be read: {reason}. Its rows are in files beside it, and it does not "
                "get them; the other tables go on. Put its log back from a copy, or remove it and give "
                "--allow-data-loss (fail_on_data_loss=False): it is made anew then, of the batches that are kept"
            ) from error

    def _action(self, deltalake: Any, table: str, one: LakeFile) -> Any:
        path = os.path.join(self._output, one.path)
        return deltalake.transaction.AddAction(
            path=os.path.relpath(path, table),
            size=one.size,
            partition_values={"topic": one.topic, "date": one.date},
            modification_time=self._files.modified_ms(path),
            data_change=True,
            stats=json.dumps(_statistics(file_bounds(path), one.rows)),
        )

    def _sync(self, paths: Sequence[str]) -> None:
        """Sync the logs of tables, before the export removes its staging folder.

        A commit writes at most five files: the entry of a schema that has grown, its own entry, two checkpoints, and
        the name of the last checkpoint.
        """
        logs = [os.path.join(path, "_delta_log") for path in paths]
        newest = {log: self._files.list_directory(log)[-5:] for log in logs}
        self._files.sync_files([os.path.join(log, entry.name) for log, entries in newest.items() for entry in entries])
        self._files.sync_directories([*logs, *paths])


def _statistics(bounds: Mapping[str, tuple[Any, Any]], rows: int) -> dict[str, Any]:
    """Delta's `stats` of a file, by which readers skip it: of columns by which messages are searched."""
    least = _as_json({name: low for name, (low, _) in bounds.items()})
    most = _as_json({name: high for name, (_, high) in bounds.items()})
    return {"numRecords": rows, "minValues": least, "maxValues": most, "nullCount": {}}


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON, with times as Delta writes them."""
    return {
        name: value.isoformat(timespec="microseconds").replace("+00:00", "Z") if hasattr(value, "isoformat") else value
        for name, value in values.items()
    }


def _deltalake() -> Any:
    import deltalake
    import deltalake.transaction

    return deltalake
