"""Background work of an open store: sync the queues, and move the checkpoint."""

from __future__ import annotations

from threading import Event
from time import monotonic

from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError, StoreError, StoreFullError
from reput.store.log.flush import LogSync
from reput.store.parts import WriterParts
from reput.store.repeated_failure import RepeatedFailure
from reput.store.service_thread import ServiceThread
from reput.store.statistics import StoreStatsService


class FlushConsumeQueueService:
    """RocketMQ's `FlushConsumeQueueService`, with the checkpoint.

    Every `flushIntervalConsumeQueue` it syncs the queues with at least `flushConsumeQueueLeastPages` unsynced pages;
    every `flushConsumeQueueThoroughInterval` it syncs all queues. An error ends all puts: it is kept in
    `CommitLog.failure`.
    """

    def __init__(
        self, path: str, parts: WriterParts, sync: LogSync, config: MessageStoreConfig, stats: StoreStatsService
    ) -> None:
        self._path = path
        self._parts = parts
        self._sync = sync
        self._stats = stats
        self._interval_s = config.flush_interval_consume_queue / 1000
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_s = config.flush_consume_queue_thorough_interval / 1000
        self._unwritten = RepeatedFailure(path, "the checkpoint was not written", "the checkpoint is written again")
        self._stop = Event()
        self._thread = ServiceThread(self._run, "reput-flush-queues")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread; the close of the store syncs what is still unsynced."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        thorough_at = monotonic() + self._thorough_s
        while not self._stop.wait(self._interval_s) and self._parts.log.failure is None:
            self._stats.sample()
            thorough = monotonic() >= thorough_at
            if self.run_once(thorough=thorough) and thorough:
                thorough_at = monotonic() + self._thorough_s

    def run_once(self, *, thorough: bool) -> bool:
        """Do one round; returns whether all was done. On a full disk it was not: a later round does it."""
        log, queues = self._parts.log, self._parts.queues
        try:
            logics = 0
            if thorough:
                logics = queues.flush()
            else:
                queues.flush(self._least_pages)
            if log.failure is None:  # else another thread's sync may have failed, unseen by the syncs here
                self._save_checkpoint(logics)
        except StoreFullError as error:
            self._unwritten.tell(error)
            return False
        except ReputError as error:
            log.failure = error
            return False
        except Exception as error:
            log.failure = StoreError(f"{self._path}: the thread that syncs the queues stopped: {error!r}")
            raise
        self._unwritten.tell(None)
        return True

    def _save_checkpoint(self, logics: int) -> None:
        self._parts.check_alone()
        index_timestamp = 0
        if self._parts.index is not None:
            self._parts.index.flush_full_files()
            index_timestamp = self._parts.index.flushed_timestamp
        self._parts.checkpoint.flush(self._sync.safe_timestamp, logics, index_timestamp)
