"""Opening a store directory for writing: what is checked, and in which order it is changed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import StoreFormatError
from reput.files import FileLayer
from reput.files.lock import RecordLock
from reput.formats.paths import CONFIG, CONSUME_QUEUE, LOCK
from reput.log.directory import StoreDirectory
from reput.log.index_geometry import index_geometry
from reput.log.queue_types import check_queue_folders, find_queue_types
from reput.log.sink_commits import read_sinks
from reput.store import dispatch_turn
from reput.store.checkpoint import AbortFile, StoreCheckpoint
from reput.store.commit_log import CommitLog
from reput.store.config_files import TopicConfigManager
from reput.store.found import (
    EVERYTHING,
    Found,
    commit_log_folders,
    configured_folders,
    find_end,
    is_fresh,
    last_used_file,
    look,
)
from reput.store.index_service import IndexService
from reput.store.parts import Parts
from reput.store.queue_tables import QueueTables
from reput.store.recovery import (
    LogEnd,
    RecoveryReport,
    check_against_queues,
    queues_are_complete,
    start_file,
)
from reput.store.redispatch import Confirmation, Progress, Redispatch
from reput.store.sink_commits import find_unfinished, write_sinks

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps

_PAGE_SIZE = 4096


def open_for_writing(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    progress: Progress,
    bit_maps: BitMaps | None = None,
    *,
    by_others: bool = False,
) -> Parts:
    """Lock, check, recover; see the errors of `MessageStore.open`. The store's threads are not started.

    `by_others`: what comes is dispatched by another process.
    """
    folders = configured_folders(config) or commit_log_folders(path, config)
    if is_fresh(files, path):
        for folder in (*folders, f"{path}/{CONSUME_QUEUE}", f"{path}/{CONFIG}"):
            files.make_directories(folder)
    else:
        look(files, path, config)  # no lock file is left in a folder that is no store
        for folder in folders:
            files.make_directories(folder)
    with ExitStack() as undo:
        lock = files.lock(f"{path}/{LOCK}")
        undo.callback(lock.release)
        with dispatch_turn.opening(path, files, by_others=by_others):
            parts = _recover(path, config, files, progress, lock, undo, bit_maps)
            if by_others:
                dispatch_turn.hand_over(path, files, parts, config)
        undo.pop_all()
    return parts


def _check_index_geometry(found: Found, config: MessageStoreConfig, files: FileLayer) -> None:
    """Many pairs of numbers make one length; a wrong pair would spoil the file. After a kill it may prove nothing."""
    if found.was_killed:
        return
    slots, entries = index_geometry(found.index_files, config.max_hash_slot_num, config.max_index_num, files)
    if (slots, entries) != (config.max_hash_slot_num, config.max_index_num):
        raise StoreFormatError(
            f"{found.index_files[0].path}: made with {slots} hash slots and {entries} entries, but maxHashSlotNum is "
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
) -> Parts:
    topics = TopicConfigManager(files, path)
    found = look(files, path, config)
    log, queues, index = _make(path, config, files, found, undo, bit_maps)
    has_intent = read_sinks(files, path).intent is not None
    confirmation = _load(log, queues, index, found, config, may_lose_records=has_intent)
    end = find_end(log, queues.last_record_offset, found, config, progress, confirmation)
    unfinished = find_unfinished(files, path, log, end)
    if unfinished is not None:
        end = unfinished.log_end
    if not found.was_killed:
        shut_down_at = found.shutdown.commit_log_end if found.shutdown else -1
        check_against_queues(log, end, max(queues.max_physical_offset, shut_down_at))
        queues.raise_min_offsets(log.min_offset)  # before anything changes: it reads all queues, and one may refuse
    # From here on the directory changes.
    abort = AbortFile(files, path)
    abort.create()
    checkpoint = StoreCheckpoint(files, path)
    undo.callback(checkpoint.close)
    log.queue.remove_empty_file()
    if found.log_files:
        if end.has_tail or end.offset <= found.log_files[-1].start_offset:
            log.queue.truncate(end.offset)
        if found.was_killed:  # what it left may be in the page cache alone, and counts as flushed from now on
            log.queue.sync_from(start_file(log, found.checkpoint))
        log.start_at(end.offset)
        log.last_store_timestamp = end.last_timestamp or found.checkpoint.physic_msg_timestamp
    if unfinished is not None:
        log.queue.sync_from(unfinished.begin_offset)
        write_sinks(files, path, unfinished.sinks)
    report = _bring_in_step(log, queues, index, found, end, config, progress, confirmation)
    if found.was_killed or report.dispatched_records:
        queues.raise_min_offsets(log.min_offset)
    for queue in queues.queues():
        log.queue_offsets[queue.topic, queue.queue_id] = queue.max_offset
    if not found.was_killed:  # else the checkpoint has not moved: what was dispatched again may be dispatched once more
        queues.flush()
    log.queue.drop_maps()
    return Parts(log, queues, index, report, lock, checkpoint, abort, topics)


def _make(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    found: Found,
    undo: ExitStack,
    bit_maps: BitMaps | None,
) -> tuple[CommitLog, QueueTables, IndexService | None]:
    """Log, queues and index for what was found, checked and not loaded yet, but for the log."""
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
    undo.callback(log.close)
    log.load(found.log_files)
    types = find_queue_types(StoreDirectory(path, files=files))
    check_queue_folders(StoreDirectory(path, files=files), types)
    queues = QueueTables(
        files, path, config.mapped_file_size_consume_queue, config.mapper_file_size_batch_consume_queue,
        config, writable=True, types=types, bit_maps=bit_maps,
    )  # fmt: skip
    undo.callback(queues.close)
    queues.check(found.queues, found.batch_queues)
    index = None
    if config.message_index_enable:
        index = IndexService(files, path, config.max_hash_slot_num, config.max_index_num, writable=True)
        undo.callback(index.close)
        index.check(found.index_files)
        _check_index_geometry(found, config, files)
    return log, queues, index


def _load(
    log: CommitLog,
    queues: QueueTables,
    index: IndexService | None,
    found: Found,
    config: MessageStoreConfig,
    *,
    may_lose_records: bool,
) -> Confirmation | None:
    """Load queues and index as far as they can be trusted; after a kill, what looks how far they are right beyond.

    Nothing looks where records that prove themselves may be cut off all the same: their units would count as right.
    """
    known = found.shutdown.max_offsets if found.shutdown else {}
    begin = start_file(log, found.checkpoint)
    queues.load(
        found.queues, found.batch_queues, begin if found.was_killed else EVERYTHING, {} if found.was_killed else known
    )
    if index is not None:
        index.load(found.index_files, safe_timestamp=found.checkpoint.index_msg_timestamp if found.was_killed else None)
        begin = min(begin, max(index.restart_offset, log.min_offset))
    if found.was_killed and not may_lose_records and not _has_lost_queues(queues, found):
        return Confirmation(queues, index, config, begin)
    return None


def _has_lost_queues(queues: QueueTables, found: Found) -> bool:
    """Whether a folder vanished: then the records from where a start begins need not show it by a gap."""
    known = found.shutdown.max_offsets if found.shutdown else {}
    return not (found.queues or found.batch_queues) or any(queues.find(*key) is None for key in known)


def _bring_in_step(
    log: CommitLog,
    queues: QueueTables,
    index: IndexService | None,
    found: Found,
    end: LogEnd,
    config: MessageStoreConfig,
    progress: Progress,
    confirmation: Confirmation | None,
) -> RecoveryReport:
    """Wipe out of queues and index what cannot be trusted, and dispatch again what they may lack."""
    known = found.shutdown
    shutdown = known if known and known.commit_log_end == end.offset and not found.was_killed else None
    if found.was_killed:
        begin = start_file(log, found.checkpoint)
        queues.cut()
    elif shutdown is None:
        begin = last_used_file(log)
    else:
        begin = end.offset if queues_are_complete(shutdown, queues) else log.min_offset
    if _has_lost_queues(queues, found):
        begin = log.min_offset
    queues.recover_extensions()
    if index is not None:
        if not index.settle(end.offset):
            confirmation = None
        if shutdown is None or shutdown.index_file_count != len(found.index_files):
            begin = min(begin, max(index.restart_offset, log.min_offset))
    if confirmation is not None:
        begin = confirmation.offset
    records = 0
    if begin < log.max_offset:
        begin, records = Redispatch(log, queues, index, config).run(begin, progress)
    return RecoveryReport(found.was_killed, end, begin, records, confirmation.records if confirmation else 0)


def _warm_sync_bytes(config: MessageStoreConfig) -> int | None:
    if not config.warm_maped_file_enable:
        return None
    sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return config.flush_least_pages_when_warm_maped_file * _PAGE_SIZE if sync else 0
