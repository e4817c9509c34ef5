"""Sink of a replay: batches are put as a whole or not at all, and numbered by the source's commit log offset."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.files import FileLayer
from reput.formats.sink_commit import SinkBatch, StagedPart
from reput.log.sink_commits import read_sinks
from reput.progress import Progress
from reput.store.sinks.staging import StagingFile
from reput.store.sinks.staging_folder import check_name
from reput.store.sinks.store_sink import StoreSink


class ReplaySink(StoreSink):
    """Writer of a replay's batches into the target; a context manager that removes staged files.

    Args:
        path: The target's directory.
        config: Configuration of the target; None: its defaults, SYNC_FLUSH among them.
        sink_id: Name under which the target records how far the replay is.
        identity: What is replayed, as a text.
        lock_timeout_ms: How long to wait while another process has the target open.
        progress: As for `MessageStore.open`.
        files: The file layer.

    Attributes:
        next_offset: The source's commit log offset after the last batch in the target; None if there is no batch.

    Raises ConfigError if something else was replayed under `sink_id`, StoreLockedError if another process
    replays under it, and what `MessageStore.open` raises.
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
        self._sink_id, self._identity = check_name(sink_id), identity
        config = config or MessageStoreConfig()
        super().__init__(path, config, sink_id, "replay", lock_timeout_ms, progress, files)
        try:
            self.next_offset = self._recover()
        except BaseException:
            self._lock.release()
            raise

    def _recover(self) -> int | None:
        """Find the source's offset at which to go on, after completing a batch that a kill cut short."""
        self._clear()
        sinks = read_sinks(self._files, self._path)
        broken, last = sinks.broken.get(self._sink_id), sinks.commits.get(self._sink_id)
        batches = [one for one in (broken.intent.batch if broken else None, last.batch if last else None) if one]
        if any(batch.query_id != self._identity for batch in batches):
            raise ConfigError(
                f"{self._path}: under the name of this replay something else was replayed: other topics, times, or "
                "another source; give another name to replay all of it"
            )
        if broken is not None and batches:
            self._commit([], batches[0].batch_id)  # its remaining records are still staged
        return batches[0].batch_id if batches else None

    def put(self, rows: pa.RecordBatch, end_offset: int) -> None:
        """Put one batch; when this returns, the batch is on the disk, and in queues and index.

        Raises MessageIllegalError for a row that RocketMQ would refuse; then nothing is put.
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
        self._put(parts, SinkBatch(self._sink_id, end_offset, self._identity))
