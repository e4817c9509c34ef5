"""Copy the files below config/ of a damaged store to the store that is salvaged from it."""

from __future__ import annotations

import os
from dataclasses import replace

from reput.files import DISK
from reput.formats.metadata import FILE_NAMES, Topics, decode_metadata, encode_metadata
from reput.formats.paths import CONFIG
from reput.formats.shutdown import SHUTDOWN_FILE
from reput.formats.sink_commit import SINKS_FILE, encode_sinks
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.topics import with_recorded_topics
from reput.jobs.repair.steps import topics_of
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import DISPATCH_FILE, RECOVERY_FILE
from reput.log.metadata import BACKUP_SUFFIX
from reput.log.sink_commits import SinkWatch, read_sinks

#: Files that describe queues and index of the damaged store, not those that are built.
_NOT_COPIED = (SHUTDOWN_FILE, DISPATCH_FILE, RECOVERY_FILE)


def copy_config(directory: StoreDirectory, listing: StoreListing, target: str) -> None:
    """Copy each JSON file that can be read, or its backup, durably. Lost topics are made from the queues."""
    folder, codes = os.path.join(directory.path, CONFIG), _codes(listing)
    DISK.make_directories(os.path.join(target, CONFIG))
    for entry in DISK.list_directory(folder) if DISK.is_directory(folder) else ():
        if entry.is_directory or not entry.name.endswith(".json") or entry.name in _NOT_COPIED:
            continue
        code = codes.get(entry.name)
        if code == "config-damaged" and entry.name != FILE_NAMES[Topics]:
            continue
        source = os.path.join(folder, entry.name)
        data = DISK.read_bytes(source + BACKUP_SUFFIX * (code == "config-backup"))
        if code == "config-damaged":
            data = encode_metadata(with_recorded_topics(directory.path, topics_of(listing)))
        elif code == "config-changed":
            data = encode_metadata(with_recorded_topics(directory.path, decode_metadata(Topics, data)))
        elif entry.name == SINKS_FILE and not code:
            data = _committed_sinks(directory, data)
        DISK.write_atomically(os.path.join(target, CONFIG, entry.name), data)


def _committed_sinks(directory: StoreDirectory, data: bytes) -> bytes:
    """File of the sinks' commits, without the intent of a batch that is left out of the log."""
    if SinkWatch(directory.files, directory.path).begin_offset is None:
        return data
    return encode_sinks(replace(read_sinks(directory.files, directory.path), intent=None))


def config_notes(listing: StoreListing) -> tuple[str, ...]:
    """Sentences about files that are no plain copies."""
    notes = []
    for name, code in sorted(_codes(listing).items()):
        if name in _NOT_COPIED:
            continue
        if code == "config-backup":
            notes.append(f"{name}: damaged, its backup was taken")
        elif code == "config-changed":
            notes.append(f"{name}: changed, the settings that reput recorded were taken")
        elif name == FILE_NAMES[Topics]:
            notes.append(f"{name}: damaged, made from what reput recorded, and from the queues that are there")
        else:
            notes.append(f"{name}: damaged, and so is its backup, or there is none: left out")
    return tuple(notes)


def _codes(listing: StoreListing) -> dict[str, str]:
    return {
        os.path.basename(finding.path): finding.code
        for finding in listing.findings
        if finding.code in ("config-damaged", "config-backup", "config-changed")
    }
