"""Listing of a store directory before a start changes it, and the search for the end of its log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFormatError
from reput.files import DISK, FileLayer
from reput.formats.checkpoint import Checkpoint
from reput.formats.java import INT64_MAX
from reput.formats.paths import COMMIT_LOG, CONSUME_QUEUE, INDEX
from reput.formats.shutdown import Shutdown
from reput.log.all_queues import all_queues
from reput.log.directory import IndexFilePath, LogFile, QueueFiles, StoreDirectory, named_folders
from reput.log.dispatch_marks import DispatchMark
from reput.log.failed_sync import failed_sync_path
from reput.log.metadata import read_shutdown
from reput.progress import Progress
from reput.store.log.commit_log import CommitLog
from reput.store.recovery.log_end import ProtectedRecords, find_log_end, start_file
from reput.store.recovery.marks import read_mark
from reput.store.recovery.verification import Verification
from reput.store.recovery_report import LogEnd

#: Times of a store that has no checkpoint.
NO_TIMES = Checkpoint(0, 0, 0)
#: Commit log offset, or store time, after every record.
EVERYTHING = INT64_MAX


@dataclass(slots=True)
class DirectoryListing:
    """Files and state of a store directory before anything is changed."""

    log_files: list[LogFile] = field(default_factory=list)
    queues: list[QueueFiles] = field(default_factory=list)
    batch_queues: list[QueueFiles] = field(default_factory=list)
    index_files: list[IndexFilePath] = field(default_factory=list)
    #: `NO_TIMES` if there is no checkpoint.
    checkpoint: Checkpoint = NO_TIMES
    has_checkpoint: bool = False
    was_killed: bool = False
    #: File layer that reads the queues, some of which may lie in a database.
    queue_layer: FileLayer = DISK
    #: Whether the store has queues in a form that is not read.
    has_hidden_queues: bool = False
    #: What the last clean exit left; after a kill it still says which queues there were.
    shutdown: Shutdown | None = None
    #: Mark of a start that was killed (`reput.store.recovery.marks`); writers only.
    mark: DispatchMark | None = None
    #: Whether a sync has failed: what is read after the checkpoint's times need not be on the disk. Writers only.
    has_failed_sync: bool = False


def commit_log_folders(path: str, config: MessageStoreConfig) -> tuple[str, ...]:
    """Folders that get new commit log files, in the order of `MultiPathMappedFileQueue`."""
    if not config.store_path_commit_log:
        return (os.path.join(path, COMMIT_LOG),)
    read_only = named_folders(config.read_only_commit_log_store_paths or "")
    return tuple(sorted(set(named_folders(config.store_path_commit_log)) - set(read_only)))


def configured_folders(config: MessageStoreConfig) -> tuple[str, ...]:
    """Commit log folders that the configuration names, with the read-only folders, which get no new files."""
    if not config.store_path_commit_log:
        return ()
    return named_folders(f"{config.store_path_commit_log},{config.read_only_commit_log_store_paths or ''}")


def list_directory(
    files: FileLayer, path: str, config: MessageStoreConfig, *, writable: bool = True
) -> DirectoryListing:
    """List a store directory; raises StoreFormatError for a directory that is no store, or cannot be opened."""
    elsewhere = configured_folders(config)
    is_there = len(elsewhere) > 1 or (elsewhere and files.exists(elsewhere[0]))
    directory = StoreDirectory(path, commit_log_path=",".join(elsewhere) if is_there else None, files=files)
    parts = directory.foreign_parts()
    for part in parts:
        if part.hides_log or (part.has_queues and writable):
            raise StoreFormatError(str(part))
    checkpoint = directory.checkpoint()
    queues, queue_layer = (directory.queues(), files) if writable else all_queues(directory)
    listing = DirectoryListing(
        [] if elsewhere and not is_there else directory.log_files(),
        queues,
        directory.batch_queues(),
        directory.index_files(),
        checkpoint or NO_TIMES,
        checkpoint is not None,
        directory.was_killed,
        queue_layer,
        any(part.hides_queues for part in parts),
    )
    if (listing.queues or listing.batch_queues) and not listing.log_files:
        looked_in = ", ".join(elsewhere or directory.commit_log_folders)
        raise StoreFormatError(
            f"{path}: consume queues, but no commit log in {looked_in}; name the "
            f"folder that has it (storePathCommitLog; to a command that reads: --commit-log-path), or "
            f"move {CONSUME_QUEUE} and {INDEX} away to begin anew"
        )
    listing.shutdown = read_shutdown(path, files)
    if writable:
        directory.check_queue_folders()
        listing.mark = read_mark(path, config, files)
        listing.has_failed_sync = files.exists(failed_sync_path(path))
        listing.was_killed = listing.was_killed or listing.mark is not None or listing.has_failed_sync
    return listing


def is_fresh(files: FileLayer, path: str) -> bool:
    """Whether a new store may be made at a path: nothing is there, or an empty folder."""
    return not files.exists(path) or (files.is_directory(path) and not files.list_directory(path))


def data_end(log_files: Sequence[LogFile]) -> int:
    """About where the written log ends, for progress: a file has its full length before it is filled."""
    written = [file for file in log_files if file.allocated_bytes]
    return written[-1].start_offset + min(written[-1].size, written[-1].allocated_bytes) if written else 0


def protected_records(listing: DirectoryListing, config: MessageStoreConfig) -> ProtectedRecords:
    """The records that a start must not cut off after damage."""
    if config.force_verify_prop_crc:  # a record without a CRC of the whole record is whole, too
        reason = "and under forceVerifyPropCRC nothing whole is cut off"
        return ProtectedRecords(EVERYTHING, reason, ", or open the store without these two keys")
    if not listing.has_checkpoint:  # it was on the disk before the first record, and may have covered any record
        return ProtectedRecords(EVERYTHING, "and if the checkpoint is lost nothing whole is cut off")
    return ProtectedRecords(listing.checkpoint.physic_msg_timestamp, "which the checkpoint says was on the disk")


def find_end(
    log: CommitLog,
    last_record: int,
    listing: DirectoryListing,
    config: MessageStoreConfig,
    progress: Progress,
    verification: Verification | None = None,
    trusted: tuple[int, int] | None = None,
) -> LogEnd:
    """Find the log's end, by the shortest scan that proves it.

    After a clean exit of reput the scan begins at the last record with a unit: only records without units (prepared
    and rolled back messages) come after it. After a clean exit of another writer it begins at the last file with data.
    After a kill it begins at the file that the checkpoint names (`start_file`), or at `trusted` if that is later.

    Args:
        log: The log; its files are loaded.
        last_record: Commit log offset of the last record with a unit; -1 for none.
        listing: Of the store's directory.
        config: Which CRCs are checked.
        progress: Gets how far the search is.
        verification: Is given all records from `verification.offset` on.
        trusted: A commit log offset before which a killed store is known to be right, and the store timestamp (ms) of
            the record before it.
    """
    timestamp = 0
    if listing.was_killed:
        # The mark of a killed start may lie before the file that the checkpoint names.
        begin, timestamp = max(trusted or (0, 0), (start_file(log, listing.checkpoint), 0))
    elif listing.shutdown is not None and log.queue.find(last_record) is not None:
        begin = last_record
    else:
        begin = last_used_file(log)
    try:
        if verification is not None:
            verification.walk(log, begin, progress)
        return find_log_end(
            log, begin, protected_records(listing, config), config,
            was_killed=listing.was_killed, progress=progress, data_end=data_end(listing.log_files),
            verification=verification, timestamp=timestamp,
        )  # fmt: skip
    finally:
        if verification is not None:
            verification.finish()


def last_used_file(log: CommitLog) -> int:
    """Start offset of the last log file with data; files that were made ahead hold zeros."""
    for file in reversed(log.queue.mapped_files):
        if file.file.read(0, 8) != bytes(8):
            return file.start_offset
    return log.min_offset
