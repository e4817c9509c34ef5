"""States of a store beside its log in an archive: one for each run that archived something, as a backup has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from reput.errors import CorruptBackupError
from reput.formats.archive import ArchivedFile
from reput.formats.backup import CONFIG, Manifest, encode_manifest, manifest_name, name_of_time
from reput.formats.sink_commit import SINKS_FILE, encode_sinks
from reput.jobs.backup.backup_job import backup_names, new_backup_time, read_manifest
from reput.jobs.backup.source import left_out, read_config_files, stored_sizes, unreadable_config
from reput.jobs.backup.target import FolderTarget, keep_config
from reput.jobs.rebuild.emptied_queues import find_emptied_queues
from reput.log.directory import StoreDirectory
from reput.log.sink_commits import read_sinks

#: Characters of a state's name that are its day, by UTC.
_DAY = len("20200101")


class States:
    """Writes states of one store to an archive that this process holds.

    Of the states that it writes on one day (UTC) only the last stays: each names all log files, and a process that
    follows a log would write one for each file.
    """

    def __init__(self, directory: StoreDirectory, target: FolderTarget) -> None:
        self._directory, self._target = directory, target
        self._last: Manifest | None = None
        #: Names of JSON files that no state needs which stays.
        self._removable: set[str] = set()

    def write(self, archived: Sequence[ArchivedFile]) -> list[str]:
        """Write the state as it is now, unless the newest one is of this end of the log; returns findings.

        It is read after the log's end was found: a restore cuts what leads to later records.
        """
        directory, target, files = self._directory, self._target, self._directory.files
        names = backup_names(target)
        begin, end = archived[0].log.begin, archived[-1].log.end
        with suppress(CorruptBackupError):  # a damaged state is told by `verify`, and must not prevent the next one
            newest = read_manifest(target, names[-1]) if names else None
            if newest is not None and (newest.begin_offset, newest.end_offset) == (begin, end):
                return []
        config, damaged = read_config_files(directory)
        if files.exists(os.path.join(directory.path, CONFIG, SINKS_FILE)):
            config[SINKS_FILE] = encode_sinks(replace(read_sinks(files, directory.path), intent=None))
        had = target.sizes(CONFIG)
        kept = keep_config(target, config)
        created = new_backup_time(names)
        manifest = Manifest(
            name_of_time(created), created, directory.path, begin, end, archived[-1].last, archived[0].log.size,
            tuple(file.log for file in archived), tuple(kept), tuple(find_emptied_queues(directory, begin, end)),
            stored_sizes(directory, has_records=True), tuple(left_out(directory)),
        )  # fmt: skip
        target.write(manifest_name(manifest.name), encode_manifest(manifest))
        self._replace(manifest, {file.name for file in kept if file.sha256 not in had})
        return [unreadable_config(directory.path, name) for name in damaged]

    def _replace(self, manifest: Manifest, new: set[str]) -> None:
        """Remove the state before, if it is of the same day, and the JSON files that it alone has."""
        last, self._last = self._last, manifest
        if last is None or last.name[:_DAY] != manifest.name[:_DAY]:
            self._removable = new
            return
        self._target.remove(manifest_name(last.name))
        needed = {file.name for file in manifest.config}
        for name in self._removable - needed:
            self._target.remove(name)
        self._removable = (self._removable & needed) | new
