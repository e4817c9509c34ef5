"""Staged batches into the log: all of a batch or nothing, once, whatever is killed in between.

Nothing runs beside it: the store is opened without its threads, so that no queue and no checkpoint knows of a record
before the whole batch is on the disk. The steps, each on the disk before the next: the intent; the records; the
commit (one file replaced, which takes the intent away and names the batch); queues and index; a clean exit. What a kill
between two of them leaves is settled by the next start of the store, whoever makes it:
`reput.store.recovery.sink_intent`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle

from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError, StoreError, StoreLockedError
from reput.files import FileLayer
from reput.files.lock import RecordLock
from reput.formats.paths import CONFIG
from reput.formats.sink_commit import (
    SINK_LOCK,
    SINKS_FILE,
    BrokenBatch,
    SinkBatch,
    SinkCommit,
    SinkIntent,
    Sinks,
    StagedPart,
)
from reput.kernels.records.record_scan import RecordScanner
from reput.log.failed_sync import watched
from reput.log.sink_commits import read_sinks
from reput.progress import Progress, silent
from reput.store.clean_exit import close_cleanly
from reput.store.dispatch.prefetch import prefetched
from reput.store.dispatch.redispatch import walk
from reput.store.log.commit_log import CommitLog
from reput.store.log.flush import LogSync
from reput.store.log.pending import EncodedRows
from reput.store.parts import Parts, WriterParts
from reput.store.recovery.opening import open_for_writing
from reput.store.recovery.sink_intent import with_commit, write_sinks
from reput.store.sinks.staging import StagingFile, read_frames

_LOCK_PAUSE_S = 0.05
#: Appended bytes after which a sync begins, beside the rows that follow: the disk does not wait for the last one.
_SYNC_BYTES = 64 << 20
#: Rows of a batch that is dispatched while the next one is scanned. A batch opens each of its queues once.
_BATCH_ROWS = 131_072

logger = logging.getLogger("reput.store")


def check_store(
    path: str, config: MessageStoreConfig, files: FileLayer, *, lock_timeout_ms: int, progress: Progress = silent
) -> MessageStoreConfig:
    """Prove that a commit will be able to open the store: recover it if it was killed, make it if nothing is.

    Returns the configuration with the sizes of the store's files. `progress` as of `MessageStore.open`.
    Errors as of `MessageStore.open`; StoreLockedError when another process has it for all of `lock_timeout_ms`.
    """
    opened = _open(path, config, files, lock_timeout_ms, progress)
    try:
        close_cleanly(path, opened, files)
    finally:
        opened.close()
    return opened.config


def put_staged(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    parts: Sequence[StagedPart],
    batch: SinkBatch | None = None,
    *,
    lock_timeout_ms: int = 0,
) -> SinkCommit:
    """Append staged records to the store at `path`, part by part, and return what is committed then.

    A batch that the sink has committed already is not appended again: the answer is that commit.

    Args:
        parts: What tasks have staged for a store with this `config`; their files are left where they are.
        batch: Which batch of which sink; None: of none, and written as often as it is put.
        lock_timeout_ms: How long to wait while another process has the store open.

    Raises:
        StoreLockedError: Another process has the store open; nothing was changed.
        StoreError: The batch is older than what the sink has committed, or of another stream; or a staged file is not
            what was written; or as of `MessageStore.open`. Nothing of the batch is in the store.
    """
    opened = _open(path, config, files, lock_timeout_ms)
    begin = opened.log.max_offset
    try:
        putting = _PutStaged(path, config, files, opened.log, opened.lock)
        try:
            commit = putting.put(parts, batch)
        except ReputError:
            if opened.log.failure is None:  # all is as it was
                close_cleanly(path, opened, files)
            raise
        try:
            with watched(path, files):
                _dispatch(opened, config, begin)
                close_cleanly(path, opened, files)
        except ReputError as error:
            logger.warning("%s: committed; the next start brings queues and index in step: %s", path, error)
    finally:
        opened.close()
    return commit


def _open(
    path: str, config: MessageStoreConfig, files: FileLayer, lock_timeout_ms: int, progress: Progress = silent
) -> WriterParts:
    """The parts of a store without its threads."""
    deadline = time.monotonic() + lock_timeout_ms / 1000
    while True:
        try:
            return open_for_writing(path, config, files, progress)
        except StoreLockedError as error:
            if time.monotonic() >= deadline:
                waited = f" (waited {lock_timeout_ms} ms)" if lock_timeout_ms else ""
                raise StoreLockedError(f"{error}{waited}") from error
            time.sleep(_LOCK_PAUSE_S)


def _committed(path: str, sinks: Sinks, batch: SinkBatch) -> SinkCommit | None:
    """The commit, if it is that of this batch; raises StoreError if the batch cannot follow on it."""
    last = sinks.commits.get(batch.sink_id)
    if last is None or last.batch is None:
        return None
    same_query = None in (last.batch.query_id, batch.query_id) or last.batch.query_id == batch.query_id
    if same_query and last.batch.batch_id == batch.batch_id:
        logger.info("%s: sink %s has committed batch %d before", path, batch.sink_id, batch.batch_id)
        return last
    if same_query and last.batch.batch_id < batch.batch_id:
        return None
    if last.batch.query_id is None and batch.query_id is None:
        raise StoreError(
            f"{path}: sink {batch.sink_id!r} has committed batch {last.batch.batch_id}, and now batch {batch.batch_id} "
            f"comes: a batchId counts upwards. Take a larger one; nothing was written"
        )
    raise StoreError(
        f"{path}: sink {batch.sink_id!r} has committed batch {last.batch.batch_id} of query {last.batch.query_id}, and "
        f"now batch {batch.batch_id} of query {batch.query_id} comes: its checkpoint was deleted or is another "
        "query's, so nobody knows which of its messages are in the store already. Give the stream its checkpoint back, "
        "or another sinkId with which it begins anew; nothing was written"
    )


class _PutStaged:
    """One batch on its way into an open store."""

    def __init__(
        self, path: str, config: MessageStoreConfig, files: FileLayer, log: CommitLog, lock: RecordLock
    ) -> None:
        self._path = path
        self._config = config
        self._files = files
        self._log = log
        self._lock = lock
        self._sinks = read_sinks(files, path)

    def put(self, parts: Sequence[StagedPart], batch: SinkBatch | None) -> SinkCommit:
        """Append all parts as one, and commit them; unless that was done before."""
        if batch is not None:
            done = _committed(self._path, self._sinks, batch)
            if done is not None:
                return done
            broken = self._sinks.broken.get(batch.sink_id)
            if broken is not None and broken.intent.batch == batch:
                parts = self._rest(broken)
        begin = self._log.max_offset
        if not parts:
            return self._commit(SinkCommit(batch, begin, begin, 0, 0))
        self._check_files(parts)
        last = self._log.last_store_timestamp
        now = max(int(time.time() * 1000), last + 1)  # a time of its own, by which a start tells its records
        intent = SinkIntent(batch, begin, now, last, self._config.enabled_append_prop_crc, tuple(parts))
        self._lock.write(SINK_LOCK)
        self._sinks = replace(self._sinks, begun=self._sinks.begun + 1)
        write_sinks(self._files, self._path, replace(self._sinks, intent=intent))
        try:
            end = self._append(intent.parts, now)
        except ReputError:
            self._take_back(intent)
            raise
        return self._commit(SinkCommit(batch, begin, end, intent.rows, now))

    def _rest(self, broken: BrokenBatch) -> list[StagedPart]:
        """The missing rest of a broken batch, staged anew from the files that were staged when it broke."""
        missing = self._missing(broken.intent.parts)
        if missing:
            assert broken.intent.batch is not None, "a batch without a sink is not reported as broken"
            sink_id = broken.intent.batch.sink_id
            raise StoreError(
                f"{self._path}: batch {broken.intent.batch.batch_id} of sink {sink_id!r} was cut short by a kill. Its "
                f"first {broken.rows} of {broken.intent.rows} messages have been served by another program, so only "
                f"the rest may be written; but {len(missing)} of {len(broken.intent.parts)} staged files are gone, "
                f"{missing[0]} for one. Put them back from a copy; or take {sink_id!r} out of the member "
                f'"broken", and the member "crc32" out, of {CONFIG}/{SINKS_FILE} while nobody writes, and the batch is '
                f"written whole, its first "
                f"{broken.rows} messages a second time; nothing was written"
            )
        path, skip = f"{broken.intent.parts[0].path}.rest", broken.rows
        if self._files.exists(path):
            self._files.unlink(path)
        with StagingFile(self._files, path, self._config) as rest:
            for part in broken.intent.parts:
                for frame in read_frames(self._files, part):
                    skipped = min(skip, frame.queues.size)
                    skip -= skipped
                    if skipped < frame.queues.size:
                        rest.write_frame(frame.after(skipped))
            return [rest.part] if rest.part is not None else []

    def _missing(self, parts: Sequence[StagedPart]) -> list[str]:
        return [part.path for part in parts if not self._files.exists(part.path)]

    def _check_files(self, parts: Sequence[StagedPart]) -> None:
        missing = self._missing(parts)
        if missing:
            raise StoreError(
                f"{self._path}: {len(missing)} of {len(parts)} files of staged records are gone, {missing[0]} for one: "
                "another job of the same sink has removed them, or the machine that commits does not see the folder "
                "(stagingPath) that the tasks write to; nothing was written"
            )

    def _append(self, parts: Sequence[StagedPart], now: int) -> int:
        """Append and sync all records; returns where the last one ends."""
        log, sync = self._log, LogSync(self._log)
        with ThreadPoolExecutor(1, thread_name_prefix="reput-sink-sync") as pool:  # of one: no two syncs at a time
            syncing, synced = pool.submit(sync.run), log.max_offset
            for frame in prefetched(frame for part in parts for frame in read_frames(self._files, part)):
                queues = log.number_queues(list(frame.queue_keys))[frame.queues]
                rows, row = EncodedRows(frame.data, frame.positions, queues), 0
                while row < queues.size:
                    row = log.append_rows(rows, row, store_timestamp=now).end_row
                if log.max_offset - synced >= _SYNC_BYTES:
                    syncing.result()
                    syncing, synced = pool.submit(sync.run), log.max_offset
            syncing.result()
            return pool.submit(sync.run).result()

    def _take_back(self, intent: SinkIntent) -> None:
        """Cut the log where it was; while that fails the intent stands, and the next start cuts it."""
        try:
            self._log.queue.remove_ahead()
            self._log.queue.truncate(intent.begin_offset)
            self._log.last_store_timestamp = intent.last_store_timestamp
            write_sinks(self._files, self._path, self._sinks)
        except ReputError as error:
            self._log.failure = error
            logger.warning("%s: a batch that failed is taken back by the next start: %s", self._path, error)

    def _commit(self, commit: SinkCommit) -> SinkCommit:
        try:
            write_sinks(self._files, self._path, with_commit(self._sinks, commit))
        except ReputError as error:
            self._log.failure = error
            raise StoreError(
                f"{error}; the batch is in the log, whole, and the next start of the store commits it"
            ) from error
        return commit


def _dispatch(parts: Parts, config: MessageStoreConfig, begin: int) -> None:
    """Bring queues and index in step with the records from an offset on."""
    log, index_tags = parts.log, config.dispatch_rules.indexes_tags
    scanners = cycle(
        [RecordScanner(_BATCH_ROWS, delays_ms=config.delay_levels_ms, index_tags=index_tags) for _ in range(2)]
    )
    for batch in prefetched(walk(log, lambda: next(scanners), begin, log.max_offset)):
        parts.queues.dispatch(batch.columns)
        if parts.index is not None:
            parts.index.dispatch(batch.columns)
        batch.release()
