"""`backup`: a consistent copy of a store that may be live, again and again, each time only what is new.

The log is the truth, so a backup is the log with the JSON files beside it; queues and index are built when it is
restored. Everything that a manifest names is written before the manifest, which is written last and decides: before it
there is no backup, from then on it is whole. Nobody's lock is taken, and nobody waits.

Of a live store the bytes before the log's end do not change any more, but they may be in the page cache alone. So the
files are synced before they are read, whoever wrote them: what a backup has the disk has, too.
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
    CONFIG,
    LOG,
    ConfigFile,
    LastBackedUp,
    LogPiece,
    Manifest,
    backup_name,
    decode_manifest,
    encode_manifest,
    manifest_name,
    name_of_time,
    time_of_name,
)
from reput.jobs.backup.source import SourceState, left_out, look_at_source, stored_sizes
from reput.jobs.backup.target import BackupTarget, find_target, folder_of, held_target
from reput.jobs.rebuild.emptied_queues import find_emptied_queues
from reput.jobs.runner import Progress, Runner
from reput.jobs.split_tasks import run_over_splits
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory, open_listed
from reput.log.failed_sync import watched
from reput.log.positions import LastRecord, LogPosition
from reput.log.scan import scan_split
from reput.log.splits import Split, SplitResult
from reput.log.tail import LogTail

#: An object of the log at the most: what a worker holds, and what is read again after a kill.
PIECE_BYTES = 32 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Backup:
    """What one backup has, and what it took.

    Attributes:
        name: of the backup, for `restore`.
        begin_offset, end_offset: the part of the commit log.
        messages: records in the part that was new.
        copied_bytes: of the log, in objects that were written.
        reused_bytes: of the log, in objects that were there.
        config_files: JSON files.
        emptied_queues: queues without a message, whose next queue offset is kept.
        left_out: names in the store directory that are in no backup.
        findings: what is not as it should be in the store.
        seconds: of the whole job.
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
    target: str,
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    link: bool = False,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Backup:
    """Take a backup of a store, which may be open, to a folder or an URL of fsspec's.

    It has every message that was acknowledged before the start, up to the end of the log as it is when the job looks.
    Earlier backups in the same target stay; what they have of the log is not copied again. With `link` full log files
    become hard links where the target is a folder of the same file system: no space, and no time but for the reading.

    Raises:
        StoreFormatError: no store; or a target that is not empty, and none of backups.
        ConfigError: a target inside the store, or one with the backups of another store; links to an URL.
        StoreLockedError: another backup goes to this folder now.
        CorruptRecordError: damage in the log; there is no new backup then, and the earlier ones stay.
        StoreError: a file cannot be read or written, a place not be reached.
    """
    started = time.perf_counter()
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path, files=files)
    folder = folder_of(target)
    if folder is not None:
        directory.check_output(folder)
    elif link:
        raise ConfigError(f"{target}: hard links lead to files of the same file system; leave --link out")
    with held_target(target, files) as place:
        names = backup_names(place)
        before = _newest(place, names)
        if before is not None:
            _check_same_log(directory, place, before)
        job = _BackupJob(directory, place, before, runner, link, piece_bytes, progress)
        manifest, findings = job.run_again_while_files_go(_new_time(names))
        place.write(manifest_name(manifest.name), encode_manifest(manifest))
    return Backup(
        manifest.name, manifest.begin_offset, manifest.end_offset, job.messages, job.copied_bytes,
        sum(piece.size for piece in manifest.log) - job.copied_bytes, len(manifest.config), len(manifest.queues),
        manifest.left_out, findings, time.perf_counter() - started,
    )  # fmt: skip


def list_backups(target: str, *, files: FileLayer = DISK) -> list[Manifest | CorruptBackupError]:
    """The backups of a target, oldest first; in place of one whose manifest is damaged the error that says so.

    Raises:
        StoreFormatError: no target of backups.
        StoreError: it cannot be read.
    """
    place = find_target(target, files)
    found: list[Manifest | CorruptBackupError] = []
    for name in backup_names(place):
        try:
            found.append(read_manifest(place, name))
        except CorruptBackupError as error:
            found.append(error)
    return found


def read_manifest(place: BackupTarget, name: str) -> Manifest:
    """The manifest of a backup; raises CorruptBackupError."""
    return decode_manifest(b"".join(place.read(manifest_name(name))), f"{place.path}/{manifest_name(name)}")


