"""StoreSink: what an import and a replay have in common, which put numbered batches into a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

from reput.config.message_store import MessageStoreConfig
from reput.files import FileLayer
from reput.formats.sink_commit import STAGING, SinkBatch, SinkCommit, StagedPart
from reput.log.sink_commits import read_sinks
from reput.progress import Progress
from reput.store.sinks.commit import check_store, put_staged
from reput.store.sinks.staging_folder import clear, lock_folder, sweep


class StoreSink:
    """A folder for staged records inside of a store, locked; a context manager that removes them.

    Args:
        path: The store directory.
        config: Configuration of the store.
        name: Of the folder.
        job: What holds the folder's lock, for the error of another one.
        lock_timeout_ms: How long to wait while another process has the store open.
        progress: As for `MessageStore.open`.
        files: The file layer.

    Raises what `MessageStore.open` raises; StoreLockedError also if another process has the folder.
    """

    def __init__(
        self,
        path: str,
        config: MessageStoreConfig,
        name: str,
        job: str,
        lock_timeout_ms: int,
        progress: Progress,
        files: FileLayer,
    ) -> None:
        self._path, self._files, self._lock_timeout_ms = path, files, lock_timeout_ms
        self._config = check_store(path, config, files, lock_timeout_ms=lock_timeout_ms, progress=progress)
        staging = os.path.join(path, STAGING)
        sweep(files, staging, read_sinks(files, path))
        self._folder, self._lock = lock_folder(files, staging, name, job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._clear()
        finally:
            self._lock.release()

    def _clear(self) -> None:
        clear(self._files, self._folder, read_sinks(self._files, self._path))

    def _put(self, parts: Sequence[StagedPart], batch: SinkBatch) -> SinkCommit:
        """Commit staged records as a batch, which may be the last one again."""
        return put_staged(self._path, self._config, self._files, parts, batch, lock_timeout_ms=self._lock_timeout_ms)
