"""What lies in a store directory before a start changes anything, and where its log ends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFormatError
from reput.files import FileLayer
from reput.formats.checkpoint import Checkpoint
from reput.formats.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from reput.formats.shutdown import SHUTDOWN_FILE, Shutdown, decode_shutdown
from reput.log.directory import IndexFilePath, LogFile, QueueFiles, StoreDirectory, named_folders
from reput.log.dispatch_marks import DispatchMark
from reput.log.failed_sync import failed_sync_path
from reput.store.dispatch.redispatch import Progress
from reput.store.log.commit_log import CommitLog
from reput.store.recovery.log_end import ProtectedRecords, find_log_end, start_file
from reput.store.recovery.marks import read_mark
from reput.store.recovery.verification import Verification
from reput.store.recovery_report import LogEnd

#: Of a store that has no checkpoint.
NO_TIMES = Checkpoint(0, 0, 0)
#: Behind every record.
EVERYTHING = (1 << 63) - 1


@dataclass(slots=True)
class DirectoryListing:
    """What lies in the directory, before anything is changed."""

    log_files: list[LogFile] = field(default_factory=list)
    queues: list[QueueFiles] = field(default_factory=list)
    batch_queues: list[QueueFiles] = field(default_factory=list)
    index_files: list[IndexFilePath] = field(default_factory=list)
    #: Of no time where there is none.
    checkpoint: Checkpoint = NO_TIMES
    has_checkpoint: bool = False
    was_killed: bool = False
    #: Whether other queues lie where reput does not read them.
    has_hidden_queues: bool = False
    #: Of the last clean exit; after a kill it says still which queues there were.
    shutdown: Shutdown | None = None
    #: Of a start that was killed: how far it was.
    mark: DispatchMark | None = None
    #: Of a writer: what is read behind what the checkpoint vouches for need not be on the disk.
    has_failed_sync: bool = False


def commit_log_folders(path: str, config: MessageStoreConfig) -> tuple[str, ...]:
    """The folders that get new files of the log, sorted as `MultiPathMappedFileQueue` does."""
    if not config.store_path_commit_log:
        return (os.path.join(path, COMMIT_LOG),)
    read_only = named_folders(config.read_only_commit_log_store_paths or "")
    return tuple(sorted(set(named_folders(config.store_path_commit_log)) - set(read_only)))


def configured_folders(config: MessageStoreConfig) -> tuple[str, ...]:
    """The folders of the commit log that the configuration names, those included that get no new files."""
    if not config.store_path_commit_log:
        return ()
    return named_folders(f"{config.store_path_commit_log},{config.read_only_commit_log_store_paths or ''}")


def list_directory(
    files: FileLayer, path: str, config: MessageStoreConfig, *, writable: bool = True
) -> DirectoryListing:
    """List the directory; raises StoreFormatError where it is no store, or none that can be opened."""
    elsewhere = configured_folders(config)
    is_there = len(elsewhere) > 1 or (elsewhere and files.exists(elsewhere[0]))
    directory = StoreDirectory(path, commit_log_path=",".join(elsewhere) if is_there else None, files=files)
    checkpoint = directory.checkpoint()
    listing = DirectoryListing(
        [] if elsewhere and not is_there else directory.log_files(),
        directory.queues(),
        directory.batch_queues(),
        directory.index_files(),
        checkpoint or NO_TIMES,
        checkpoint is not None,
        directory.was_killed,
    )
    for part in directory.foreign_parts():
        if part.hides_log or (part.hides_queues and (writable or not listing.queues)):
            raise StoreFormatError(str(part))
        listing.has_hidden_queues = listing.has_hidden_queues or part.hides_queues
    if (listing.queues or listing.batch_queues) and not listing.log_files:
        looked_in = ", ".join(elsewhere or directory.commit_log_folders)
        raise StoreFormatError(
            f"{path}: consume queues, but no commit log in {looked_in}; name the "
            f"folder that has it (storePathCommitLog; to a command that reads: --commit-log-path), or "
            f"move {CONSUME_QUEUE} and {INDEX} away to begin anew"
        )
    shutdown_path = os.path.join(path, CONFIG, SHUTDOWN_FILE)
    if files.exists(shutdown_path):
        listing.shutdown = decode_shutdown(files.read_bytes(shutdown_path))
    if writable:
        directory.check_queue_folders()
        listing.mark = read_mark(path, config, files)
        listing.has_failed_sync = files.exists(failed_sync_path(path))
        listing.was_killed = listing.was_killed or listing.mark is not None or listing.has_failed_sync
    return listing


def is_fresh(files: FileLayer, path: str) -> bool:
    """Whether a store may be made here: nothing is there, or an empty folder."""
    return not files.exists(path) or (files.is_directory(path) and not files.list_directory(path))


def data_end(log_files: Sequence[LogFile]) -> int:
    """About where the written part of a log ends, for progress: files are made long, and filled later."""
    written = [file for file in log_files if file.allocated_bytes]
    return written[-1].start_offset + min(written[-1].size, written[-1].allocated_bytes) if written else 0


def protected_records(listing: DirectoryListing, config: MessageStoreConfig) -> ProtectedRecords:
    """The records that a start must not cut off, wherever damage is."""
    if config.force_verify_prop_crc:  # records without a CRC of all of them are whole, too
        reason = "and under forceVerifyPropCRC nothing whole is cut off"
        return ProtectedRecords(EVERYTHING, reason, ", or open the store without these two keys")
    if not listing.has_checkpoint:  # it was on the disk before the first record, and could have spoken of any of them
        return ProtectedRecords(EVERYTHING, "and where the checkpoint is lost nothing whole is cut off")
    return ProtectedRecords(listing.checkpoint.physic_msg_timestamp, "which the checkpoint says was on the disk")


def find_end(
    log: CommitLog,
    last_record: int,
    listing: DirectoryListing,
    config: MessageStoreConfig,
    progress: Progress,
    verification: Verification | None = None,
    known: tuple[int, int] | None = None,
) -> LogEnd:
    """Where the log ends, by the shortest way that proves it.

    `last_record` is the offset of the last record that a queue knows, -1 for none: after a clean exit of this store no
    more than that one and what has no unit (prepared and rolled back messages) is read. After a kill it is what lies
    behind the file that the checkpoint names, or the offset in `known` if that is later, beside which stands the store
    timestamp before it; `verification` takes that, and what lies between its own beginning and there.
    """
    timestamp = 0
    if listing.was_killed:
        # A killed start may be known to have come to a file of which the checkpoint says that nobody need look at it.
        begin, timestamp = max(known or (0, 0), (start_file(log, listing.checkpoint), 0))
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
    """Offset of the last file that is not all zeros; files made ahead have nothing in them."""
    for file in reversed(log.queue.mapped_files):
        if file.file.read(0, 8) != bytes(8):
            return file.start_offset
    return log.min_offset
