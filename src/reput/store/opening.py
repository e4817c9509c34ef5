"""Opening a store directory: what is checked, in which order it is changed, and what a clean close leaves behind."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import CorruptRecordError, StoreFormatError
from reput.files import FileLayer
from reput.files.lock import RecordLock
from reput.formats.checkpoint import Checkpoint
from reput.formats.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK
from reput.formats.shutdown import SHUTDOWN_FILE, Shutdown, decode_shutdown, encode_shutdown
from reput.log.directory import IndexFilePath, LogFile, QueueFiles, StoreDirectory, named_folders, usual_file_size
from reput.log.index_geometry import index_geometry
from reput.log.queue_types import QueueTypes, check_queue_folders, find_queue_types
from reput.log.sink_commits import SinkWatch, read_sinks
from reput.store.checkpoint import AbortFile, StoreCheckpoint
from reput.store.commit_log import CommitLog
from reput.store.config_files import TopicConfigManager
from reput.store.index_service import IndexService
from reput.store.queue_tables import QueueTables
from reput.store.recovery import (
    LogEnd,
    Progress,
    RecoveryReport,
    check_against_queues,
    find_log_end,
    queues_are_complete,
    start_file,
)
from reput.store.redispatch import Confirmation, Redispatch
from reput.store.sink_commits import find_unfinished, write_sinks

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps

_NO_CHECKPOINT = Checkpoint(0, 0, 0)
_EVERYTHING = (1 << 63) - 1
_PAGE_SIZE = 4096


@dataclass(slots=True)
class Parts:
    """The parts of an open store; a read-only one has no lock, checkpoint, abort marker, and topics to change."""

    log: CommitLog
    queues: QueueTables
    index: IndexService | None
    report: RecoveryReport
    lock: RecordLock | None = None
    checkpoint: StoreCheckpoint | None = None
    abort: AbortFile | None = None
    topics: TopicConfigManager | None = None

    def close(self) -> None:
        """Close all files and give the lock back, last and whatever fails before."""
        try:
            if self.index is not None:
                self.index.close()
            self.queues.close()
            if self.checkpoint is not None:
                self.checkpoint.close()
            self.log.close()
        finally:
            if self.lock is not None:
                self.lock.release()


@dataclass(slots=True)
class _Found:
    """What lies in the directory, before anything is changed."""

    log_files: list[LogFile] = field(default_factory=list)
    queues: list[QueueFiles] = field(default_factory=list)
    batch_queues: list[QueueFiles] = field(default_factory=list)
    index_files: list[IndexFilePath] = field(default_factory=list)
    checkpoint: Checkpoint = _NO_CHECKPOINT
    was_killed: bool = False
    #: Of the last clean exit; after a kill it says still which queues there were.
    shutdown: Shutdown | None = None


def _commit_log_folders(path: str, config: MessageStoreConfig) -> tuple[str, ...]:
    """The folders that get new files of the log, sorted as `MultiPathMappedFileQueue` does."""
    if not config.store_path_commit_log:
        return (os.path.join(path, COMMIT_LOG),)
    read_only = named_folders(config.read_only_commit_log_store_paths or "")
    return tuple(sorted(set(named_folders(config.store_path_commit_log)) - set(read_only)))


def _elsewhere(config: MessageStoreConfig) -> tuple[str, ...]:
    """The folders of the commit log that the configuration names, those included that get no new files."""
    if not config.store_path_commit_log:
        return ()
    return named_folders(f"{config.store_path_commit_log},{config.read_only_commit_log_store_paths or ''}")


def _look(files: FileLayer, path: str, config: MessageStoreConfig, *, writable: bool = True) -> _Found:
    """List the directory; raises StoreFormatError where it is no store, or none that can be opened."""
    elsewhere = _elsewhere(config)
    is_there = len(elsewhere) > 1 or (elsewhere and files.exists(elsewhere[0]))
    directory = StoreDirectory(path, commit_log_path=",".join(elsewhere) if is_there else None, files=files)
    found = _Found(
        [] if elsewhere and not is_there else directory.log_files(),
        directory.queues(),
        directory.batch_queues(),
        directory.index_files(),
        directory.checkpoint() or _NO_CHECKPOINT,
        directory.was_killed,
    )
    for part in directory.foreign_parts():
        if part.hides_log or (part.hides_queues and (writable or not found.queues)):
            raise StoreFormatError(str(part))
    if (found.queues or found.batch_queues) and not found.log_files:
        raise StoreFormatError(
            f"{path}: consume queues, but no commit log in {', '.join(directory.commit_log_folders)}; give the "
            f"folder that has it as store_path_commit_log, or move {CONSUME_QUEUE} and {INDEX} away to begin anew"
        )
    shutdown_path = os.path.join(path, CONFIG, SHUTDOWN_FILE)
    if files.exists(shutdown_path):
        found.shutdown = decode_shutdown(files.read_bytes(shutdown_path))
    return found


def _is_fresh(files: FileLayer, path: str) -> bool:
    """Whether a store may be made here: nothing is there, or an empty folder."""
    return not files.exists(path) or (files.is_directory(path) and not files.list_directory(path))


def _find_end(
    log: CommitLog,
    last_record: int,
    found: _Found,
    config: MessageStoreConfig,
    progress: Progress,
    confirmation: Confirmation | None = None,
) -> LogEnd:
    """Where the log ends, by the shortest way that proves it.

    `last_record` is the offset of the last record that a queue knows, -1 for none: after a clean exit of this store no
    more than that one and what has no unit (prepared and rolled back messages) is read. After a kill `confirmation`
    takes what is read, and what lies between its own beginning and there.
    """
    checkpoint = found.checkpoint
    if found.was_killed:
        begin = start_file(log, checkpoint)
        if confirmation is not None:
            confirmation.walk(log, begin)
    elif found.shutdown is not None and log.queue.find(last_record) is not None:
        begin = last_record
    else:
        begin = _last_used_file(log)
    try:
        return find_log_end(
            log, begin, checkpoint, config, was_killed=found.was_killed, progress=progress, confirmation=confirmation
        )
    finally:
        if confirmation is not None:
            confirmation.finish()


def _last_used_file(log: CommitLog) -> int:
    """Offset of the last file that is not all zeros; files made ahead have nothing in them."""
    for file in reversed(log.queue.mapped_files):
        if file.file.read(0, 8) != bytes(8):
            return file.start_offset
    return log.min_offset


def open_for_writing(
    path: str, config: MessageStoreConfig, files: FileLayer, progress: Progress, bit_maps: BitMaps | None = None
) -> Parts:
    """Lock, check, recover; see the errors of `MessageStore.open`. The store's threads are not started."""
    folders = _elsewhere(config) or _commit_log_folders(path, config)
    if _is_fresh(files, path):
        for folder in (*folders, f"{path}/{CONSUME_QUEUE}", f"{path}/{CONFIG}"):
            files.make_directories(folder)
    else:
        _look(files, path, config)  # no lock file is left in a folder that is no store
        for folder in folders:
            files.make_directories(folder)
    with ExitStack() as undo:
        lock = files.lock(f"{path}/{LOCK}")
        undo.callback(lock.release)
        parts = _recover(path, config, files, progress, lock, undo, bit_maps)
        undo.pop_all()
    return parts


