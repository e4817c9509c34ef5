"""Open a store directory for writing: lock it, check it, then change it step by step."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from reput.config.message_store import OS_PAGE_SIZE, SMALL_FILES, FlushDiskType, MessageStoreConfig
from reput.errors import CorruptConsumeQueueError, ReputError, StoreFormatError
from reput.files import FileLayer
from reput.files.lock import RecordLock
from reput.formats.checkpoint import Checkpoint
from reput.formats.paths import CHECKPOINT, CONFIG, CONSUME_QUEUE, LOCK
from reput.log.directory import StoreDirectory, check_is_log_folder, numbered_files, usual_size
from reput.log.failed_sync import leave_mark, remove_mark, watched
from reput.log.geometry.file_sizes import BATCH, INDEX_KEYS, SIMPLE, is_queue_size_proven
from reput.log.geometry.index_geometry import index_geometry
from reput.log.queue_extensions import queue_extensions
from reput.log.queue_types import check_queue_folders, find_queue_types
from reput.log.resume_points import ResumePoint
from reput.progress import Progress
from reput.store.checkpoint import AbortFile, StoreCheckpoint, forget_logics_physical_offset
from reput.store.config_files import StoreTopics
from reput.store.dispatch import locks as dispatch_locks
from reput.store.dispatch.redispatch import redispatch
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.parts import Loaded, WriterParts
from reput.store.queues.tables import QueueTables
from reput.store.recovery.emptied_queues import put_back_next_offsets
from reput.store.recovery.listing import (
    NO_TIMES,
    DirectoryListing,
    commit_log_folders,
    configured_folders,
    is_fresh,
    list_directory,
)
from reput.store.recovery.log_state import lower_log_state
from reput.store.recovery.marks import RecoveryMarks
from reput.store.recovery.missing_units import warn_of_lost_begins
from reput.store.recovery.plan import RecoveryPlan, plan_recovery
from reput.store.recovery.read_only import open_for_reading
from reput.store.recovery.sink_intent import write_sinks
from reput.store.recovery_report import RecoveryReport
from reput.store.retention import CleanService
from reput.store.retention_plan import ExpiredFile

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps


logger = logging.getLogger("reput.store")


def open_for_writing(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    progress: Progress,
    bit_maps: BitMaps | None = None,
    *,
    external: bool = False,
    small: bool = False,
    retention: bool = False,
) -> WriterParts:
    """Lock, check and recover a store; raises what `MessageStore.open` raises. The store's threads are not started.

    Sizes that `config` was not given are the store's files', or `SMALL_FILES` with `small`, if the
    store has no log yet. `external`: another process dispatches what is appended from now on. `retention`: expired log
    files are deleted first, if the disk is too full.
    """
    folders = configured_folders(config) or commit_log_folders(path, config)
    if is_fresh(files, path):
        for folder in folders:
            if files.exists(folder) and not files.is_directory(folder):
                raise StoreFormatError(f"{folder}: a file lies where a folder is expected; move it away")
            check_is_log_folder(files, folder)
        numbered_files(files, *folders)
        for folder in (path, *folders):
            files.make_directories(folder)
        config = config.with_defaults(SMALL_FILES) if small else config
    else:
        listing = list_directory(files, path, config)  # before the lock file is made: what is no store must get none
        config = config.with_defaults(SMALL_FILES) if small and not listing.log_files else config
        config = _with_sizes_of_files(path, config, files, listing, progress)
    with ExitStack() as undo:
        lock = files.lock(f"{path}/{LOCK}")
        undo.callback(lock.release)
        with dispatch_locks.opening(path, files, external=external), watched(path, files):
            parts = _recover(path, config, files, progress, lock, undo, bit_maps, retention=retention)
            if external:
                dispatch_locks.hand_over(path, files, parts, config)
        undo.pop_all()
    return parts


def _with_sizes_of_files(
    path: str, config: MessageStoreConfig, files: FileLayer, listing: DirectoryListing, progress: Progress
) -> MessageStoreConfig:
    """The configuration of a store that exists, with the sizes of its files if no size was given."""
    sizes: dict[str, int] = {}
    if listing.log_files:
        sizes["mapped_file_size_commit_log"] = listing.log_files[0].size
    for kind, queues in ((SIMPLE, listing.queues), (BATCH, listing.batch_queues)):
        sizes[kind.key] = kind.size_in(queues, config)
    if extensions := queue_extensions(path, files):
        sizes["mapped_file_size_consume_queue_ext"] = usual_size(extension.file_size for extension in extensions)
    if config.message_index_enable and not any(map(config.is_given, INDEX_KEYS)):
        numbers = index_geometry(listing.index_files, config.max_hash_slot_num, config.max_index_num, files)
        sizes |= zip(INDEX_KEYS, numbers, strict=True)
    sized = config.with_defaults(sizes)
    if not (config.is_given(SIMPLE.key) or is_queue_size_proven(listing.queues)):
        parts = open_for_reading(path, sized, files, progress)
        parts.close()
        if isinstance(parts.report.damage, CorruptConsumeQueueError):
            raise parts.report.damage
    return sized


def _check_index_geometry(listing: DirectoryListing, config: MessageStoreConfig, files: FileLayer) -> None:
    """Compare the configured numbers of slots and entries with the index files; wrong numbers would spoil a file.

    Several pairs of numbers make the same file length. After a kill a file may prove no pair: nothing is compared.
    """
    if listing.was_killed:
        return
    slots, entries = index_geometry(listing.index_files, config.max_hash_slot_num, config.max_index_num, files)
    if (slots, entries) != (config.max_hash_slot_num, config.max_index_num):
        raise StoreFormatError(
            f"{listing.index_files[0].path}: made with {slots} hash slots and {entries} entries, but maxHashSlotNum is "
            f"{config.max_hash_slot_num} and maxIndexNum {config.max_index_num}, which make the same length; give "
            f"maxHashSlotNum={slots} and maxIndexNum={entries} (to a command: --set)"
        )


def _recover(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    progress: Progress,
    lock: RecordLock,
    undo: ExitStack,
    bit_maps: BitMaps | None,
    *,
    retention: bool,
) -> WriterParts:
    topics = StoreTopics(files, path)
    listing = list_directory(files, path, config)
    loaded = _make(path, config, files, listing, undo, bit_maps)
    loaded.queues.begins.take(topics.begins)
    marks = RecoveryMarks(path, config, files, loaded.log, loaded.queues, loaded.index)
    try:
        plan = plan_recovery(path, config, files, listing, loaded, marks, progress)
    except ReputError:
        marks.put_back()
        raise
    _warn_of_lost_end(path, listing, plan)
    # From here on the directory is changed.
    log, queues, index = loaded.log, loaded.queues, loaded.index
    deleted: list[ExpiredFile] = []
    if retention:
        keep_from = min(plan.dispatch_from, plan.end.offset)
        deleted = CleanService(loaded, config, files, path, lambda: keep_from).make_space()
    dispatch_locks.take_back(path, files)
    abort = AbortFile(files, path)
    abort.create()
    forget_logics_physical_offset(files, path, listing.checkpoint)
    _make_folders(path, config, files, may_be_unsynced=listing.was_killed or not files.exists(f"{path}/{CHECKPOINT}"))
    _cut_log(path, files, listing, log, plan)
    report = _bring_in_step(loaded, listing, plan, config, progress, marks)._replace(deleted_files=tuple(deleted))
    if listing.was_killed:
        _log_recovery(path, report)
    if listing.was_killed or report.dispatched_records:
        queues.raise_min_offsets(log.min_offset)
    put_back_next_offsets(path, files, log, queues)
    warn_of_lost_begins(log, queues)
    for queue in queues.queues():
        log.queue_offsets[queue.topic, queue.queue_id] = queue.max_offset
    is_beyond = queues.begins.end > plan.end.offset  # a slave's are its master's
    if (
        is_beyond
        or listing.was_killed
        or listing.shutdown is None
        or listing.shutdown.commit_log_end != plan.end.offset
    ):
        lower_log_state(path, files, config, queues, plan.end.offset, log.last_store_timestamp)
    if is_beyond:
        topics = StoreTopics(files, path)
        queues.begins.take(topics.begins)
    times = NO_TIMES
    is_changed = report.dispatched_records or marks.is_written or listing.mark is not None
    if not listing.was_killed or not listing.has_checkpoint or is_changed:
        logics, index_timestamp = queues.flush(), 0
        if index is not None:
            index.flush()
            index_timestamp = index.flushed_timestamp
        times = Checkpoint(log.last_store_timestamp, logics, index_timestamp)
    # A lost checkpoint is made only now: a checkpoint without times would say that there is nothing to lose.
    checkpoint = StoreCheckpoint(files, path, times)
    undo.callback(checkpoint.close)
    checkpoint.flush(*times[:3])
    marks.remove()
    remove_mark(path, files)
    log.queue.drop_maps()
    return WriterParts(log, queues, index, report, config, lock, checkpoint, abort, topics)


def _warn_of_lost_end(path: str, listing: DirectoryListing, plan: RecoveryPlan) -> None:
    """Warn if the log of a killed store ends before the time up to which the checkpoint says it was on the disk.

    The store is not refused: RocketMQ's checkpoint may count a message that begins a new file before it is written.
    """
    synced = listing.checkpoint.physic_msg_timestamp
    if listing.was_killed and plan.unfinished is None and plan.end.last_timestamp < synced:
        logger.warning(
            "%s: messages up to store time %d ms were on the disk, and the log ends at %d with a message of %d ms: "
            "its end may be lost; compare it with a replica or a backup",
            os.path.join(path, CHECKPOINT), synced, plan.end.offset, plan.end.last_timestamp,
        )  # fmt: skip


def _log_recovery(path: str, report: RecoveryReport) -> None:
    end = report.log_end
    if end.cut_records:
        logger.warning(
            "%s was not closed: its log ends at %d, where a record is torn or damaged, and %d whole records after it "
            "were cut off. They may have been acknowledged, but nothing says that they were on the disk; compare the "
            "store with a replica or a backup",
            path, end.offset, end.cut_records,
        )  # fmt: skip
    logger.info(
        "%s was not closed: its log ends at %d%s; %d records had their units and keys, %d from offset %d on were "
        "dispatched again",
        path, end.offset, ", and the bytes after it were cut off" if end.has_tail else "",
        report.verified_records, report.dispatched_records, report.dispatched_from,
    )  # fmt: skip


def _make_folders(path: str, config: MessageStoreConfig, files: FileLayer, *, may_be_unsynced: bool) -> None:
    """Make the missing folders. `may_be_unsynced`: a kill may have left names in the page cache only; sync them."""
    log_folders, settings = configured_folders(config) or commit_log_folders(path, config), f"{path}/{CONFIG}"
    for folder in (*log_folders, f"{path}/{CONSUME_QUEUE}", settings):
        files.make_directories(folder)
    if may_be_unsynced:
        for folder in (path, *log_folders):
            files.sync_name(folder)
        for folder in (*log_folders, settings):
            files.sync_directory(folder)


def _cut_log(path: str, files: FileLayer, listing: DirectoryListing, log: CommitLog, plan: RecoveryPlan) -> None:
    """Cut the log if the plan says that it ends, durably."""
    end, unfinished = plan.end, plan.unfinished
    log.queue.remove_empty_file()
    if listing.log_files:
        if end.has_tail or end.offset <= listing.log_files[-1].start_offset:
            log.queue.truncate(end.offset)
        if listing.was_killed:  # its bytes may be in the page cache only, and count as flushed from now on
            log.queue.sync_from(plan.sync_from)
        log.start_at(end.offset)
        log.last_store_timestamp = end.last_timestamp or listing.checkpoint.physic_msg_timestamp
    if unfinished is not None:
        log.queue.sync_from(unfinished.begin_offset)
        write_sinks(files, path, unfinished.sinks)


def _make(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    listing: DirectoryListing,
    undo: ExitStack,
    bit_maps: BitMaps | None,
) -> Loaded:
    """Make log, queues and index for the files of a listing. All files are checked; only the log is loaded."""
    log = CommitLog(
        files,
        commit_log_folders(path, config),
        config.mapped_file_size_commit_log,
        serve_flushed_only=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        warm_sync_bytes=_warm_sync_bytes(config),
        busy_timeout_ms=config.os_page_cache_busy_time_out_mills,
        read_ahead=config.data_read_ahead_enable,
        property_crc=config.enabled_append_prop_crc,
    )
    log.on_failure = partial(leave_mark, path, files)
    undo.callback(log.close)
    log.load(listing.log_files)
    types = find_queue_types(StoreDirectory(path, files=files), shutdown=listing.shutdown)
    check_queue_folders(StoreDirectory(path, files=files), types)
    queues = QueueTables(
        files, path, config.mapped_file_size_consume_queue, config.mapper_file_size_batch_consume_queue,
        config, writable=True, types=types, bit_maps=bit_maps,
    )  # fmt: skip
    undo.callback(queues.close)
    queues.check(listing.queues, listing.batch_queues)
    index = None
    if config.message_index_enable:
        index = IndexService(files, path, config.max_hash_slot_num, config.max_index_num, writable=True)
        undo.callback(index.close)
        index.check(listing.index_files)
        _check_index_geometry(listing, config, files)
    return Loaded(log, queues, index)


def _bring_in_step(
    loaded: Loaded,
    listing: DirectoryListing,
    plan: RecoveryPlan,
    config: MessageStoreConfig,
    progress: Progress,
    marks: RecoveryMarks,
) -> RecoveryReport:
    """Cut queues and index if they cannot be trusted, and dispatch again the records that they may lack."""
    log, queues, index = loaded.log, loaded.queues, loaded.index
    begin = plan.dispatch_from
    if begin < plan.end.offset:
        # Before queues and index change: the checkpoint may say that they are whole.
        marks.write(ResumePoint(begin))
    if listing.was_killed:
        queues.cut()
    queues.turn_to_batch(plan.batch_topics)
    queues.recover_extensions()
    if index is not None:
        index.settle()
    records = redispatch(log, queues, index, config, begin, progress, marks.write_if_due)
    return RecoveryReport(listing.was_killed, plan.end, begin, records, plan.verified_records)


def _warm_sync_bytes(config: MessageStoreConfig) -> int | None:
    if not config.warm_maped_file_enable:
        return None
    sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return config.flush_least_pages_when_warm_maped_file * OS_PAGE_SIZE if sync else 0
