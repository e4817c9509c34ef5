"""`backup`: take a consistent copy of a store that may be live. A later backup copies only what is new.

The log is the truth, so a backup is the log with the JSON files beside it; a restore builds queues and index. The
manifest is written last, after all that it names: before it there is no backup, from then on the backup is whole. No
lock of the store is taken, and no writer waits.

The bytes of a live store before the log's end do not change any more, but they may be only in the page cache. So the
files are synced before they are read: the disk has all that a backup has.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from reput.errors import ConfigError, CorruptBackupError, CorruptRecordError, DataLossError, StoreError
from reput.files import DISK, FileLayer
from reput.formats.backup import (
    BACKUPS,
    LOG,
    LogRange,
    Manifest,
    backup_name,
    decode_manifest,
    encode_manifest,
    manifest_name,
    name_of_time,
    time_of_name,
)
from reput.jobs.arguments import check_arguments
from reput.jobs.backup.source import (
    backed_up,
    left_out,
    look_at_source,
    resume_point,
    stored_sizes,
    unreadable_config,
)
from reput.jobs.backup.target import BackupTarget, find_target, folder_of, held_target, keep_config
from reput.jobs.rebuild.emptied_queues import find_emptied_queues
from reput.jobs.runner import Runner
from reput.jobs.split_tasks import run_over_splits
from reput.kernels.records.placeholders import message_count
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory, open_listed
from reput.log.failed_sync import watched
from reput.log.resume_points import ResumePoint
from reput.log.scan import scan_split
from reput.log.splits import Split, SplitResult
from reput.log.tail import LogTail
from reput.progress import Progress

#: Limit of an object of the log: memory of a worker, and what is read again after a kill.
SPLIT_BYTES = 32 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Backup:
    """Result of one backup.

    Attributes:
        name: of the backup, for `restore`.
        begin_offset, end_offset: the range of the commit log.
        messages: records in the range that was new.
        copied_bytes: bytes of the log in objects that were written.
        reused_bytes: bytes of the log in objects that were there already.
        config_files: count of JSON files.
        emptied_queues: count of queues without messages, whose next queue offset is kept.
        left_out: names in the store directory that no backup has.
        findings: texts of faults of the store.
        seconds: time of the whole job.
    """

    name: str
    begin_offset: int
    end_offset: int
    messages: int
    copied_bytes: int
    reused_bytes: int
    config_files: int
    emptied_queues: int
    left_out: tuple[str, ...]
    findings: tuple[str, ...]
    seconds: float


def backup(
    store_path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    link: bool = False,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Backup:
    """Take a backup of a store, which may be open, to a folder or a URL of fsspec.

    The backup has every message that was acknowledged before the start, up to the end of the log as the job finds it.
    Earlier backups in the same target stay, and their bytes of the log are not copied again. With `link` full log files
    become hard links if the target is a folder of the same file system: they take no space, and only the time to read.

    Raises:
        StoreFormatError: no store; or a target that is not empty and has no backups.
        ConfigError: a target inside the store, or with the backups of another store; `link` with a URL.
        StoreLockedError: another backup is being taken to this folder.
        CorruptRecordError: damage in the log; then there is no new backup, and earlier backups stay.
        StoreError: a file cannot be read or written, or the target cannot be reached.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    target = os.fspath(target)
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path, files=files)
    folder = folder_of(target)
    if folder is not None:
        directory.check_output(folder)
    elif link:
        raise ConfigError(f"{target}: hard links lead to files of the same file system; leave --link out")
    with held_target(target, files) as opened:
        names = backup_names(opened)
        before = _newest(opened, names)
        if before is not None:
            _check_same_log(directory, opened, before)
        job = _BackupJob(directory, opened, before, runner, link, split_bytes, progress)
        manifest, findings = job.run_again_while_files_go(new_backup_time(names))
        data, name = encode_manifest(manifest), manifest_name(manifest.name)
        decode_manifest(data, f"{opened.path}/{name}")  # else no restore could read it
        opened.write(name, data)
    return Backup(
        manifest.name, manifest.begin_offset, manifest.end_offset, job.messages, job.copied_bytes,
        sum(one.size for one in manifest.log) - job.copied_bytes, len(manifest.config), len(manifest.queues),
        manifest.left_out, findings, time.perf_counter() - started,
    )  # fmt: skip


