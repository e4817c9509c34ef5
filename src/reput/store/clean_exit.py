"""Clean exit of a store: all is synced, `reputShutdown.json` says how far it is, and the `abort` marker goes."""

from __future__ import annotations

from typing import Any

from reput.files import FileLayer
from reput.formats.metadata import Topics
from reput.formats.paths import CONFIG
from reput.formats.shutdown import SHUTDOWN_FILE, Shutdown, as_json, encode_shutdown, recorded_topics
from reput.log.failed_sync import watched
from reput.log.metadata import read_shutdown
from reput.store.parts import WriterParts
from reput.store.queues.tables import QueueTables

#: End of the log in `reputShutdown.json` of a store that was not closed when the file was written: no log ends there.
_NOT_CLOSED = -1


def close_cleanly(path: str, parts: WriterParts, files: FileLayer, *, is_dispatched: bool = True) -> None:
    """Sync queues, index and checkpoint, write `reputShutdown.json`, and remove the `abort` marker.

    The next start then has nothing to do. If another process has not dispatched all of the log (`is_dispatched` is
    false), `reputShutdown.json` has the queues' next offsets only, and the next start scans the last log file.
    """
    with watched(path, files):
        _close_cleanly(path, parts, files, is_dispatched=is_dispatched)


def _close_cleanly(path: str, parts: WriterParts, files: FileLayer, *, is_dispatched: bool) -> None:
    parts.check_alone()
    logics = parts.queues.flush()
    index_timestamp = 0
    if parts.index is not None:
        parts.index.flush()
        index_timestamp = parts.index.flushed_timestamp
    parts.checkpoint.flush(parts.log.last_store_timestamp, logics, index_timestamp)
    count = len(parts.index.index_files) if parts.index is not None else -1  # no number of files: it lacks something
    files.make_directories(f"{path}/{CONFIG}")
    shutdown_path = f"{path}/{CONFIG}/{SHUTDOWN_FILE}"
    if is_dispatched:
        topics = _record_topics(path, parts.topics.topics, files)
        offsets, of_batch = _next_offsets(parts.queues), _batch_topics(parts.queues)
        shutdown = Shutdown(parts.log.max_offset, count, offsets, topics, of_batch)
        files.write_atomically(shutdown_path, encode_shutdown(shutdown))
    elif files.exists(shutdown_path):
        record_next_offsets(path, parts.queues, files)
    parts.abort.remove()


def record_next_offsets(path: str, queues: QueueTables, files: FileLayer) -> None:
    """Write the queues' next offsets to `reputShutdown.json` durably, as of a store that was not closed.

    So an emptied queue goes on where it was, if its files are lost (`reput.log.next_offsets`).
    """
    shutdown_path = f"{path}/{CONFIG}/{SHUTDOWN_FILE}"
    before = read_shutdown(path, files)
    topics = before.topics if before is not None else None
    files.make_directories(f"{path}/{CONFIG}")
    shutdown = Shutdown(_NOT_CLOSED, -1, _next_offsets(queues), topics, _batch_topics(queues))
    files.write_atomically(shutdown_path, encode_shutdown(shutdown))


def _next_offsets(queues: QueueTables) -> dict[tuple[str, int], int]:
    return {(queue.topic, queue.queue_id): queue.max_offset for queue in queues.queues()}


def _batch_topics(queues: QueueTables) -> tuple[str, ...]:
    return tuple(sorted({queue.topic for queue in queues.batch.queues() if queue.max_offset}))


def _record_topics(path: str, topics: Topics, files: FileLayer) -> Any:
    """The topics for `reputShutdown.json`; None if there are none.

    The first record of a data version stays: `topics.json` may have been changed since without a new version.
    """
    before = read_shutdown(path, files)
    topics = recorded_topics(before, topics.data_version) or topics
    return as_json(topics) if topics.topic_config_table else None
