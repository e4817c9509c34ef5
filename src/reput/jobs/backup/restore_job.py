"""`restore`: a store from a backup, verified: every byte by its SHA-256, and then all of it by an audit.

Log and JSON files come from the backup, queues and index are built from the log as `rebuild` builds them, and the audit
compares all of it. Everything is made in `<store>.unfinished`, and gets its name at the end: a restore that was killed
leaves no store, and the same call goes on where it was, file by file.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from reput.config.dispatch_rules import DispatchRules
from reput.config.properties import camel_case
from reput.errors import ConfigError, CorruptBackupError, StoreError, StoreFormatError
from reput.files import DISK, FileLayer
from reput.formats.backup import ConfigFile, LogPiece, Manifest
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.paths import CHECKPOINT, COMMIT_LOG, CONFIG, offset_to_file_name
from reput.jobs.audit.job import audit
from reput.jobs.backup.backup_job import backup_names, read_manifest
from reput.jobs.backup.source import SIZES
from reput.jobs.backup.target import BackupTarget, find_target, folder_of
from reput.jobs.findings import Finding, FindingClass
from reput.jobs.job_folder import JobFolder
from reput.jobs.rebuild.emptied_queues import write_emptied_queue
from reput.jobs.rebuild.job import rebuild
from reput.jobs.resuming import keep, load
from reput.jobs.runner import Progress, Runner
from reput.log.directory import check_outside, check_replaceable

_UNFINISHED = ".unfinished"
_STORE, _RESULT, _PARTS = "store", "result", "parts"
_AUDITED = ("message_delay_level", "max_hash_slot_num", "max_index_num")


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, and what the audit found in it.

    Attributes:
        backup: its name.
        begin_offset, end_offset: the part of the commit log.
        log_bytes: the same in bytes.
        config_files: JSON files.
        messages, units, queues, keys: what was built from the log; see `RebuildResult`.
        kept_queues: queues without a message, whose next queue offset was in the backup.
        findings: of the audit, the worst first.
        seconds: of the whole job.
    """

    backup: str
    begin_offset: int
    end_offset: int
    log_bytes: int
    config_files: int
    messages: int
    units: int
    queues: int
    keys: int
    kept_queues: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no finding is worse than harmless."""
        return all(finding.kind.finding_class is FindingClass.HARMLESS for finding in self.findings)


def restore(
    target: str,
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    backup: str | None = None,
    rules: DispatchRules = DispatchRules.V5_3_3,
    sizes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Restored:
    """Make the store of a backup in a new directory.

    Args:
        target: the folder or URL with backups.
        store_path: the store's directory: a new one, or an empty one.
        runner: who runs the tasks.
        backup: its name; None: the newest one.
        rules: the RocketMQ version whose queues and index are built.
        sizes: what `rebuild` takes beside it, in place of what the backup says: file sizes, `message_delay_level`.
        progress: told how far it is.
        files: the file layer.

    Raises:
        StoreFormatError: no target of backups; a directory that is not empty.
        ConfigError: no such backup; a store among the backups; `<store>.unfinished` was begun with other options; or
            the store's files did not tell sizes, which are to be given then.
        CorruptBackupError: an object of the backup is missing, or is not what it was. The store does not come to be;
            what was restored by then stays in `<store>.unfinished`, and the same call goes on there.
        CorruptRecordError: damage in the log, which was there when the backup was taken.
        StoreLockedError: another process restores to this directory.
    """
    started = time.perf_counter()
    place = find_target(target, files)
    if (backups := folder_of(target)) is not None:
        check_outside(store_path, backups, kind="the backups")
    manifest = _choose(place, backup)
    known = {**manifest.sizes, **(sizes or {})}
    _check_sizes(place, manifest, known)
    store = os.path.abspath(store_path)
    check_replaceable(store)
    unfinished = store + _UNFINISHED
    is_free = not files.exists(store) or (files.is_directory(store) and not files.list_directory(store))
    if not is_free and not files.exists(unfinished):
        raise _not_empty(store)
    options = {"target": place.path, "backup": manifest.name, "rules": rules.value, **(sizes or {})}
    with JobFolder(unfinished, "restore", options, files=files) as folder:
        staged = os.path.join(folder.state_folder(), _STORE)
        kept = os.path.join(folder.state_folder(), _RESULT)
        if not files.exists(staged) and is_free and files.exists(kept):
            files.unlink(kept)  # what was made there got its name, and was taken away
        result: Restored | None = load(kept)
        if not is_free and (result is None or files.exists(staged)):
            raise _not_empty(store)
        if result is None:
            parts = folder.state_folder(_PARTS)
            job = _RestoreJob(place, manifest, store, staged, parts, runner, progress, files)
            result = job.run(rules, known)
            keep(kept, result, synced=True)
        if is_free:
            files.rename(staged, store)
        with suppress(StoreError):
            folder.finish()
            files.remove_tree(folder.path)
    return replace(result, seconds=time.perf_counter() - started)


def _not_empty(store: str) -> StoreFormatError:
    return StoreFormatError(
        f"{store}: exists already and is not an empty folder; give the name of a new one, or move it away"
    )


def _check_sizes(place: BackupTarget, manifest: Manifest, known: Mapping[str, Any]) -> None:
    """Raises ConfigError where sizes of queues or index are not known: files of others are read wrongly by a broker."""
    unknown = [camel_case(name) for name in SIZES if name not in known]
    if unknown:
        raise ConfigError(
            f"{place.path}: the files of {manifest.store} did not tell {', '.join(unknown)} when the backup "
            f"{manifest.name} was taken: give the broker's own with --set {unknown[0]}=N ..."
        )


def _choose(place: BackupTarget, name: str | None) -> Manifest:
    """The manifest of the backup of this name, or of the newest one."""
    names = backup_names(place)
    if not names:
        raise StoreFormatError(f"{place.path}: no backup: none was finished there")
    if name is not None and name not in names:
        raise ConfigError(f"{place.path}: no backup {name}; there are {', '.join(names[-10:])}: see `reput backups`")
    try:
        return read_manifest(place, name or names[-1])
    except CorruptBackupError as error:
        others = ", ".join(other for other in names if other != (name or names[-1])) or "none"
        raise CorruptBackupError(
            error.path, error.offset, f"{error.reason}; other backups (--backup): {others}"
        ) from None


class _RestoreJob:
    """The store of a backup, as far as it has no name yet."""

    def __init__(
        self,
        place: BackupTarget,
        manifest: Manifest,
        store: str,
        staged: str,
        parts: str,
        runner: Runner,
        progress: Progress | None,
        files: FileLayer,
    ) -> None:
        self._place, self._manifest = place, manifest
        self._store, self._staged, self._parts = store, staged, parts
        self._runner, self._progress, self._files = runner, progress, files

    def run(self, rules: DispatchRules, sizes: Mapping[str, Any]) -> Restored:
        manifest, files = self._manifest, self._files
        for folder in (COMMIT_LOG, CONFIG):
            files.make_directories(os.path.join(self._staged, folder))
        task = _RestoreFile(
            self._place, files, os.path.join(self._staged, COMMIT_LOG), self._parts, manifest.log_file_size
        )
        self._runner.run(task, self._log_files(), description="restoring the log", progress=self._progress)
        for file in manifest.config:
            self._restore_config(file)
        for queue in manifest.queues:
            write_emptied_queue(queue, self._staged, files)
        if manifest.last is not None:  # for starts after a kill: all of the log is on the disk
            checkpoint = Checkpoint(manifest.last.store_timestamp, 0, 0)
            files.write_atomically(os.path.join(self._staged, CHECKPOINT), encode_checkpoint(checkpoint))
        built = rebuild(self._staged, None, runner=self._runner, rules=rules, progress=self._progress, **sizes)
        audited = {name: sizes[name] for name in _AUDITED if name in sizes}
        found = audit(self._staged, runner=self._runner, progress=self._progress, **audited)
        return Restored(
            manifest.name, manifest.begin_offset, manifest.end_offset, manifest.end_offset - manifest.begin_offset,
            len(manifest.config), built.messages, built.units, built.queues, built.keys, built.kept_queues,
            tuple(self._named(finding) for finding in found.findings), 0,
        )  # fmt: skip

    def _named(self, finding: Finding) -> Finding:
        """A finding as of the store when it has its name."""
        path, text = (value.replace(self._staged, self._store) for value in (finding.path, finding.text))
        return replace(finding, path=path, text=text)

    def _log_files(self) -> list[tuple[int, tuple[LogPiece, ...]]]:
        """(begin, pieces) of each log file. A log that was emptied has a file that says where it goes on."""
        manifest = self._manifest
        found: dict[int, list[LogPiece]] = {manifest.begin_offset: []} if manifest.begin_offset else {}
        for piece in manifest.log:
            found.setdefault(piece.begin - piece.begin % manifest.log_file_size, []).append(piece)
        return [(begin, tuple(pieces)) for begin, pieces in found.items()]

    def _restore_config(self, file: ConfigFile) -> None:
        path = os.path.join(self._staged, CONFIG, os.path.basename(file.file_name))
        if not self._files.exists(path):  # else a start before has written it, and somebody may have corrected it since
            data = b"".join(_pieces_read(self._place, file.name, file.sha256, file.size))
            self._files.write_atomically(path, data)


@dataclass(frozen=True, slots=True)
class _RestoreFile:
    """Makes a log file, whole and synced, under its name; one that is there is of a start before, and as whole."""

    place: BackupTarget
    files: FileLayer
    folder: str
    parts: str
    size: int

    def __call__(self, item: tuple[int, tuple[LogPiece, ...]]) -> None:
        begin, pieces = item
        name = offset_to_file_name(begin)
        path, part = os.path.join(self.folder, name), os.path.join(self.parts, name)
        if self.files.exists(path):
            return
        if self.files.exists(part):
            self.files.unlink(part)
        with self.files.open(part, writable=True, create=True, size=self.size) as file:
            for piece in pieces:
                position = piece.begin - begin
                for data in _pieces_read(self.place, piece.name, piece.sha256, piece.size):
                    file.write(position, data)
                    position += len(data)
            file.sync()
        self.files.rename(part, path)


def _pieces_read(place: BackupTarget, name: str, sha256: str, size: int) -> Iterator[bytes]:
    """An object's bytes; behind them the proof that they are those of the backup.

    Raises:
        CorruptBackupError: It is missing, or they are not.
    """
    path, digest, read = f"{place.path}/{name}", hashlib.sha256(), 0
    advice = "put it back from a copy of the target, or restore another backup"
    try:
        for data in place.read(name):
            yield data
            digest.update(data)
            read += len(data)
    except StoreError as error:
        raise CorruptBackupError(path, read, f"{error}; {advice}") from error
    if (read, digest.hexdigest()) != (size, sha256):
        found = f"{read} bytes with SHA-256 {digest.hexdigest()}"
        raise CorruptBackupError(path, 0, f"expected {size} bytes with SHA-256 {sha256}, found {found}; {advice}")