def list_backups(target: str | os.PathLike[str], *, files: FileLayer = DISK) -> list[Manifest | CorruptBackupError]:
    """List the backups of a target, oldest first. A backup whose manifest is damaged is listed as an error.

    Raises:
        StoreFormatError: no target of backups.
        StoreError: the target cannot be read.
    """
    check_arguments(**locals())
    opened = find_target(os.fspath(target), files)
    backups: list[Manifest | CorruptBackupError] = []
    for name in backup_names(opened):
        try:
            backups.append(read_manifest(opened, name))
        except CorruptBackupError as error:
            backups.append(error)
    return backups


def read_manifest(target: BackupTarget, name: str) -> Manifest:
    """Read the manifest of a backup; raises CorruptBackupError."""
    return decode_manifest(b"".join(target.read(manifest_name(name))), f"{target.path}/{manifest_name(name)}")


def backup_names(target: BackupTarget) -> list[str]:
    """Names of the backups, oldest first."""
    return sorted(name for file in target.sizes(BACKUPS) if (name := backup_name(file)) is not None)


def _newest(target: BackupTarget, names: Sequence[str]) -> Manifest | None:
    """Newest backup whose manifest can be read: a damaged manifest must not prevent the next backup."""
    for name in reversed(names):
        try:
            return read_manifest(target, name)
        except CorruptBackupError:
            continue
    return None


def new_backup_time(names: Sequence[str]) -> int:
    """Time for a new backup, in ms since 1970: now, but later than every other backup, whatever the clock shows."""
    now = time.time_ns() // 1_000_000
    return max(now, time_of_name(names[-1]) + 1) if names else now


def _check_same_log(directory: StoreDirectory, target: BackupTarget, before: Manifest) -> None:
    """Raise ConfigError if the target has backups of another store: of another path, and with another log."""
    if directory.path == before.store:
        return
    if before.last is not None and _has(directory, resume_point(before.end_offset, before.last)):
        return
    raise ConfigError(
        f"{target.path}: has the backups of {before.store}, and {directory.path} does not continue its log; give "
        "another target"
    )


def _has(directory: StoreDirectory, point: ResumePoint) -> bool:
    """Whether the log is unchanged before a point."""
    try:
        LogTail(directory).check(point)
    except DataLossError:
        return False
    return True


