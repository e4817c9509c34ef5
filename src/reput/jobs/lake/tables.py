"""Tables over an export's files, by the format of the export."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from reput.errors import ConfigError
from reput.files import FileLayer
from reput.jobs.lake.commits import Lacks
from reput.jobs.lake.delta_table import DeltaTables
from reput.jobs.lake.export_options import ExportOptions
from reput.jobs.lake.files import Kind
from reput.jobs.lake.iceberg_table import IcebergTables
from reput.jobs.lake.staging import Staging

_NOTHING = re.compile(r"(?!)")
#: What no path of a format's tables has, as the format's library takes paths for parts of URLs.
_ODD = {
    "delta": (re.compile(r"[\0-\x1f\\]|%[0-9A-Fa-f]{2}"), r"no control character, no \ and no % before two hex digits"),
    "iceberg": (re.compile(r"[\0-\x1f?#]"), "no control character, no ? and no #"),
}


class Tables(Protocol):
    """Tables of an export. After a kill, each call may be made once more.

    Attributes:
        left_out: the reasons why tables did not get what `publish` was to add, by folder; the others got it.
    """

    left_out: dict[str, str]

    def check_place(self, folders: Iterable[str]) -> None:
        """Raise StoreError if the tables of an earlier commit lead to another folder than that of the export."""
        ...

    def field_ids(
        self, tables: Mapping[str, tuple[Kind, str]], check_new: Callable[[str], None]
    ) -> dict[str, dict[str, int]]:
        """Ids that the files of tables must have, by folder and path of a field; none if files have no ids.

        Tables that are missing are made, and columns that are missing added. Of a table that is left out, none.

        Args:
            tables: kind and topic of the rows, by folder.
            check_new: raises TableLeftOutError for the folder of a table that is missing, and must not be made.
        """
        ...

    def publish(self, tables: Iterable[str], lacks: Lacks) -> None:
        """Add files of commits to tables: what `lacks` says for the number of a table's last commit, -1 without one."""
        ...

    def tidy(self, tables: Mapping[str, tuple[Kind, str]], staging: Staging) -> None:
        """Put small files of tables together, and let old snapshots go, as the options say.

        Args:
            tables: as of `field_ids`.
        """
        ...

    def sweep(self) -> None:
        """Remove what a `publish` or a `tidy` that was killed has left, and no table names.

        To be called at a start before a decided commit is completed, and after it.
        """
        ...


class NoTables:
    """Tables of an export that has only files."""

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}

    def check_place(self, folders: Iterable[str]) -> None:
        """Do nothing: files know no paths."""

    def field_ids(
        self, tables: Mapping[str, tuple[Kind, str]], check_new: Callable[[str], None]
    ) -> dict[str, dict[str, int]]:
        """Return none."""
        return {}

    def publish(self, tables: Iterable[str], lacks: Lacks) -> None:
        """Do nothing."""

    def tidy(self, tables: Mapping[str, tuple[Kind, str]], staging: Staging) -> None:
        """Do nothing."""

    def sweep(self) -> None:
        """Do nothing."""


def open_tables(
    options: ExportOptions, output: str, schema: Callable[[Kind, str], pa.Schema], store: str, files: FileLayer
) -> Tables:
    """Open the tables of an export.

    Args:
        output: the folder of the export.
        schema: schema of the files of a kind and a topic, as it is at the time of the call.
        store: path of the store, for the lineage.

    Raises ConfigError for a catalog that is not there, and for a folder that the tables' library takes for another.
    """
    odd, text = _ODD.get(options.format, (_NOTHING, ""))
    if odd.search(output):
        raise ConfigError(f"{output!r}: a path of {options.format} tables has {text}; give another folder")
    if options.format == "delta":
        return DeltaTables(output, schema, store, files, options.upkeep)
    if options.format == "iceberg":
        return IcebergTables(output, schema, store, files, options.upkeep, options.catalog, options.namespace)
    return NoTables()
