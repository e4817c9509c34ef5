"""Upkeep of an Iceberg table of an export: small files become one, old snapshots go, and with them what only they name.

Compaction changes no row, and keeps the properties that name the table's last commit. Another writer in between wins:
the files stay small until the next time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.schema import index_by_name

from reput.jobs.lake.field_ids import differing_ids, with_ids
from reput.jobs.lake.file_bounds import file_bounds
from reput.jobs.lake.files import COMPACTED_NAME, EXPORTED_NAME, offsets_of_name
from reput.jobs.lake.iceberg_catalog import local_path, location
from reput.jobs.lake.iceberg_metadata import data_file
from reput.jobs.lake.staging import StagedFileWriter, Staging
from reput.jobs.lake.upkeep_files import UpkeepFiles, named_files

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def small_files(table: Table, target_bytes: int, count: int) -> list[list[DataFile]]:
    """Groups of small files of a partition, in log order, of partitions that have `count` of them at least.

    Only files of exports count: another writer's are its own.
    """
    by_partition: dict[tuple[str, int | None], list[DataFile]] = {}
    for task in table.scan().plan_files():
        name = os.path.basename(task.file.file_path)
        is_ours = EXPORTED_NAME.fullmatch(name) or COMPACTED_NAME.fullmatch(name)
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


def compact(
    table: Table, groups: Sequence[Sequence[DataFile]], schema: pa.Schema, staging: Staging, listed: UpkeepFiles,
    folder: str,
) -> None:  # fmt: skip
    """Put the files of each group together, in one snapshot; the old files stay for older snapshots.

    Args:
        schema: of the new files; they have the ids of the table's fields. Groups with a file that has others, as
            somebody has changed the table's columns, are left as they are.
        staging: for the new files, until they have names.
        listed: the list of files for the case of a kill.
        folder: of the table, below the output.
    """
    ids = index_by_name(table.schema())
    schema = with_ids(schema, ids)
    groups = [group for group in groups if not any(differing_ids(local_path(one.file_path), ids) for one in group)]
    if not groups:
        return
    lineage = {name: value for name, value in table.properties.items() if name.startswith("reput.")}
    by_path: dict[str, Sequence[DataFile]] = {}
    for group in groups:  # of two groups of several logs with the same offsets, one waits for another commit
        by_path.setdefault(_compacted_path(group, int(lineage.get("reput.commit", "0"))), group)
    commit = listed.begin(folder, map(location, by_path))
    made = [_merge(group, schema, staging, path) for path, group in by_path.items()]
    try:
        with (
            table.transaction() as change,
            change.update_snapshot(snapshot_properties=lineage).overwrite(commit) as overwrite,
        ):
            for (path, group), (rows, size) in zip(by_path.items(), made, strict=True):
                for one in group:
                    overwrite.delete_data_file(one)
                overwrite.append_data_file(data_file(table.schema(), path, group[0].partition, rows, size))
    except (CommitFailedException, ValidationException):
        listed.sweep(table.refresh())
    else:
        listed.end()


def _compacted_path(group: Sequence[DataFile], commit: int) -> str:
    """Path of a file that is put together of others, beside the first of them, after a commit of the export."""
    first = local_path(group[0].file_path)
    names = [os.path.basename(one.file_path) for one in (group[0], group[-1])]
    begin, end = offsets_of_name(names[0])[0], offsets_of_name(names[1])[1]
    return os.path.join(os.path.dirname(first), f"{begin:020d}-{end:020d}-{commit:06d}.parquet")


def _merge(group: Sequence[DataFile], schema: pa.Schema, staging: Staging, path: str) -> tuple[int, int]:
    """Write the rows of some files to one file, in log order; returns its count of rows, and its size."""
    paths = [local_path(one.file_path) for one in group]
    bounds = [file_bounds(one)["commit_log_offset"] for one in paths]
    tables: Iterator[pa.Table] = (parquet.ParquetFile(one).read().cast(schema) for one in paths)
    if any(before[1] >= after[0] for before, after in pairwise(bounds)):  # of several logs
        tables = iter([pa.concat_tables(tables).sort_by("commit_log_offset")])
    with StagedFileWriter(schema, staging) as writer:
        for table in tables:
            writer.write(table)
        name, size = writer.finish()
    staging.sync([name])
    staging.files.rename_files([(os.path.join(staging.folder, name), path)])
    return sum(one.record_count for one in group), size


def expire(table: Table, hours: float, listed: UpkeepFiles, folder: str) -> None:
    """Remove snapshots that are older, and the files that no later snapshot names."""
    oldest = datetime.now(UTC) - timedelta(hours=hours)
    older = [one for one in table.snapshots() if one.timestamp_ms < oldest.timestamp() * 1000]
    if older:
        listed.begin(folder, named_files(table, older))
        table.maintenance.expire_snapshots().older_than(oldest).commit()
        table.refresh()
        listed.sweep(table)