def backup_names(place: BackupTarget) -> list[str]:
    """The names of the backups, oldest first."""
    return sorted(name for file in place.sizes(BACKUPS) if (name := backup_name(file)) is not None)


def _newest(place: BackupTarget, names: Sequence[str]) -> Manifest | None:
    """The newest backup whose manifest can be read: a damaged one must not keep the next backup from being taken."""
    for name in reversed(names):
        try:
            return read_manifest(place, name)
        except CorruptBackupError:
            continue
    return None


def _new_time(names: Sequence[str]) -> int:
    """Now, in ms since 1970; but later than every other backup, whatever the clock does."""
    now = time.time_ns() // 1_000_000
    return max(now, time_of_name(names[-1]) + 1) if names else now


def _check_same_log(directory: StoreDirectory, place: BackupTarget, before: Manifest) -> None:
    """Raises ConfigError where the target is another store's: one elsewhere, whose log is not the same one either."""
    if directory.path == before.store:
        return
    if before.last is not None and _has(directory, _position(before)):
        return
    raise ConfigError(
        f"{place.path}: has the backups of {before.store}, whose log {directory.path} does not go on with; give "
        "another target"
    )


def _has(directory: StoreDirectory, position: LogPosition) -> bool:
    """Whether the log is still what it was before a position."""
    try:
        LogTail(directory).check(position)
    except DataLossError:
        return False
    return True


def _position(manifest: Manifest) -> LogPosition:
    last = manifest.last
    return LogPosition(
        manifest.end_offset,
        None if last is None else LastRecord(last.offset, last.store_timestamp, last.header_size, last.header_crc),
    )


