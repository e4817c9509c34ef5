"""Upkeep of an Iceberg table of an export: small files become one, old snapshots go, and with them what only they name.

Compaction changes no row, and keeps the properties that name the table's last commit. Another writer in between wins:
the files stay small until the next time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.schema import index_by_name

from reput.files import FileLayer
from reput.jobs.lake.field_ids import differing_ids, with_ids
from reput.jobs.lake.files import COMPACTED_NAME
from reput.jobs.lake.iceberg_catalog import location
from reput.jobs.lake.iceberg_metadata import data_file
from reput.jobs.lake.staging import StagedFileWriter, Staging

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_EXPORTED_NAME = re.compile(r"\d{20}\.parquet")


def small_files(table: Table, target_bytes: int, count: int) -> list[list[DataFile]]:
    """Groups of small files of a partition, in log order, of partitions that have `count` of them at least.

    Only files of exports count: those of another writer are that writer's.
    """
    by_partition: dict[tuple[str, int | None], list[DataFile]] = {}
    for task in table.scan().plan_files():
        name = os.path.basename(task.file.file_path)
        is_ours = _EXPORTED_NAME.fullmatch(name) or COMPACTED_NAME.fullmatch(name)
        if is_ours and not task.delete_files and task.file.file_size_in_bytes < target_bytes:
            by_partition.setdefault((task.file.partition[0], task.file.partition[1]), []).append(task.file)
    groups: list[list[DataFile]] = []
    for small in by_partition.values():
        if len(small) >= count:
            size = target_bytes
            for one in sorted(small, key=lambda one: os.path.basename(one.file_path)):
                if size >= target_bytes:
                    groups.append([])
                    size = 0
                groups[-1].append(one)
                size += one.file_size_in_bytes
    return [group for group in groups if len(group) > 1]


def compact(table: Table, groups: Sequence[Sequence[DataFile]], schema: pa.Schema, staging: Staging) -> None:
    """Put the files of each group together, in one snapshot; the old files stay for older snapshots.

    Args:
        schema: of the new files; they have the ids of the table's fields. Groups with a file that has others, as
            somebody has changed the table's columns, are left as they are.
        staging: for the new files, until they have names.
    """
    ids = index_by_name(table.schema())
    schema = with_ids(schema, ids)
    groups = [group for group in groups if not any(differing_ids(_path(one.file_path), ids) for one in group)]
    if not groups:
        return
    lineage = {name: value for name, value in table.properties.items() if name.startswith("reput.")}
    made = [_merge(group, schema, staging) for group in groups]
    try:
        with (
            table.transaction() as change,
            change.update_snapshot(snapshot_properties=lineage).overwrite() as overwrite,
        ):
            for group, (path, rows, size) in zip(groups, made, strict=True):
                for one in group:
                    overwrite.delete_data_file(one)
                overwrite.append_data_file(data_file(table.schema(), path, group[0].partition, rows, size))
    except (CommitFailedException, ValidationException):
        for path, _, _ in made:
            staging.files.unlink(path)


def _merge(group: Sequence[DataFile], schema: pa.Schema, staging: Staging) -> tuple[str, int, int]:
    """Write the rows of some files to one file beside the first of them; returns its path, count of rows, and size."""
    with StagedFileWriter(schema, staging) as writer:
        for one in group:
            writer.write(parquet.ParquetFile(_path(one.file_path)).read().cast(schema))
        name, size = writer.finish()
    first, last = _path(group[0].file_path), os.path.basename(group[-1].file_path)
    begin = os.path.basename(first).partition(".")[0].partition("-")[0]
    end = last.partition(".")[0].rpartition("-")[2]
    path = os.path.join(os.path.dirname(first), f"{begin}-{end}.parquet")
    staging.files.rename_files([(os.path.join(staging.folder, name), path)])
    return path, sum(one.record_count for one in group), size


def _path(place: str) -> str:
    return place.removeprefix(location("/").removesuffix("/"))


def expire(table: Table, hours: float, files: FileLayer) -> None:
    """Remove snapshots that are older, and the files that no later snapshot names."""
    oldest = datetime.now(UTC) - timedelta(hours=hours)
    before = table.snapshots()
    table.maintenance.expire_snapshots().older_than(oldest).commit()
    table.refresh()
    kept = {snapshot.snapshot_id for snapshot in table.snapshots()}
    expired = [snapshot for snapshot in before if snapshot.snapshot_id not in kept]
    if not expired:
        return
    for place in sorted(_named(table, expired) - _named(table, table.snapshots())):
        path = _path(place)
        if not path.startswith("/"):
            table.io.delete(place)
        elif files.exists(path):
            files.unlink(path)


def _named(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """All files that snapshots name: manifest lists, manifests, and files of rows."""
    paths: set[str] = set()
    for snapshot in snapshots:
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in paths:
                paths.add(manifest.manifest_path)
                paths |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return paths
