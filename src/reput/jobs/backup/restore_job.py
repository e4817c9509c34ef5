"""`restore`: make a store of a backup, and verify it: every byte by SHA-256, then the whole store by an audit.

Log and JSON files come from the backup, `rebuild` builds queues and index from the log, and the audit compares them.
The store is made in `<store>.unfinished`, and renamed at the end: a restore that was killed leaves no store, and the
same call continues file by file.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from reput.config.dispatch_rules import BUILD_KEYS, DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.errors import ConfigError, CorruptBackupError, StoreError, StoreFormatError
from reput.files import DISK, FileLayer
from reput.formats.archive import archived_file_name
from reput.formats.backup import ConfigFile, LogRange, Manifest
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.paths import CHECKPOINT, COMMIT_LOG, CONFIG, offset_to_file_name
from reput.jobs.archived_files import read_archived_file, restore_file
from reput.jobs.arguments import check_arguments
from reput.jobs.audit.job import audit
from reput.jobs.backup.backup_job import backup_names, read_manifest
from reput.jobs.backup.point_in_time import Cut, Until, find_cut, fit_config
from reput.jobs.backup.source import SIZES
from reput.jobs.backup.target import BackupTarget, find_target, folder_of, is_archive
from reput.jobs.findings import Finding, FindingClass
from reput.jobs.job_folder import JobFolder
from reput.jobs.rebuild.emptied_queues import write_emptied_queue
from reput.jobs.rebuild.job import rebuild
from reput.jobs.resuming import keep, load
from reput.jobs.runner import Runner
from reput.log.directory import StoreDirectory, check_outside, check_replaceable
from reput.log.object_storage import absolute, check_is_no_url
from reput.progress import Progress

_UNFINISHED = ".unfinished"
_STORE, _RESULT, _PARTIAL, _CUT = "store", "result", "parts", "cut"
_ADVICE = "put it back from a copy of the target, or restore another backup"
_AUDITED = ("message_delay_level", "max_hash_slot_num", "max_index_num")


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore.

    Attributes:
        backup: name of the backup.
        begin_offset, end_offset: the range of the commit log.
        last_store_timestamp: of the last message, ms since 1970; None without one.
        log_bytes: size of that range.
        config_files: count of JSON files.
        messages, units, queues, keys: counts of the rebuild; see `RebuildResult`.
        kept_queues: queues without messages, whose next queue offset was in the backup.
        forgotten_sinks: ids of sinks whose last batch lies after the point in time; each begins anew.
        findings: of the audit, the worst first.
        seconds: time of the whole job.
    """

    backup: str
    begin_offset: int
    end_offset: int
    last_store_timestamp: int | None
    log_bytes: int
    config_files: int
    messages: int
    units: int
    queues: int
    keys: int
    kept_queues: tuple[str, ...]
    forgotten_sinks: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no finding is worse than harmless."""
        return all(finding.kind.finding_class is FindingClass.HARMLESS for finding in self.findings)


def restore(
    target: str | os.PathLike[str],
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    backup: str | None = None,
    until_ms: int | None = None,
    until_offset: int | None = None,
    rules: DispatchRules = DispatchRules.V5_3_3,
    sizes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Restored:
    """Make the store of a backup in a new directory.

    Args:
        target: the folder or URL with backups.
        store_path: the store's directory: a new one, or an empty one.
        runner: runs the tasks.
        backup: name of the backup; None: the newest one, or the first that reaches the point in time.
        until_ms: the log ends after the last message that was stored at this time (ms since 1970 UTC) or before it.
        until_offset: the log ends before the first message at this commit log offset or after it.
        rules: the RocketMQ version whose queues and index are built.
        sizes: arguments of `rebuild` that replace those in the backup: file sizes, `message_delay_level`.
        progress: called with the progress of each step.
        files: the file layer.

    Raises:
        StoreFormatError: no target of backups; a directory that is not empty.
        ConfigError: no such backup; no message before the point in time; a store path inside the backups, or a URL;
            `<store>.unfinished` was begun with other options; or the backup lacks sizes, which must be given then.
        CorruptBackupError: an object of the backup is missing or damaged. There is no store then; files restored so
            far stay in `<store>.unfinished`, and the same call continues there.
        CorruptRecordError: damage in the log, which was there when the backup was taken.
        StoreLockedError: another process restores to this directory.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    target = os.fspath(target)
    check_is_no_url(store_path)
    opened = find_target(target, files)
    if (backups := folder_of(target)) is not None:
        check_outside(store_path, backups, kind="the backups")
    until = None if until_ms is until_offset is None else Until(until_ms, until_offset)
    if until_ms is not None and until_offset is not None:
        raise ConfigError("a restore ends at a time or at an offset: leave --until or --until-offset out")
    if unknown := sorted(set(sizes or {}) - set(BUILD_KEYS)):
        raise ConfigError(f"sizes: {unknown[0]!r} is none of {', '.join(BUILD_KEYS)}")
    MessageStoreConfig.from_mapping(sizes or {})
    manifest = _choose(opened, backup, until)
    known = {**manifest.sizes, **(sizes or {})}
    _check_sizes(opened, manifest, known)
    store = absolute(store_path)
    check_replaceable(store)
    unfinished = store + _UNFINISHED
    is_free = not files.exists(store) or files.is_empty(store)
    if not is_free and not files.exists(unfinished):
        raise _not_empty(store)
    options = {"target": opened.path, "backup": manifest.name, "rules": rules.value, **(sizes or {})}
    options |= {} if until is None else until.options
    with JobFolder(unfinished, "restore", options, files=files) as folder:
        staged = os.path.join(folder.state_folder(), _STORE)
        kept = os.path.join(folder.state_folder(), _RESULT)
        if not files.exists(staged) and is_free and files.exists(kept):
            files.unlink(kept)  # the store got its name, and was taken away meanwhile
        result: Restored | None = load(kept)
        if not is_free and (result is None or files.exists(staged)):
            raise _not_empty(store)
        if result is None:
            partial_folder = folder.state_folder(_PARTIAL)
            cut_path = os.path.join(folder.state_folder(), _CUT)
            job = _RestoreJob(
                opened, manifest, until, store, staged, partial_folder, cut_path, runner, progress, files
            )  # fmt: skip
            try:
                result = job.run(rules, known)
            except ConfigError:
                if job.is_point_too_early:  # another point may be chosen
                    _remove(folder, files)
                raise
            except CorruptBackupError as error:
                if manifest.name in backup_names(opened):
                    raise
                reason = f"the backup {manifest.name} was pruned meanwhile; remove {unfinished}, and restore another"
                raise CorruptBackupError(error.path, error.offset, reason) from None
            keep(kept, result, synced=True)
        if is_free:
            files.rename(staged, store)
        _remove(folder, files)
    return replace(result, seconds=time.perf_counter() - started)


