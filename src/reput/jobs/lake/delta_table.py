"""Delta table over an export's messages: each commit of the export is one commit of the table, once.

The log of the table holds the number of the export's last commit (an application transaction, `txn`), and the commit's
range of the commit log (`commitInfo`). So a start after a kill knows whether the table has a commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from reput.errors import ConfigError, StoreError
from reput.files import FileLayer
from reput.jobs.lake.commits import LakeCommit
from reput.jobs.lake.files import LakeFile

#: Application id of the transactions of exports.
APP_ID = "reput export"
PARTITION_COLUMNS = ("topic", "date")
_BOUNDED = ("commit_log_offset", "queue_offset", "queue_id", "store_timestamp", "born_timestamp")


class DeltaTable:
    """Delta table in `<output>/messages`.

    Args:
        output: the folder of the export.
        schema: of the files; the partition columns come after it.
        store: path of the store, for the lineage.

    Raises ConfigError for a schema with names that are the same to Delta.
    """

    def __init__(self, output: str, schema: pa.Schema, store: str, files: FileLayer) -> None:
        _check_names(schema)
        self._output, self._store, self._files = output, store, files
        self._path = os.path.join(output, "messages")
        self._schema = pa.schema([*schema, ("topic", pa.string()), ("date", pa.date32())])

    def publish(self, commit: LakeCommit) -> None:
        """Add the files of a commit to the table, unless the table has the commit already."""
        deltalake = _deltalake()
        messages = [one for one in commit.lake_files if one.kind == "messages"]
        if not messages:
            return
        try:
            table = self._open(deltalake)
            done = table.transaction_version(APP_ID)
            if done is None or done < commit.number:
                table.create_write_transaction(
                    [self._action(deltalake, one) for one in messages],
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
                f"{self._path}: the Delta table does not take commit {commit.number}: {error}; its files are there, "
                "and the next export tries again"
            ) from error
        self._sync()

    def _open(self, deltalake: Any) -> Any:
        if deltalake.DeltaTable.is_deltatable(self._path):
            return deltalake.DeltaTable(self._path)
        self._files.make_directories(self._path)
        return deltalake.DeltaTable.create(
            self._path, schema=self._schema, mode="error", partition_by=list(PARTITION_COLUMNS)
        )

    def _action(self, deltalake: Any, one: LakeFile) -> Any:
        path = os.path.join(self._output, one.path)
        return deltalake.transaction.AddAction(
            path=os.path.relpath(path, self._path),
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

    def _sync(self) -> None:
        """Sync the table's log, before the export removes its staging folder.

        A commit writes at most four files: the table's first entry, its own entry, a checkpoint, and the name of the
        last checkpoint.
        """
        log = os.path.join(self._path, "_delta_log")
        self._files.sync_files([os.path.join(log, entry.name) for entry in self._files.list_directory(log)[-4:]])
        self._files.sync_directories([log, self._path])


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Raise ConfigError for names of one level, on any level, that differ only in upper and lower case."""
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.setdefault(field.name.casefold(), field.name)
        if other != field.name:
            raise ConfigError(
                f"schema: a Delta table does not tell {field.name!r} from {other!r}; give a schema with one of them, "
                "or export as parquet"
            )
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            _check_names(kind)


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
