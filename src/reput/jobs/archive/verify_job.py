"""`verify`: proof of an archive without a store: each log file is made again, and compared with its SHA-256."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reput.errors import ConfigError, CorruptBackupError, StoreError, StoreFormatError
from reput.files import DISK, FileLayer
from reput.formats.archive import ARCHIVE_FILE, ArchivedFile
from reput.formats.backup import CONFIG, Manifest, encode_manifest, manifest_name
from reput.formats.paths import offset_to_file_name
from reput.jobs.archived_files import archived_offsets, prove_file, read_archived_file
from reput.jobs.arguments import check_arguments
from reput.jobs.backup.backup_job import backup_names, read_manifest
from reput.jobs.backup.target import FolderTarget, find_target, folder_of, is_archive
from reput.jobs.runner import Runner
from reput.progress import Progress


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification.

    Attributes:
        files: count of log files of the archive.
        messages: rows of those that were proven.
        log_bytes: bytes of those in the log.
        archived_bytes: bytes of those in the archive.
        findings: texts of what is missing or damaged.
        seconds: time of the whole job.
    """

    files: int
    messages: int
    log_bytes: int
    archived_bytes: int
    findings: tuple[str, ...]
    seconds: float


def verify(
    target: str | os.PathLike[str], *, runner: Runner, progress: Progress | None = None, files: FileLayer = DISK
) -> Verified:
    """Prove every file of an archive, without its store.

    Each log file is made where the system has temporary files (TMPDIR), one for each task that runs at once.

    Raises:
        StoreFormatError: no archive.
        CorruptBackupError: `archive.json` is damaged; all else is a finding.
        StoreError: the temporary folder has no room.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    folder = folder_of(os.fspath(target))
    if folder is None:
        raise ConfigError(f"{os.fspath(target)}: archives are folders so far; give the path of a folder")
    opened = find_target(folder, files)
    if not isinstance(opened, FolderTarget) or not is_archive(opened):
        raise StoreFormatError(f"{folder}: no archive: it has no {ARCHIVE_FILE}; `reput restore` verifies a backup")
    offsets = archived_offsets(opened.path, files)
    proven = runner.run(_Prove(opened.path, files), offsets, description="verifying the archive", progress=progress)
    archived = {file.log.begin: file for file, _ in proven if file is not None}
    findings = [fault for _, fault in proven if fault]
    findings += _gaps(opened.path, archived)
    findings += _faults_of_states(opened, archived)
    return Verified(
        len(offsets), sum(file.messages for file in archived.values()),
        sum(file.log.size for file in archived.values()), sum(file.archived_bytes for file in archived.values()),
        tuple(findings), time.perf_counter() - started,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Prove:
    """Task: make a log file of its objects; returns its manifest, or None and the fault."""

    archive: str
    files: FileLayer

    def __call__(self, begin: int) -> tuple[ArchivedFile | None, str]:
        try:
            archived = read_archived_file(self.archive, begin, self.files)
            prove_file(self.archive, archived, self.files)
        except CorruptBackupError as error:
            return None, str(error)
        return archived, ""


def _gaps(path: str, archived: Mapping[int, ArchivedFile]) -> Iterator[str]:
    ends = [file.log.end for file in archived.values()]
    for end in ends[:-1]:
        if end not in archived:
            yield (
                f"{path}: the log file {offset_to_file_name(end)} is missing, or not proven: no restore goes over it; "
                "put it back from a copy, or archive the store to another target"
            )


def _faults_of_states(target: FolderTarget, archived: Mapping[int, ArchivedFile]) -> Iterator[str]:
    """Faults of the states of the store beside its log, and of the JSON files that they name."""
    names = backup_names(target)
    if archived and not names:
        yield f"{target.path}: no state of the store is there: the archive was not finished; archive again"
    sizes = target.sizes(CONFIG)
    for name in names:
        try:
            manifest = _read(target, name)
        except CorruptBackupError as error:
            yield str(error)
            continue
        for part in manifest.log:
            if part.begin not in archived or archived[part.begin].log != part:
                yield f"{target.path}: {offset_to_file_name(part.begin)} is not what the state {name} says"
        yield from (f"{target.path}/{one.name}: missing" for one in manifest.config if one.sha256 not in sizes)
    for sha256 in sizes:
        try:
            found = hashlib.sha256(b"".join(target.read(f"{CONFIG}/{sha256}"))).hexdigest()
        except StoreError as error:
            yield str(error)
            continue
        if found != sha256:
            yield f"{target.path}/{CONFIG}/{sha256}: its SHA-256 is {found}"


def _read(target: FolderTarget, name: str) -> Manifest:
    """Read a manifest; raises CorruptBackupError also where JSON does not care for the bit that differs."""
    manifest = read_manifest(target, name)
    if encode_manifest(manifest) != b"".join(target.read(manifest_name(name))):
        path = f"{target.path}/{manifest_name(name)}"
        raise CorruptBackupError(path, 0, "it has the members of a manifest, but not their bytes")
    return manifest