def _remove(folder: JobFolder, files: FileLayer) -> None:
    with suppress(StoreError):
        folder.finish()
        files.remove_tree(folder.path)


def _not_empty(store: str) -> StoreFormatError:
    return StoreFormatError(
        f"{store}: exists already and is not an empty folder; give the name of a new one, or move it away"
    )


def _check_sizes(target: BackupTarget, manifest: Manifest, known: Mapping[str, Any]) -> None:
    """Raise ConfigError if sizes of queues or index are unknown: a broker misreads files of other sizes."""
    unknown = [camel_case(name) for name in SIZES if name not in known]
    if unknown:
        raise ConfigError(
            f"{target.path}: the files of {manifest.store} did not tell {', '.join(unknown)} when the backup "
            f"{manifest.name} was taken: give the broker's own with --set {unknown[0]}=N ..."
        )


def _choose(target: BackupTarget, name: str | None, until: Until | None) -> Manifest:
    """Read the manifest of the backup of this name; None: of the newest backup.

    Of the backups that reach a point in time the first is chosen: its JSON files are nearest to that.
    """
    names = backup_names(target)
    if not names:
        raise StoreFormatError(f"{target.path}: no backup: none was finished there")
    if name is not None and name not in names:
        raise ConfigError(f"{target.path}: no backup {name}; there are {', '.join(names[-10:])}: see `reput backups`")
    if name is None and until is not None:
        for one in names:
            if until.is_reached_by(manifest := _read(target, one, names)):
                return manifest
    return _read(target, name or names[-1], names)