class _BackupJob:
    """A backup to a target that this process holds."""

    def __init__(
        self,
        directory: StoreDirectory,
        target: BackupTarget,
        before: Manifest | None,
        runner: Runner,
        link: bool,
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._directory, self._target, self._before = directory, target, before
        self._runner, self._link, self._split_bytes, self._progress = runner, link, split_bytes, progress
        self.messages = self.copied_bytes = 0

    def run_again_while_files_go(self, created_timestamp: int) -> tuple[Manifest, tuple[str, ...]]:
        """Copy all but the manifest; start again if retention has deleted files that were to be read.

        Objects that were copied by then are not copied again.
        """
        while True:
            begin = self._begin()
            try:
                return self._run(created_timestamp)
            except CorruptRecordError as error:
                advice = "look at the log with `reput audit`; an earlier backup or a replica may have the bytes"
                reason = f"{error.reason}; there is no new backup: {advice}"
                raise CorruptRecordError(error.path, error.offset, reason) from None
            except StoreError:
                if self._begin() == begin:
                    raise

    def _begin(self) -> int | None:
        log_files = self._directory.log_files()
        return log_files[0].start_offset if log_files else None

    def _run(self, created_timestamp: int) -> tuple[Manifest, tuple[str, ...]]:
        state = look_at_source(self._directory)
        end = state.end.offset
        log_files = [file for file in self._directory.log_files() if file.start_offset <= end]
        begin = log_files[0].start_offset if log_files else end
        ranges = self._kept_ranges(begin, end)
        self.messages = self.copied_bytes = 0
        for gap_begin, gap_end in _gaps(ranges, begin, end):
            ranges += self._copy(log_files, gap_begin, gap_end, end)
        manifest = Manifest(
            name_of_time(created_timestamp),
            created_timestamp,
            self._directory.path,
            begin,
            end,
            None if state.end.last is None else backed_up(state.end.last),
            log_files[0].size if log_files else 0,
            tuple(sorted(ranges, key=lambda kept: kept.begin)),
            tuple(keep_config(self._target, state.config)),
            tuple(find_emptied_queues(self._directory, begin, end)),
            stored_sizes(self._directory, has_records=end > begin),
            tuple(left_out(self._directory)),
        )
        findings = [unreadable_config(self._directory.path, file) for file in state.damaged]
        losses = list(state.losses)
        if self._before is not None and self._before.end_offset > end:
            losses.append(f"the backup {self._before.name} has records up to {self._before.end_offset}")
        findings += [
            f"{self._directory.path}: the log ends at offset {end}, but {loss}: this backup lacks the missing records, "
            "too; see `reput audit`, and `reput backups` for an earlier backup to restore"
            for loss in losses
        ]
        return manifest, tuple(findings)

    def _kept_ranges(self, begin: int, end: int) -> list[LogRange]:
        """Ranges of the log as it is now that the newest backup has."""
        before = self._before
        if before is None or before.end_offset > end:
            return []
        if before.end_offset > begin and not _has(self._directory, resume_point(before.end_offset, before.last)):
            return []
        sizes = self._target.sizes(LOG)
        return [
            kept for kept in before.log if kept.begin >= begin and sizes.get(kept.name.rpartition("/")[2]) == kept.size
        ]

    def _copy(self, log_files: Sequence[LogFile], begin: int, end: int, log_end: int) -> list[LogRange]:
        """Copy a range of the log by splits, except objects that the target has; returns a range for each split."""
        files, splits = self._directory.files, list(self._splits(log_files, begin, end))
        with watched(self._directory.path, files):  # the system reports a failed sync once, so it is recorded
            for path in dict.fromkeys(split.file.path for split in splits):
                with files.open(path) as file:
                    file.sync()
        begins = {split.end: split.begin for split in splits}
        task = _CopyRange(self._target, files, begins, log_end, self._target.sizes(LOG), self._link)
        outcomes, _ = run_over_splits(
            self._runner, task, splits, description="copying the log", progress=self._progress
        )
        self.messages += sum(outcome.messages for outcome in outcomes)
        self.copied_bytes += sum(outcome.log_range.size for outcome in outcomes if outcome.is_new)
        return [outcome.log_range for outcome in outcomes]

    def _splits(self, log_files: Sequence[LogFile], begin: int, end: int) -> Iterator[Split]:
        """A split for each object of the log, cut at ends of files, and at multiples of the split size in a file."""
        for file in log_files:
            low, high = max(begin, file.start_offset), min(end, file.end_offset)
            if low < high:
                is_whole = (low, high) == (file.start_offset, file.end_offset)
                step = file.size if self._link and is_whole else self._split_bytes
                first = file.start_offset + (low - file.start_offset) // step * step + step
                for a, b in pairwise([low, *range(first, high, step), high]):
                    yield Split(file, a, b, is_record_start=a in (file.start_offset, self._known_start))

    @property
    def _known_start(self) -> int:
        """Offset at which a record is known to start, besides the starts of files: the end of the newest backup."""
        return -1 if self._before is None else self._before.end_offset


@dataclass(frozen=True, slots=True)
class _Copied:
    """Outcome of a task for one split, a `SplitOutcome`. Without a `fault` the target has the object of the range."""

    read: SplitResult
    fault: CorruptRecordError | None
    log_range: LogRange
    messages: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class _CopyRange:
    """Task: read the records of a split, and copy the range that ends at the split's end.

    Attributes:
        begins: begins of the ranges by their ends: a split that is read again may begin at another offset.
        log_end: of the backup; no process writes to files before it.
        sizes: of the objects that the target has.
    """

    target: BackupTarget
    files: FileLayer
    begins: Mapping[int, int]
    log_end: int
    sizes: Mapping[str, int]
    link: bool

    def __call__(self, split: Split) -> _Copied:
        scan = scan_split(split, level=ScanLevel.HEADER, files=self.files)
        messages, fault = 0, None
        try:
            messages = sum(message_count(columns) for columns in scan)
        except CorruptRecordError as error:
            fault = error
        log_file = split.file
        position, end = self.begins[split.end] - log_file.start_offset, split.end - log_file.start_offset
        digest = hashlib.sha256()
        with open_listed(self.files, log_file.path) as file:
            for begin in range(position, end, _READ_BYTES):
                digest.update(file.read(begin, min(_READ_BYTES, end - begin)))
        copied = LogRange(self.begins[split.end], split.end, digest.hexdigest())
        is_new = fault is None and self.sizes.get(copied.name.rpartition("/")[2]) != copied.size
        if is_new:
            is_final = log_file.end_offset <= self.log_end
            is_linked = self.link and is_final and copied.size == log_file.size
            self.target.copy(copied.name, log_file.path, position, copied.size, is_final=is_final, link=is_linked)
        return _Copied(scan.result, fault, copied, messages, is_new)


def _gaps(ranges: Sequence[LogRange], begin: int, end: int) -> list[tuple[int, int]]:
    """Gaps of [begin, end) between ranges."""
    gaps = []
    for kept in sorted(ranges, key=lambda kept: kept.begin):
        if begin < kept.begin:
            gaps.append((begin, kept.begin))
        begin = kept.end
    if begin < end:
        gaps.append((begin, end))
    return gaps
