"""`LastCommits`: the number of the last commit of each table, by which a table shows what it lacks."""

from __future__ import annotations

import os

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.own_json import decode_with_crc, encode_with_crc, number
from reput.jobs.lake.files import LakeFile

_FILE = "tables"


class LastCommits:
    """Numbers of the last commits of tables. The file counts those up to `number`; who opens it adds the later ones.

    Attributes:
        number: of the last commit that the file counts; -1 without a file.
        files_since: count of files of commits that were added since.
    """

    def __init__(self, folder: str, files: FileLayer) -> None:
        self._path, self._files = os.path.join(folder, _FILE), files
        self.number, self.files_since = -1, 0
        self._by_table: dict[str, int] = {}
        if files.exists(self._path):
            self._read()

    def _read(self) -> None:
        try:
            content = decode_with_crc(self._files.read_bytes(self._path), may_lack=False)
            self.number = number(content["number"])
            self._by_table = {table: number(last, most=self.number) for table, last in content["tables"].items()}
        except (ValueError, KeyError, AttributeError) as error:
            raise CorruptMetadataError(
                self._path,
                getattr(error, "pos", 0),
                f"not what an export writes ({error!r}); it says which commit of a table is the last: restore it from "
                "a copy, or export to another folder",
            ) from error

    def of(self, table: str) -> int:
        """Number of the last commit of a table that was added; -1 without one."""
        return self._by_table.get(table, -1)

    def add(self, commit: int, lake_files: tuple[LakeFile, ...]) -> None:
        """Add a commit."""
        for one in lake_files:
            self._by_table[one.table] = commit
        self.files_since += len(lake_files)

    def write(self, commit: int) -> None:
        """Write the file, which counts all commits up to this one."""
        content = {"number": commit, "tables": self._by_table}
        self._files.write_atomically(self._path, encode_with_crc(content))
        self.number, self.files_since = commit, 0