def _read(target: BackupTarget, name: str, names: Sequence[str]) -> Manifest:
    try:
        return read_manifest(target, name)
    except CorruptBackupError as error:
        others = ", ".join(other for other in names if other != name) or "none"
        raise CorruptBackupError(
            error.path, error.offset, f"{error.reason}; other backups (--backup): {others}"
        ) from None


class _RestoreJob:
    """Restore of one backup to a staged store, which gets its name later."""

    def __init__(
        self,
        target: BackupTarget,
        manifest: Manifest,
        until: Until | None,
        store: str,
        staged: str,
        partial_folder: str,
        cut_path: str,
        runner: Runner,
        progress: Progress | None,
        files: FileLayer,
    ) -> None:
        self.is_point_too_early = False
        self._is_archive = is_archive(target)
        self._target, self._manifest, self._until = target, manifest, until
        self._store, self._staged, self._partial_folder, self._cut_path = store, staged, partial_folder, cut_path
        self._runner, self._progress, self._files = runner, progress, files

    def run(self, rules: DispatchRules, sizes: Mapping[str, Any]) -> Restored:
        manifest, files = self._manifest, self._files
        if self._until is None:
            self._restore_files()
            cut = Cut(manifest.end_offset, manifest.last)
        else:
            cut = self._cut(self._until, rules, sizes)
        if cut.last is not None:  # for starts after a kill: the whole log is on the disk
            checkpoint = Checkpoint(cut.last.store_timestamp, 0, 0)
            files.write_atomically(os.path.join(self._staged, CHECKPOINT), encode_checkpoint(checkpoint))
        built = rebuild(self._staged, None, runner=self._runner, rules=rules, progress=self._progress, **sizes)
        forgotten: tuple[str, ...] = ()
        if self._until is not None or self._is_archive:  # the store's log was longer than an archive's
            is_earlier = cut.end < manifest.end_offset
            forgotten = fit_config(StoreDirectory(self._staged, files=files), cut, is_earlier=is_earlier)
        audited = {name: sizes[name] for name in _AUDITED if name in sizes}
        checked = audit(self._staged, runner=self._runner, progress=self._progress, **audited)
        return Restored(
            manifest.name, manifest.begin_offset, cut.end, None if cut.last is None else cut.last.store_timestamp,
            cut.end - manifest.begin_offset, len(manifest.config), built.messages, built.units, built.queues,
            built.keys, built.kept_queues, forgotten, tuple(self._named(finding) for finding in checked.findings), 0,
        )  # fmt: skip

    def _restore_files(self) -> None:
        """Make the files that the backup has: log, JSON files, queues without messages."""
        manifest, files = self._manifest, self._files
        for folder in (COMMIT_LOG, CONFIG):
            files.make_directories(os.path.join(self._staged, folder))
        kind = _RestoreArchivedFile if self._is_archive else _RestoreFile
        task = kind(
            self._target, files, os.path.join(self._staged, COMMIT_LOG), self._partial_folder, manifest.log_file_size
        )
        self._runner.run(task, self._log_files(), description="restoring the log", progress=self._progress)
        for file in manifest.config:
            self._restore_config(file)
        for queue in manifest.queues:
            write_emptied_queue(queue, self._staged, files)

    def _cut(self, until: Until, rules: DispatchRules, sizes: Mapping[str, Any]) -> Cut:
        """Restore the files, and cut the log at a point in time. After a kill it goes on where it was."""
        cut: Cut | None = load(self._cut_path)
        if cut is None:
            self._restore_files()
            if (
                self._manifest.begin_offset
            ):  # only queues of the whole log tell where those without older messages begin
                rebuild(self._staged, None, runner=self._runner, rules=rules, progress=self._progress, **sizes)
            try:
                cut = find_cut(StoreDirectory(self._staged, files=self._files), until, self._manifest)
            except ConfigError:
                self.is_point_too_early = True
                raise
            keep(self._cut_path, cut, synced=True)
        if not cut.is_done:
            cut.run(StoreDirectory(self._staged, files=self._files))
            cut = replace(cut, is_done=True)
            keep(self._cut_path, cut, synced=True)
        return cut

    def _named(self, finding: Finding) -> Finding:
        """The finding with paths of the store's final name."""
        path, text = (value.replace(self._staged, self._store) for value in (finding.path, finding.text))
        return replace(finding, path=path, text=text)

    def _log_files(self) -> list[tuple[int, tuple[LogRange, ...]]]:
        """(begin, ranges) of each log file. An emptied log has one file, whose name says where the log continues."""
        manifest = self._manifest
        by_file: dict[int, list[LogRange]] = {manifest.begin_offset: []} if manifest.begin_offset else {}
        for log_range in manifest.log:
            by_file.setdefault(log_range.begin - log_range.begin % manifest.log_file_size, []).append(log_range)
        return [(begin, tuple(ranges)) for begin, ranges in by_file.items()]

    def _restore_config(self, file: ConfigFile) -> None:
        path = os.path.join(self._staged, CONFIG, os.path.basename(file.file_name))
        if not self._files.exists(path):  # else an earlier start has written it, and a user may have corrected it
            data = b"".join(_verified_blocks(self._target, file.name, file.sha256, file.size))
            self._files.write_atomically(path, data)


