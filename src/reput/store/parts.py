"""The parts of an open store, and what a clean close leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reput.files import FileLayer
from reput.files.lock import RecordLock
from reput.formats.metadata import Topics
from reput.formats.paths import CONFIG
from reput.formats.shutdown import SHUTDOWN_FILE, Shutdown, as_json, decode_shutdown, encode_shutdown, recorded_topics
from reput.log.failed_sync import watched
from reput.store.checkpoint import AbortFile, StoreCheckpoint
from reput.store.config_files import TopicConfigManager
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables
from reput.store.recovery_report import RecoveryReport


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


def close_cleanly(path: str, parts: Parts, files: FileLayer, *, is_dispatched: bool = True) -> None:
    """Sync everything derived, say how far it is, and take the marker away: the next start has nothing to do.

    Where another process has not dispatched all of the log, the next start looks for itself.
    """
    with watched(path, files):
        _close_cleanly(path, parts, files, is_dispatched=is_dispatched)


def _close_cleanly(path: str, parts: Parts, files: FileLayer, *, is_dispatched: bool) -> None:
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
    shutdown_path = f"{path}/{CONFIG}/{SHUTDOWN_FILE}"
    if is_dispatched:
        topics = None if parts.topics is None else _record_topics(shutdown_path, parts.topics.topics, files)
        files.write_atomically(shutdown_path, encode_shutdown(Shutdown(parts.log.max_offset, count, offsets, topics)))
    elif files.exists(shutdown_path):
        files.unlink(shutdown_path)
    parts.abort.remove()


def _record_topics(shutdown_path: str, topics: Topics, files: FileLayer) -> Any:
    """What the file shall say of topics; None where there are none.

    Of one data version that stays which was said of it first: what this start has read may have been changed since.
    """
    before = decode_shutdown(files.read_bytes(shutdown_path)) if files.exists(shutdown_path) else None
    topics = recorded_topics(before, topics.data_version) or topics
    return as_json(topics) if topics.topic_config_table else None
