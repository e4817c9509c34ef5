"""The target of a replay: batches that are put whole or not at all, and numbered by where the source goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import pyarrow as pa

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ConfigError
from reput.files import FileLayer
from reput.formats.sink_commit import STAGING, SinkBatch, StagedPart
from reput.log.sink_commits import read_sinks
from reput.store.dispatch.redispatch import Progress
from reput.store.sinks.commit import check_store, put_staged
from reput.store.sinks.staging import StagingFile
from reput.store.sinks.staging_folder import check_name, clear, lock_folder, sweep


class ReplaySink:
    """Puts batches into the target; a context manager that removes what was staged.

    Args:
        path: the target.
        config: of the target; None: RocketMQ's defaults with SYNC_FLUSH.
        sink_id: the name under which the target remembers how far the replay is.
        identity: what is replayed, as a text.
        lock_timeout_ms: how long to wait while another process has the target open.
        progress: as of `MessageStore.open`.

    Attributes:
        next_offset: the source's commit log offset behind the last batch that is in the target; None for none.

    Raises ConfigError where something else was replayed under the name, StoreLockedError where another process replays
    under it, and what `MessageStore.open` raises.
    """

    def __init__(
        self,
        path: str,
        config: MessageStoreConfig | None,
        sink_id: str,
        identity: str,
        lock_timeout_ms: int,
        progress: Progress,
        files: FileLayer,
    ) -> None:
        self._path, self._files = path, files
        self._config = config or MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        self._sink_id, self._identity = check_name(sink_id), identity
        self._lock_timeout_ms = lock_timeout_ms
        check_store(path, self._config, files, lock_timeout_ms=lock_timeout_ms, progress=progress)
        staging = os.path.join(path, STAGING)
        sweep(files, staging, read_sinks(files, path))
        self._folder, self._lock = lock_folder(files, staging, sink_id, "replay")
        try:
            self.next_offset = self._recover()
        except BaseException:
            self._lock.release()
            raise

    def _recover(self) -> int | None:
        """Where the source goes on; a batch that was cut short is put first."""
        self._clear()
        sinks = read_sinks(self._files, self._path)
        broken, last = sinks.broken.get(self._sink_id), sinks.commits.get(self._sink_id)
        known = [one for one in (broken.intent.batch if broken else None, last.batch if last else None) if one]
        if any(batch.query_id != self._identity for batch in known):
            raise ConfigError(
                f"{self._path}: under the name of this replay something else was replayed: other topics, times, or "
                "another source; give another name, and all of it is put"
            )
        if broken is not None and known:
            self._commit([], known[0].batch_id)  # the rest of it is staged still
        return known[0].batch_id if known else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._clear()
        finally:
            self._lock.release()

    def put(self, rows: pa.RecordBatch, end_offset: int) -> None:
        """Put one batch; when this returns it is on the disk, and in queues and index.

        Raises MessageIllegalError for a row that RocketMQ would refuse; nothing is put then.
        """
        path = os.path.join(self._folder, "batch")
        if self._files.exists(path):
            self._files.unlink(path)
        with StagingFile(self._files, path, self._config) as staging:
            staging.write(staging.check(rows, 0))
            parts = [staging.part] if staging.part is not None else []
        self._commit(parts, end_offset)
        self.next_offset = end_offset

    def _commit(self, parts: Sequence[StagedPart], end_offset: int) -> None:
        batch = SinkBatch(self._sink_id, end_offset, self._identity)
        put_staged(self._path, self._config, self._files, parts, batch, lock_timeout_ms=self._lock_timeout_ms)

    def _clear(self) -> None:
        clear(self._files, self._folder, read_sinks(self._files, self._path))
