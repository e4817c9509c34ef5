"""Delta tables over an export's files: each commit of the export is one commit of a table, once.

Messages are one table, or, where each topic's bodies have a schema of their own, a table for each topic; rejects are
another one. The log of a table holds the number of the export's last commit (an application transaction, `txn`), and
the commit's range of the commit log (`commitInfo`). So a start after a kill knows whether a table has a commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from reput.errors import ConfigError, StoreError
from reput.files import FileLayer
from reput.jobs.lake.commits import LakeCommit
from reput.jobs.lake.files import Kind, LakeFile

#: Application id of the transactions of exports.
APP_ID = "reput export"
PARTITION_COLUMNS = ("topic", "date")
_BOUNDED = ("commit_log_offset", "queue_offset", "queue_id", "store_timestamp", "born_timestamp")


class DeltaTables:
    """Delta tables of an export, as the files name them.

    Args:
        output: the folder of the export.
        schema: schema of the files of a kind and a topic; the partition columns come after it.
        store: path of the store, for the lineage.
    """

    def __init__(self, output: str, schema: Callable[[Kind, str], pa.Schema], store: str, files: FileLayer) -> None:
        self._output, self._schema, self._store, self._files = output, schema, store, files

    def publish(self, commit: LakeCommit) -> None:
        """Add the files of a commit to their tables, unless a table has the commit already."""
        deltalake = _deltalake()
        table_of = attrgetter("table")
        for table, group in groupby(sorted(commit.lake_files, key=table_of), key=table_of):
            self._publish(deltalake, os.path.join(self._output, table), commit, list(group))

    def _publish(self, deltalake: Any, path: str, commit: LakeCommit, lake_files: Sequence[LakeFile]) -> None:
        try:
            table = self._open(deltalake, path, lake_files[0])
            done = table.transaction_version(APP_ID)
            if done is None or done < commit.number:
                table.create_write_transaction(
                    [self._action(deltalake, path, one) for one in lake_files],
                    mode="append",
                    schema=table.schema(),
                    partition_by=list(PARTITION_COLUMNS),
                    commit_properties=deltalake.CommitProperties(
                        custom_metadata=self._lineage(commit),
                        app_transactions=[deltalake.Transaction(APP_ID, commit.number)],
                    ),
                )
        except deltalake.exceptions.DeltaError as error:
            raise StoreError(
                f"{path}: the Delta table does not take commit {commit.number}: {error}; its files are there, "
                "and the next export tries again"
            ) from error
        self._sync(path)

    def _open(self, deltalake: Any, path: str, one: LakeFile) -> Any:
        if deltalake.DeltaTable.is_deltatable(path):
            return deltalake.DeltaTable(path)
        self._files.make_directories(path)
        schema = pa.schema([*self._schema(one.kind, one.topic), ("topic", pa.string()), ("date", pa.date32())])
        return deltalake.DeltaTable.create(path, schema=schema, mode="error", partition_by=list(PARTITION_COLUMNS))

    def _action(self, deltalake: Any, table: str, one: LakeFile) -> Any:
        path = os.path.join(self._output, one.path)
        return deltalake.transaction.AddAction(
            path=os.path.relpath(path, table),
            size=one.size,
            partition_values={"topic": one.topic, "date": one.date},
            modification_time=self._files.modified_ms(path),
            data_change=True,
            stats=json.dumps(_statistics(parquet.read_metadata(path), one.rows)),
        )

    def _lineage(self, commit: LakeCommit) -> Mapping[str, str]:
        return {
            "reput.store": self._store,
            "reput.beginOffset": str(commit.begin),
            "reput.endOffset": str(commit.end.offset),
        }

    def _sync(self, path: str) -> None:
        """Sync a table's log, before the export removes its staging folder.

        A commit writes at most four files: the table's first entry, its own entry, a checkpoint, and the name of the
        last checkpoint.
        """
        log = os.path.join(path, "_delta_log")
        self._files.sync_files([os.path.join(log, entry.name) for entry in self._files.list_directory(log)[-4:]])
        self._files.sync_directories([log, path])


def check_names(fields: Iterable[pa.Field], where: str = "") -> None:
    """Raise ConfigError for names of one level, on any level, that differ only in upper and lower case.

    Args:
        where: begin of the error's text.
    """
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.setdefault(field.name.casefold(), field.name)
        if other != field.name:
            raise ConfigError(
                f"schema: {where}a Delta table does not tell {field.name!r} from {other!r}; give a schema with one "
                "of them, or export as parquet"
            )
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            check_names(kind, where)


def _statistics(metadata: Any, rows: int) -> dict[str, Any]:
    """Delta's `stats` of a file, by which readers skip it: of columns by which messages are searched."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            name, statistics = chunk.path_in_schema, chunk.statistics
            if name in _BOUNDED and statistics is not None and statistics.has_min_max:
                low, high = statistics.min, statistics.max
                least[name] = min(least.get(name, low), low)
                most[name] = max(most.get(name, high), high)
    return {"numRecords": rows, "minValues": _as_json(least), "maxValues": _as_json(most), "nullCount": {}}


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
