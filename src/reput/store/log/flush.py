"""Flush policies of the log: syncs, and ASYNC_FLUSH, which syncs by interval. SYNC_FLUSH is `group_commit`.

A failed sync is final. It is not known which pages are on the disk, and a second try may succeed without them. So each
waiting put gets the error, and no put is accepted until a start of the store has recovered what is on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Lock
from typing import Protocol

from reput.config.message_store import OS_PAGE_SIZE, MessageStoreConfig
from reput.errors import StorePoisonedError
from reput.store.log.commit_log import CommitLog
from reput.store.results import PutMessageStatus
from reput.store.service_thread import ServiceThread

#: Called with a status once the bytes are as safe as promised, or with the error after which they never will be.
Done = Callable[[PutMessageStatus | StorePoisonedError], None]


class LogSync:
    """Sync of the log's files with unsynced bytes, oldest first; both flush policies use it.

    Attributes:
        lock: Held while `run` is called.
        failure: The error of the sync that failed; None while all is well.
        safe_timestamp: Store time (ms) up to which all records are on the disk, for the checkpoint.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self.lock = Lock()
        self.failure: StorePoisonedError | None = None
        self.safe_timestamp = 0

    def run(self) -> int:
        """Sync all that was appended until now, with `lock` held; returns the new flushed offset.

        Raises:
            StorePoisonedError: The sync failed, now or before.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # one error object for many puts: tracebacks would pile up in it
        log = self._commit_log
        timestamp = log.last_store_timestamp
        target = log.max_offset
        file = log.queue.find(log.flushed_offset)
        try:
            while file is not None and log.flushed_offset < target:
                file.flush()
                log.flushed_offset = file.start_offset + file.flushed_position
                if file.flushed_position == file.size:
                    file.close_descriptor()  # nothing is written to it any more
                file = log.queue.find(log.flushed_offset)
        except Exception as error:
            self.failure = StorePoisonedError(
                f"{error}; what was written since commit log offset {log.flushed_offset} may be lost: close the "
                "store, check the disk, and open the store again, which recovers what is there"
            )
            self.failure.__cause__ = error
            log.failure = self.failure
            raise self.failure from error
        self.safe_timestamp = timestamp
        return log.flushed_offset


class FlushPolicy(Protocol):
    """Interface of the flush policies: how a put becomes safe."""

    sync: LogSync

    def wait(self, end_offset: int) -> PutMessageStatus:
        """Wait until the log is as safe up to `end_offset` as the policy promises."""

    def submit(self, end_offset: int, done: Done) -> None:
        """Do `wait` without waiting: `done` is called with its result, perhaps by another thread."""

    def nudge(self) -> None:
        """Note that bytes were appended for which no put waits yet."""

    def start(self) -> None:
        """Start the thread."""

    def shutdown(self) -> None:
        """Sync everything and stop the thread."""


class FlushRealTimeService:
    """ASYNC_FLUSH: a put is acknowledged once it is in the page cache; a thread syncs by interval.

    Every `flushIntervalCommitLog` it syncs if at least `flushCommitLogLeastPages` pages are unsynced; every
    `flushCommitLogThoroughInterval` it syncs whatever is unsynced.
    """

    def __init__(self, commit_log: CommitLog, config: MessageStoreConfig) -> None:
        self.sync = LogSync(commit_log)
        self._commit_log = commit_log
        self._interval_s = config.flush_interval_commit_log / 1000
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough_s = config.flush_commit_log_thorough_interval / 1000
        self._stop = Event()
        self._thread = ServiceThread(self._run, "reput-flush")

    def wait(self, end_offset: int) -> PutMessageStatus:
        """Return at once."""
        return PutMessageStatus.PUT_OK

    def submit(self, end_offset: int, done: Done) -> None:
        """Call `done` at once."""
        done(PutMessageStatus.PUT_OK)

    def nudge(self) -> None:
        """Do nothing: the thread syncs by interval."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Sync everything and stop the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        thorough_at = time.monotonic() + self._thorough_s
        while not self._stop.wait(self._interval_s):
            thorough = time.monotonic() >= thorough_at
            if self._sync_if(0 if thorough else self._least_pages) and thorough:
                thorough_at = time.monotonic() + self._thorough_s
        self._sync_if(0)

    def _sync_if(self, least_pages: int) -> bool:
        """Sync if `least_pages` pages or more are unsynced. An error stays in `CommitLog.failure` and ends all puts."""
        log = self._commit_log
        pages = log.max_offset // OS_PAGE_SIZE - log.flushed_offset // OS_PAGE_SIZE
        if pages < least_pages or log.max_offset == log.flushed_offset:
            return least_pages == 0
        try:
            with self.sync.lock:
                self.sync.run()
        except StorePoisonedError:
            return False  # kept in `CommitLog.failure`: each later put raises it
        return True