class _BackupJob:
    """A backup to a target that this process has."""

    def __init__(
        self,
        directory: StoreDirectory,
        place: BackupTarget,
        before: Manifest | None,
        runner: Runner,
        link: bool,
        piece_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._directory, self._place, self._before = directory, place, before
        self._runner, self._link, self._piece_bytes, self._progress = runner, link, piece_bytes, progress
        self.messages = self.copied_bytes = 0

    def run_again_while_files_go(self, created_timestamp: int) -> tuple[Manifest, tuple[str, ...]]:
        """All but the writing of the manifest, and again where retention has deleted what was to be read.

        What was copied by then is there, and is not copied again.
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
        pieces = self._kept_pieces(begin, end)
        self.messages = self.copied_bytes = 0
        for gap_begin, gap_end in _gaps(pieces, begin, end):
            pieces += self._copy(log_files, gap_begin, gap_end, end)
        manifest = Manifest(
            name_of_time(created_timestamp),
            created_timestamp,
            self._directory.path,
            begin,
            end,
            _last(state),
            log_files[0].size if log_files else 0,
            tuple(sorted(pieces, key=lambda piece: piece.begin)),
            tuple(self._keep_config(state.config)),
            tuple(find_emptied_queues(self._directory, begin, end)),
            stored_sizes(self._directory, has_records=end > begin),
            tuple(left_out(self._directory)),
        )
        findings = [
            f"{self._directory.path}/config/{file}: neither it nor its backup can be read; it is copied as it is: mend "
            "the store with `reput repair`, and take another backup"
            for file in state.damaged
        ]
        losses = list(state.losses)
        if self._before is not None and self._before.end_offset > end:
            losses.append(f"the backup {self._before.name} has records up to {self._before.end_offset}")
        findings += [
            f"{self._directory.path}: the log ends at offset {end}, but {loss}: what is missing is not in this backup "
            "either; see `reput audit`, and which earlier one to restore by `reput backups`"
            for loss in losses
        ]
        return manifest, tuple(findings)

    def _kept_pieces(self, begin: int, end: int) -> list[LogPiece]:
        """What the newest backup has of the log as it is now."""
        before = self._before
        if before is None or before.end_offset > end:
            return []
        if before.end_offset > begin and not _has(self._directory, _position(before)):
            return []
        sizes = self._place.sizes(LOG)
        return [
            piece
            for piece in before.log
            if piece.begin >= begin and sizes.get(piece.name.rpartition("/")[2]) == piece.size
        ]

    def _copy(self, log_files: Sequence[LogFile], begin: int, end: int, log_end: int) -> list[LogPiece]:
        """The pieces of a part of the log, copied where the target does not have them."""
        files, splits = self._directory.files, list(self._splits(log_files, begin, end))
        with watched(self._directory.path, files):  # the error is told once, and may not be told to the next start
            for path in dict.fromkeys(split.file.path for split in splits):
                with files.open(path) as file:
                    file.sync()
        begins = {split.end: split.begin for split in splits}
        task = _CopyPiece(self._place, files, begins, log_end, self._place.sizes(LOG), self._link)
        outcomes, _ = run_over_splits(
            self._runner, task, splits, description="copying the log", progress=self._progress
        )
        self.messages += sum(outcome.messages for outcome in outcomes)
        self.copied_bytes += sum(outcome.piece.size for outcome in outcomes if outcome.is_new)
        return [outcome.piece for outcome in outcomes]

    def _splits(self, log_files: Sequence[LogFile], begin: int, end: int) -> Iterator[Split]:
        """A split for each piece: cut at the borders of files, and of pieces counted from their begin."""
        for file in log_files:
            low, high = max(begin, file.start_offset), min(end, file.end_offset)
            if low < high:
                is_whole = (low, high) == (file.start_offset, file.end_offset)
                step = file.size if self._link and is_whole else self._piece_bytes
                first = file.start_offset + (low - file.start_offset) // step * step + step
                for a, b in pairwise([low, *range(first, high, step), high]):
                    yield Split(file, a, b, is_record_start=a in (file.start_offset, self._known_start))

    @property
    def _known_start(self) -> int:
        """Where a record starts, beside the starts of files: behind the newest backup."""
        return -1 if self._before is None else self._before.end_offset

    def _keep_config(self, config: Mapping[str, bytes]) -> Iterator[ConfigFile]:
        sizes = self._place.sizes(CONFIG)
        for file_name, data in config.items():
            file = ConfigFile(file_name, len(data), hashlib.sha256(data).hexdigest())
            if sizes.get(file.sha256) != file.size:
                self._place.write(file.name, data)
            yield file


@dataclass(frozen=True, slots=True)
class _Copied:
    """A piece that the target has; `fault` where the log is damaged: then it need not."""

    read: SplitResult
    fault: CorruptRecordError | None
    piece: LogPiece
    messages: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class _CopyPiece:
    """Reads the records of a split, and copies the piece that ends where the split ends.

    Attributes:
        begins: of the pieces, by their ends: a split that is read again begins elsewhere.
        log_end: of the backup; nobody writes to files before it.
        sizes: of the objects that are there.
    """

    place: BackupTarget
    files: FileLayer
    begins: Mapping[int, int]
    log_end: int
    sizes: Mapping[str, int]
    link: bool

    def __call__(self, split: Split) -> _Copied:
        scan = scan_split(split, level=ScanLevel.HEADER, files=self.files)
        messages, fault = 0, None
        try:
            messages = sum(columns.rows for columns in scan)
        except CorruptRecordError as error:
            fault = error
        log_file = split.file
        position, end = self.begins[split.end] - log_file.start_offset, split.end - log_file.start_offset
        digest = hashlib.sha256()
        with open_listed(self.files, log_file.path) as file:
            for begin in range(position, end, _READ_BYTES):
                digest.update(file.read(begin, min(_READ_BYTES, end - begin)))
        piece = LogPiece(self.begins[split.end], split.end, digest.hexdigest())
        is_new = fault is None and self.sizes.get(piece.name.rpartition("/")[2]) != piece.size
        if is_new:
            is_final = log_file.end_offset <= self.log_end
            is_linked = self.link and is_final and piece.size == log_file.size
            self.place.copy(piece.name, log_file.path, position, piece.size, is_final=is_final, link=is_linked)
        return _Copied(scan.result, fault, piece, messages, is_new)


def _gaps(pieces: Sequence[LogPiece], begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of [begin, end) that no piece has."""
    gaps = []
    for piece in sorted(pieces, key=lambda piece: piece.begin):
        if begin < piece.begin:
            gaps.append((begin, piece.begin))
        begin = piece.end
    if begin < end:
        gaps.append((begin, end))
    return gaps


def _last(state: SourceState) -> LastBackedUp | None:
    last = state.end.last
    if last is None:
        return None
    return LastBackedUp(last.offset, last.store_timestamp, last.header_size, last.header_crc)