def _check_index_geometry(found: _Found, config: MessageStoreConfig, files: FileLayer) -> None:
    """Many pairs of numbers make one length; a wrong pair would spoil the file. After a kill it may prove nothing."""
    if found.was_killed:
        return
    slots, entries = index_geometry(found.index_files, config.max_hash_slot_num, config.max_index_num, files)
    if (slots, entries) != (config.max_hash_slot_num, config.max_index_num):
        raise StoreFormatError(
            f"{found.index_files[0].path}: made with {slots} hash slots and {entries} entries, but maxHashSlotNum is "
            f"{config.max_hash_slot_num} and maxIndexNum {config.max_index_num}, which make the same length; give "
            f"maxHashSlotNum={slots} and maxIndexNum={entries}"
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
    found = _look(files, path, config)
    log = CommitLog(
        files,
        _commit_log_folders(path, config),
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
    has_intent = read_sinks(files, path).intent is not None
    confirmation = _load(log, queues, index, found, config, may_lose_records=has_intent)
    end = _find_end(log, queues.last_record_offset, found, config, progress, confirmation)
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


def _load(
    log: CommitLog,
    queues: QueueTables,
    index: IndexService | None,
    found: _Found,
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
        found.queues, found.batch_queues, begin if found.was_killed else _EVERYTHING, {} if found.was_killed else known
    )
    if index is not None:
        index.load(found.index_files, safe_timestamp=found.checkpoint.index_msg_timestamp if found.was_killed else None)
        begin = min(begin, max(index.restart_offset, log.min_offset))
    if found.was_killed and not may_lose_records and not _has_lost_queues(queues, found):
        return Confirmation(queues, index, config, begin)
    return None


def _has_lost_queues(queues: QueueTables, found: _Found) -> bool:
    """Whether a folder vanished: then the records from where a start begins need not show it by a gap."""
    known = found.shutdown.max_offsets if found.shutdown else {}
    return not (found.queues or found.batch_queues) or any(queues.find(*key) is None for key in known)


def _bring_in_step(
    log: CommitLog,
    queues: QueueTables,
    index: IndexService | None,
    found: _Found,
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
        begin = _last_used_file(log)
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


def _find_end_or_damage(
    log: CommitLog,
    queues: QueueTables,
    found: _Found,
    config: MessageStoreConfig,
    progress: Progress,
    seen_record: int,
) -> tuple[LogEnd, CorruptRecordError | None]:
    """Where the log ends for a reader; damage is told, and what lies before it can be read all the same."""
    try:
        end = _find_end_from(log, seen_record, found, config, progress) or _find_end(log, -1, found, config, progress)
        if not found.was_killed:
            queues.load(found.queues, found.batch_queues, _EVERYTHING)
            check_against_queues(log, end, queues.max_physical_offset)
        return end, None
    except CorruptRecordError as error:
        return LogEnd(error.offset, 0, has_tail=True, scanned_bytes=0), error


def _find_end_from(
    log: CommitLog, seen_record: int, found: _Found, config: MessageStoreConfig, progress: Progress
) -> LogEnd | None:
    """Where the log ends, from a record that was there before; None where it is not there any more."""
    if log.queue.find(seen_record) is None:
        return None
    end = find_log_end(
        log, seen_record, found.checkpoint,
        config, was_killed=found.was_killed, progress=progress,
    )  # fmt: skip
    return end if end.offset > seen_record else None


def open_for_reading(
    path: str, config: MessageStoreConfig, files: FileLayer, progress: Progress, seen_record: int = -1
) -> Parts:
    """Take no lock and change no byte: what the queues show of a live, killed or cleanly closed store, as of now.

    The files' own sizes count, not the configured ones. `seen_record` is the commit log offset of a record that an
    earlier look saw: the log is read on from there.
    """
    watch = SinkWatch(files, path)
    found = _look(files, path, config, writable=False)
    file_size = found.log_files[0].size if found.log_files else config.mapped_file_size_commit_log
    folders = _commit_log_folders(path, config)
    log = CommitLog(files, folders, file_size, writable=False, read_ahead=config.data_read_ahead_enable)
    log.load(found.log_files)
    unit_file_size = usual_file_size(found.queues) if found.queues else config.mapped_file_size_consume_queue
    batch = found.batch_queues
    batch_file_size = batch[0].file_size if batch else config.mapper_file_size_batch_consume_queue
    queues = QueueTables(files, path, unit_file_size, batch_file_size, config, writable=False, types=QueueTypes())
    queues.check(found.queues, batch)
    end, damage = _find_end_or_damage(log, queues, found, config, progress, seen_record)
    committed = watch.committed(end.offset)
    if committed is None:  # what was found may be gone already
        queues.close()
        log.close()
        return open_for_reading(path, config, files, progress, seen_record)
    end = end._replace(offset=committed)
    log.start_at(end.offset)
    log.last_store_timestamp = end.last_timestamp or found.checkpoint.physic_msg_timestamp
    queues.load(found.queues, found.batch_queues, end.offset)
    queues.raise_min_offsets(log.min_offset)
    log.queue.drop_maps()
    index = None
    if found.index_files:
        slots, capacity = index_geometry(found.index_files, config.max_hash_slot_num, config.max_index_num, files)
        index = IndexService(files, path, slots, capacity, writable=False)
        index.check(found.index_files)
        index.load(found.index_files, safe_timestamp=None)
    return Parts(log, queues, index, RecoveryReport(found.was_killed, end, end.offset, 0, damage=damage))


def close_cleanly(path: str, parts: Parts, files: FileLayer) -> None:
    """Sync everything derived, say how far it is, and take the marker away: the next start has nothing to do."""
    assert parts.checkpoint is not None
    assert parts.abort is not None
    logics = parts.queues.flush()
    index_timestamp = 0
    if parts.index is not None:
        parts.index.flush()
        index_timestamp = parts.index.flushed_timestamp
    parts.checkpoint.flush(parts.log.last_store_timestamp, logics, index_timestamp)
    offsets = {(queue.topic, queue.queue_id): queue.max_offset for queue in parts.queues.queues() if queue.max_offset}
    count = len(parts.index.index_files) if parts.index is not None else -1  # no number of files: it lacks something
    files.make_directories(f"{path}/{CONFIG}")
    files.write_atomically(
        f"{path}/{CONFIG}/{SHUTDOWN_FILE}", encode_shutdown(Shutdown(parts.log.max_offset, count, offsets))
    )
    parts.abort.remove()