@dataclass(frozen=True, slots=True)
class _RestoreFile:
    """Task: make a log file, whole and synced, under its name. An existing file is whole: an earlier start made it."""

    target: BackupTarget
    files: FileLayer
    folder: str
    partial_folder: str
    size: int

    def __call__(self, item: tuple[int, tuple[LogRange, ...]]) -> None:
        begin, ranges = item
        name = offset_to_file_name(begin)
        path, unfinished = os.path.join(self.folder, name), os.path.join(self.partial_folder, name)
        if self.files.exists(path):
            return
        if self.files.exists(unfinished):
            self.files.unlink(unfinished)
        self._make(unfinished, begin, ranges)
        with self.files.open(unfinished) as file:
            file.sync()
        self.files.rename(unfinished, path)

    def _make(self, path: str, begin: int, ranges: tuple[LogRange, ...]) -> None:
        with self.files.open(path, writable=True, create=True, size=self.size) as file:
            for log_range in ranges:
                position = log_range.begin - begin
                for data in _verified_blocks(self.target, log_range.name, log_range.sha256, log_range.size):
                    file.write(position, data)
                    position += len(data)


@dataclass(frozen=True, slots=True)
class _RestoreArchivedFile(_RestoreFile):
    """The same of a file of an archive."""

    def _make(self, path: str, begin: int, ranges: tuple[LogRange, ...]) -> None:
        archived = read_archived_file(self.target.path, begin, self.files)
        if (archived.log,) != ranges:
            reason = f"it is of other bytes of the log than the backup's manifest says; {_ADVICE}"
            raise CorruptBackupError(f"{self.target.path}/{archived_file_name(begin)}", 0, reason)
        restore_file(self.target.path, archived, path, self.files)


def _verified_blocks(target: BackupTarget, name: str, sha256: str, size: int) -> Iterator[bytes]:
    """Read an object block by block, and verify size and SHA-256 after the last block.

    Raises CorruptBackupError if the object is missing or differs.
    """
    path, digest, read = f"{target.path}/{name}", hashlib.sha256(), 0
    try:
        for data in target.read(name):
            yield data
            digest.update(data)
            read += len(data)
    except StoreError as error:
        raise CorruptBackupError(path, read, f"{error}; {_ADVICE}") from error
    if (read, digest.hexdigest()) != (size, sha256):
        found = f"{read} bytes with SHA-256 {digest.hexdigest()}"
        raise CorruptBackupError(path, 0, f"expected {size} bytes with SHA-256 {sha256}, found {found}; {_ADVICE}")
