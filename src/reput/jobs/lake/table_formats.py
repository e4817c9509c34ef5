"""Formats of an export that have tables, and what they ask of the fields of bodies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from reput.errors import ConfigError
from reput.jobs.lake.commits import LakeCommit

#: Package of each format.
TABLE_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
PARTITION_COLUMNS = pa.schema([("topic", pa.string()), ("date", pa.date32())])


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Upkeep of tables.

    Attributes:
        small_files: count of small files of a partition from which on they are put together; 0: never.
        target_bytes: a file with fewer bytes is small.
        retain_hours: age of a snapshot from which on it goes, with the files that only it names.
    """

    small_files: int
    target_bytes: int
    retain_hours: float


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
                f"schema: {where}a table does not tell {field.name!r} from {other!r}; give a schema with one "
                "of them, or export as parquet"
            )
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            check_names(kind, where)


def table_schema(files: pa.Schema) -> pa.Schema:
    """Schema of a table over files of a schema: the columns of the folders' names come last."""
    return pa.schema([*files, *PARTITION_COLUMNS])


def field_paths(fields: Iterable[pa.Field], above: str = "") -> set[str]:
    """Paths of all fields, and of the fields in them."""
    paths = set[str]()
    for field in fields:
        path, kind = f"{above}{field.name}", field.type
        paths.add(path)
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            paths |= field_paths(kind, f"{path}.")
    return paths


def lineage(commit: LakeCommit, store: str) -> dict[str, str]:
    """Properties of a commit in a table's metadata: the range of the log, and the store time of its last message."""
    return {
        "reput.store": store,
        "reput.beginOffset": str(commit.begin),
        "reput.endOffset": str(commit.end.offset),
        "reput.newestStoreTimestamp": str(commit.newest_ms),
    }
