"""`UpkeepFiles`: the list of files that a commit or an upkeep of an Iceberg table makes or removes, while it does."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reput.files import FileLayer
from reput.formats.own_json import decode_with_crc, encode_with_crc
from reput.jobs.job_folder import STATE
from reput.jobs.lake.iceberg_catalog import local_path
from reput.jobs.lake.iceberg_metadata import METADATA

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_FILE = "upkeep"
_METADATA_ENDING = ".metadata.json"


class UpkeepFiles:
    """Files of a commit or upkeep of one table. If it was killed, the next run removes what the table does not name.

    Args:
        output: folder of the export.

    Attributes:
        folder: of the table, below the output; None if nothing is under way.
    """

    def __init__(self, output: str, files: FileLayer) -> None:
        self.files = files
        self._output, self._path = output, os.path.join(output, STATE, _FILE)
        self.folder: str | None = None
        self._places: list[str] = []
        self._commit = ""
        if files.exists(self._path):
            self._read()

    def _read(self) -> None:
        try:
            content = decode_with_crc(self.files.read_spared(self._path), may_lack=False)
            self.folder, self._places, self._commit = content["folder"], content["places"], content["commit"]
        except (ValueError, KeyError):  # torn or changed: it only spares space
            self.folder = None

    def begin(self, folder: str, places: Iterable[str], commit: uuid.UUID | None = None) -> uuid.UUID:
        """List files, durably, before the first is made or removed; returns an id for the snapshot that names them.

        Args:
            commit: the id, which the names of all files of metadata have that the snapshot needs; None: a new one.
        """
        commit = commit or uuid.uuid4()
        self.folder, self._places, self._commit = folder, sorted(places), str(commit)
        content = {"folder": folder, "places": self._places, "commit": self._commit}
        self.files.write_atomically(self._path, encode_with_crc(content))
        return commit

    def end(self) -> None:
        """Forget the list: what it has is made, or removed."""
        self.folder = None
        if self.files.exists(self._path):
            self.files.unlink(self._path)

    def sweep(self, table: Table) -> None:
        """Remove what is listed, or written for a snapshot that is none, but what the table names; forget the list."""
        assert self.folder is not None, "who sweeps has looked"
        named = named_files(table, table.snapshots())
        for place in self._places:
            if place not in named:
                remove(table, place, self.files)
        self._sweep_metadata(table, named, self.folder)
        self.end()

    def _sweep_metadata(self, table: Table, named: set[str], folder: str) -> None:
        """Remove what a commit to the embedded catalog has written before it was killed.

        Metadata with the number of the current ones, or a lower one, never become the current ones any more.
        """
        here = os.path.join(self._output, folder, METADATA)
        if not self.files.is_directory(here):
            return
        known = {os.path.basename(entry.metadata_file) for entry in table.metadata.metadata_log}
        known |= {os.path.basename(place) for place in (*named, table.metadata_location)}
        current = _number(os.path.basename(table.metadata_location)) or 0
        for entry in self.files.list_directory(here):
            number = _number(entry.name)
            is_lost = self._commit in entry.name or (number is not None and number <= current)
            if is_lost and entry.name not in known:
                self.files.unlink(os.path.join(here, entry.name))


def named_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """All files that snapshots name: manifest lists, manifests, and files of rows."""
    paths: set[str] = set()
    for snapshot in snapshots:
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in paths:
                paths.add(manifest.manifest_path)
                paths |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return paths


def remove(table: Table, place: str, files: FileLayer) -> None:
    """Remove a file of a table, if it is there."""
    path = local_path(place)
    if path.startswith("/"):
        if files.exists(path):
            files.unlink(path)
    elif (found := table.io.new_input(place)).exists():
        table.io.delete(found)


def _number(name: str) -> int | None:
    """Number of a version of the metadata, `00007-<id>.metadata.json`; None for another file."""
    text = name.partition("-")[0]
    return int(text) if name.endswith(_METADATA_ENDING) and text.isdigit() else None
