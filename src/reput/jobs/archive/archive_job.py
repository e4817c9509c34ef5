"""`archive`: a store's sealed log files become tables in a folder, from which every byte comes back.

A log file is sealed if a later one has begun: nobody writes to it any more. Each has objects of its own, and counts
when its manifest is there, which is written last. When all files count, the state of the store beside its log is
written as a backup has it, so `restore` makes a store of an archive as of a backup.

No lock of the store is taken, and no writer waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reput.errors import ConfigError, CorruptBackupError, DataLossError, StoreError, StoreFormatError, StoreLockedError
from reput.files import DISK, FileLayer, RecordLock
from reput.formats.archive import ARCHIVE_FILE, ArchivedFile, ArchiveIdentity, decode_identity, encode_identity
from reput.formats.backup import BACKUPS, CONFIG
from reput.formats.java import INT64_MAX
from reput.formats.paths import offset_to_file_name
from reput.jobs.archive.states import States
from reput.jobs.archive.write_file import TEMPORARY, WriteFile, WrittenFile
from reput.jobs.archived_files import archived_offsets, read_archived_file
from reput.jobs.arguments import check_arguments
from reput.jobs.backup.source import resume_point
from reput.jobs.backup.target import FolderTarget, folder_of
from reput.jobs.runner import Runner
from reput.log.directory import LogFile, StoreDirectory
from reput.log.failed_sync import watched
from reput.log.tail import LogTail
from reput.progress import Progress

_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Archived:
    """Result of one run.

    Attributes:
        begin_offset, end_offset: the range of the commit log that the archive has now.
        new_files: count of log files that were archived by this run.
        new_messages: their rows.
        new_log_bytes: their bytes in the log.
        new_bytes: their bytes in the archive.
        rest_bytes: their bytes that are no message of a table, and are kept as they are.
        files: count of all log files of the archive.
        unsealed_offset: commit log offset from which on the store alone has the log, as that file is not sealed; None:
            there is no such file.
        findings: texts of damage in the new log files, and of JSON files that cannot be read.
        seconds: time of the whole job.
    """

    begin_offset: int
    end_offset: int
    new_files: int
    new_messages: int
    new_log_bytes: int
    new_bytes: int
    rest_bytes: int
    files: int
    unsealed_offset: int | None
    findings: tuple[str, ...]
    seconds: float


def archive(
    store_path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Archived:
    """Archive the sealed log files of a store, which may be open, in a folder.

    Files that the archive has are left as they are, and nothing is overwritten. The last log file is not sealed: its
    messages are archived when the next file has begun. Without any log file nothing is made.

    Raises:
        StoreFormatError: no store; or a target that is not empty and no archive.
        ConfigError: a target inside the store, with the log of another store, or a URL; or a log that does not continue
            the archive's.
        StoreLockedError: another process archives to this folder.
        CorruptBackupError: a manifest of the archive is damaged, or what was written is not what is read.
        StoreError: a file cannot be read or written.
    """
    check_arguments(**locals())
    return next(_runs(*_opened(store_path, target, commit_log_path, files), runner, lambda: False, progress))


def follow(
    store_path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    runner: Runner,
    wait: Callable[[], bool],
    commit_log_path: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Iterator[Archived]:
    """Archive repeatedly. After each run `wait()` is called: it returns True when the next run is due, False to end.

    Each run is as a call of `archive`, with its errors; no other process archives to the folder meanwhile. Of the
    states of the store that the runs of one day (UTC) write only the last stays.
    """
    check_arguments(**locals())
    return _runs(*_opened(store_path, target, commit_log_path, files), runner, wait, progress)


def _opened(
    store_path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    commit_log_path: str | os.PathLike[str] | None,
    files: FileLayer,
) -> tuple[StoreDirectory, FolderTarget]:
    """Check store and target; nothing is changed."""
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path, files=files)
    folder = folder_of(os.fspath(target))
    if folder is None:
        raise ConfigError(f"{os.fspath(target)}: archives are folders so far; give the path of a folder")
    directory.check_output(folder)
    opened = FolderTarget(folder, files)
    _check_kind(opened, files)
    return directory, opened


def _runs(
    directory: StoreDirectory,
    target: FolderTarget,
    runner: Runner,
    wait: Callable[[], bool],
    progress: Progress | None,
) -> Iterator[Archived]:
    """Runs until `wait` says that there is no next one. The folder is made, and held, once there is a log."""
    job, is_due = _ArchiveJob(directory, target, runner, progress), True
    while is_due and not directory.log_files() and not _exists(target):
        yield Archived(0, 0, 0, 0, 0, 0, 0, 0, None, (), 0)
        is_due = wait()
    if not is_due:
        return
    directory.files.make_directories(target.path)
    lock = _lock(target, directory.files)
    try:
        while is_due:
            started = time.perf_counter()
            result = job.run(sealed_files(directory))
            yield replace(result, seconds=time.perf_counter() - started)
            is_due = wait()
    finally:
        lock.release()


def sealed_files(directory: StoreDirectory) -> list[LogFile]:
    """Find the log files that no process writes any more: a later one begins with a record that no start takes back."""
    log_files = directory.log_files()
    border = LogTail(directory).file_border(log_files[0].start_offset, INT64_MAX) if log_files else None
    return [] if border is None else [file for file in log_files if file.end_offset <= border]


def _exists(target: FolderTarget) -> bool:
    return ARCHIVE_FILE in target.sizes("")


def _check_kind(target: FolderTarget, files: FileLayer) -> None:
    """Raise StoreFormatError for a path that has other files than an archive's. Nothing is changed before."""
    if not files.exists(target.path) or _exists(target):
        return
    if not files.is_directory(target.path):
        raise StoreFormatError(f"{target.path}: a file, and an archive is a folder; give another name")
    begun = {_LOCK, ARCHIVE_FILE + TEMPORARY}  # by an archive that was killed at once
    foreign = [name for name in files.list_names(target.path) if name not in begun]
    if foreign:
        raise StoreFormatError(
            f"{target.path}: not empty (there is {foreign[0]}), and no archive; give an empty folder or a new name"
        )


