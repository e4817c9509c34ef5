"""The parts of an open store: log, queues, index, and those that a writer has besides."""

from __future__ import annotations

from dataclasses import dataclass

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreStateError
from reput.files.lock import RecordLock
from reput.store.checkpoint import AbortFile, StoreCheckpoint
from reput.store.config_files import StoreTopics
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables
from reput.store.recovery_report import RecoveryReport


@dataclass(frozen=True, slots=True)
class Loaded:
    """Log, queues and index of a directory that is being opened."""

    log: CommitLog
    queues: QueueTables
    index: IndexService | None


@dataclass(slots=True)
class Parts:
    """The parts that every open store has."""

    log: CommitLog
    queues: QueueTables
    index: IndexService | None
    report: RecoveryReport

    def close(self) -> None:
        """Close all files."""
        if self.index is not None:
            self.index.close()
        self.queues.close()
        self.log.close()


@dataclass(slots=True)
class WriterParts(Parts):
    """The parts of a store that is open for writing, and its configuration with the sizes that its files have."""

    config: MessageStoreConfig
    lock: RecordLock
    checkpoint: StoreCheckpoint
    abort: AbortFile
    topics: StoreTopics

    def check_alone(self) -> None:
        """Check that no other process has the store open for writing, as one may once the file `lock` was removed.

        Raises StoreStateError: `lock` or `abort` are another process's.
        """
        if not (self.lock.is_in_place() and self.abort.is_in_place()):
            raise StoreStateError(
                f"{self.lock.path}: expected this process's own file, found another process's: the file was removed or "
                "replaced while the store was open, and two processes have written; stop both, copy the store, and see "
                "what `reput audit` says of it"
            )

    def close(self) -> None:
        """Close all files, and release the lock last, whatever fails before."""
        try:
            self.checkpoint.close()
            Parts.close(self)  # no super(): a dataclass with slots is another class than the one of this body
        finally:
            self.lock.release()
