"""Open a store read-only: live, killed or cleanly closed, without a lock and without a change."""

from __future__ import annotations

import os
from contextlib import ExitStack

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, StoreError
from reput.files import FileLayer
from reput.formats.paths import ABORT
from reput.log.directory import is_gone
from reput.log.dispatch_marks import dispatched_end
from reput.log.geometry.file_sizes import BATCH, SIMPLE
from reput.log.geometry.index_geometry import index_geometry
from reput.log.queue_types import QueueTypes
from reput.log.sink_commits import SinkWatch
from reput.log.topic_begins import read_topic_begins
from reput.progress import Progress
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.parts import Parts
from reput.store.queues.tables import QueueTables
from reput.store.recovery.listing import (
    EVERYTHING,
    DirectoryListing,
    commit_log_folders,
    data_end,
    find_end,
    list_directory,
    protected_records,
)
from reput.store.recovery.log_end import check_against_queues, find_log_end
from reput.store.recovery.missing_units import find_missing_units
from reput.store.recovery_report import LogEnd, RecoveryReport

#: Tries, as retention may delete a listed file before it is opened. It deletes the oldest files first, so the next try
#: begins after them. A file that is missing for another reason is an error of the last try.
_LOOKS = 20


def _find_end_or_damage(
    log: CommitLog,
    queues: QueueTables,
    listing: DirectoryListing,
    config: MessageStoreConfig,
    progress: Progress,
    seen_record: int,
) -> tuple[LogEnd, CorruptRecordError | None]:
    """Find the log's end for a reader. Damage ends the log and is returned; what lies before it can be read."""
    try:
        end = _find_end_from(log, seen_record, listing, config, progress) or find_end(
            log, -1, listing, config, progress
        )
        if not listing.was_killed:
            queues.load(listing.queues, listing.batch_queues, EVERYTHING)
            check_against_queues(log, end, queues.max_physical_offset)
        return end, None
    except CorruptRecordError as error:
        return LogEnd(error.offset, 0, has_tail=True, scanned_bytes=0), error


def _find_end_from(
    log: CommitLog, seen_record: int, listing: DirectoryListing, config: MessageStoreConfig, progress: Progress
) -> LogEnd | None:
    """Find the log's end from a record that an earlier look saw; None if that record is gone."""
    if log.queue.find(seen_record) is None:
        return None
    end = find_log_end(
        log, seen_record, protected_records(listing, config), config,
        was_killed=listing.was_killed, progress=progress, data_end=data_end(listing.log_files),
    )  # fmt: skip
    return end if end.offset > seen_record else None


def open_for_reading(
    path: str, config: MessageStoreConfig, files: FileLayer, progress: Progress, seen_record: int = -1
) -> Parts:
    """Open a live, killed or cleanly closed store as its queues show it now; takes no lock and changes no byte.

    The files' own sizes count, not the configured sizes. `seen_record` is the commit log offset of a record that an
    earlier look saw, from which the log is scanned; -1 for none. If retention deletes a file meanwhile, the
    directory is looked at again.
    """
    for _ in range(_LOOKS - 1):
        try:
            return _look(path, config, files, progress, seen_record)
        except StoreError as error:
            if not is_gone(error):
                raise
    return _look(path, config, files, progress, seen_record)


def _look(path: str, config: MessageStoreConfig, files: FileLayer, progress: Progress, seen_record: int) -> Parts:
    """Open all parts; look again if a sink took a batch back meanwhile. After an error all files are closed."""
    with ExitStack() as undo:
        parts = _look_once(path, config, files, progress, seen_record, undo)
        if parts is not None:
            undo.pop_all()
            return parts
    return _look(path, config, files, progress, seen_record)  # what was read may be cut off already


def _look_once(
    path: str, config: MessageStoreConfig, files: FileLayer, progress: Progress, seen_record: int, undo: ExitStack
) -> Parts | None:
    watch = SinkWatch(files, path)
    listing = list_directory(files, path, config, writable=False)
    file_size = listing.log_files[0].size if listing.log_files else config.mapped_file_size_commit_log
    folders = commit_log_folders(path, config)
    log = CommitLog(files, folders, file_size, writable=False, read_ahead=config.data_read_ahead_enable)
    undo.callback(log.close)
    log.load(listing.log_files)
    file_size, batch_file_size = SIMPLE.size_in(listing.queues, config), BATCH.size_in(listing.batch_queues, config)
    layer = listing.queue_layer
    queues = QueueTables(layer, path, file_size, batch_file_size, config, writable=False, types=QueueTypes())
    undo.callback(queues.close)
    queues.check(listing.queues, listing.batch_queues)
    marked = dispatched_end(path, files)  # before the units are read: a mark is written after its units
    end, damage = _find_end_or_damage(log, queues, listing, config, progress, seen_record)
    committed = watch.committed(end.offset)
    if committed is None:
        return None
    end = end._replace(offset=committed)
    dispatched = end.offset if marked is None else min(end.offset, marked)
    log.start_at(end.offset)
    log.last_store_timestamp = end.last_timestamp or listing.checkpoint.physic_msg_timestamp
    queues.load(listing.queues, listing.batch_queues, end.offset)
    queues.begins.take(read_topic_begins(path, files))
    queues.raise_min_offsets(log.min_offset)
    lacking = None
    if damage is None and not (listing.was_killed or listing.has_hidden_queues):
        lacking = find_missing_units(path, log, queues, dispatched, listing.shutdown)
        if files.exists(os.path.join(path, ABORT)):  # a writer has opened the store since, and dispatches
            lacking = None
    log.queue.drop_maps()
    index = None
    if listing.index_files:
        slots, capacity = index_geometry(listing.index_files, config.max_hash_slot_num, config.max_index_num, files)
        index = IndexService(files, path, slots, capacity, writable=False)
        undo.callback(index.close)
        index.check(listing.index_files)
        index.load(listing.index_files, safe_timestamp=None)
    report = RecoveryReport(
        listing.was_killed, end, dispatched, 0, damage=damage or lacking,
        hides_queues=listing.has_hidden_queues and not listing.queues,
    )  # fmt: skip
    return Parts(log, queues, index, report)