def _lock(target: FolderTarget, files: FileLayer) -> RecordLock:
    try:
        return files.lock(os.path.join(target.path, _LOCK))
    except StoreLockedError:
        raise StoreLockedError(f"{target.path}: another process archives to this folder; wait until it ends") from None


class _ArchiveJob:
    """Archiving to a folder that this process holds."""

    def __init__(
        self, directory: StoreDirectory, target: FolderTarget, runner: Runner, progress: Progress | None
    ) -> None:
        self._directory, self._target, self._files = directory, target, directory.files
        self._runner, self._progress = runner, progress
        self._states = States(directory, target)
        self._known: list[ArchivedFile] | None = None

    def run(self, sealed: Sequence[LogFile]) -> Archived:
        """Archive what the archive lacks, then write the state of the store."""
        if self._known is None:
            self._sweep()
            begins = archived_offsets(self._target.path, self._files)
            self._known = [read_archived_file(self._target.path, begin, self._files) for begin in begins]
        known = self._known
        self._check_identity(sealed, known)
        had = {file.log.begin for file in known}
        missing = [file for file in sealed if file.start_offset not in had]
        written = self._write(missing)
        new = [one.archived for one in written if one.is_new]
        archived = sorted([*known, *(one.archived for one in written)], key=lambda file: file.log.begin)
        findings = [finding for one in written for finding in one.damages]
        findings += self._states.write(archived) if archived else []
        self._known = archived
        has = {file.log.begin for file in archived}
        unsealed = [file.start_offset for file in self._directory.log_files() if file.start_offset not in has]
        return Archived(
            archived[0].log.begin if archived else 0, archived[-1].log.end if archived else 0, len(new),
            sum(file.messages for file in new), sum(file.log.size for file in new),
            sum(file.archived_bytes for file in new), sum(file.rest_bytes for file in new), len(archived),
            min(unsealed, default=None), tuple(findings), 0,
        )  # fmt: skip

    def _sweep(self) -> None:
        """Remove temporary files of an archive that was killed. No other process may write here meanwhile."""
        for folder in ("", CONFIG, BACKUPS):
            path = os.path.join(self._target.path, folder)
            for name in self._files.list_names(path) if self._files.is_directory(path) else ():
                if name.endswith(TEMPORARY):
                    self._files.unlink(os.path.join(path, name))

    def _check_identity(self, sealed: Sequence[LogFile], known: Sequence[ArchivedFile]) -> None:
        """Raise ConfigError unless the archive is of this store, and its log continues that of the archive."""
        path, root = self._target.path, self._directory.path
        log_files = self._directory.log_files()
        if not _exists(self._target):
            self._target.write(ARCHIVE_FILE, encode_identity(ArchiveIdentity(root, log_files[0].size)))
            return
        identity = decode_identity(b"".join(self._target.read(ARCHIVE_FILE)), f"{path}/{ARCHIVE_FILE}")
        sizes = {file.size for file in log_files} - {identity.log_file_size}
        if sizes:
            raise ConfigError(
                f"{path}: has the log of {identity.store} in files of {identity.log_file_size} bytes, and those of "
                f"{root} have {min(sizes)}; give another target"
            )
        if not known:
            if identity.store != root:
                raise ConfigError(f"{path}: was begun for the store {identity.store}; give another target")
            return
        begins = sorted({file.log.begin for file in known} | {file.start_offset for file in sealed})
        for begin, following in pairwise(begins):  # tasks of a run that was killed may have left gaps
            if begin < known[-1].log.begin and following != begin + identity.log_file_size:
                name = offset_to_file_name(begin + identity.log_file_size)
                reason = (
                    f"the log file {name} is missing, and {root} does not have it: it was taken away here, or deleted "
                    "there before it was archived. Put it back from a copy, or give another target, whose archive "
                    "begins with the oldest file that the store has; this one restores up to the gap"
                )
                raise CorruptBackupError(path, begin + identity.log_file_size, reason)
        self._check_continues(identity, log_files, known)

    def _check_continues(
        self, identity: ArchiveIdentity, log_files: Sequence[LogFile], known: Sequence[ArchivedFile]
    ) -> None:
        """Raise ConfigError if the store's log lacks records between, or has other ones than the archive."""
        path, root, end = self._target.path, self._directory.path, known[-1].log.end
        log_end = log_files[-1].end_offset if log_files else 0
        if log_end < end:
            raise ConfigError(
                f"{path}: has the log up to offset {end}, and that of {root} ends in the file before {log_end}: it was "
                "cut, or the store is another one; give another target"
            )
        if log_files and log_files[0].start_offset > end:
            raise ConfigError(
                f"{path}: has the log up to offset {end}, and {root} begins at {log_files[0].start_offset}: what is "
                "between is in neither; give another target"
            )
        if log_files[0].start_offset == end:  # no file is in both
            if identity.store != root:
                raise ConfigError(
                    f"{path}: has the log of {identity.store}, and no file of it is in {root}; give another target"
                )
            return
        try:
            LogTail(self._directory).check(resume_point(end, known[-1].last))
        except DataLossError as error:
            raise ConfigError(
                f"{path}: has the log of {identity.store}, and {root} has other records ({error}); give another target"
            ) from None

    def _write(self, missing: Sequence[LogFile]) -> list[WrittenFile]:
        """Archive log files, a task each. They are synced before: the disk has all that the archive has."""
        task = WriteFile(self._target.path, self._files)
        try:
            with watched(self._directory.path, self._files):
                for log_file in missing:
                    with self._files.open(log_file.path) as file:
                        file.sync()
            return self._runner.run(task, missing, description="archiving the log", progress=self._progress)
        except StoreError as error:
            gone = next((file.path for file in missing if not self._files.exists(file.path)), None)
            if gone is None:
                raise
            raise StoreError(
                f"{gone}: retention has deleted it before it was archived: let the store keep its files for longer "
                "(fileReservedTime), and archive again"
            ) from error
