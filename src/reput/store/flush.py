"""When a put is as safe as its store promises: group commit (SYNC_FLUSH), or syncs by interval (ASYNC_FLUSH).

A failed sync is final. Nobody knows which pages the disk has, and a second try may succeed without them: every waiter
gets the error, and nothing more is accepted until a start of the store has recovered what is really there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Protocol

from reput.config.message_store import MessageStoreConfig
from reput.errors import StorePoisonedError
from reput.store.commit_log import CommitLog
from reput.store.results import PutMessageStatus

_PAGE_SIZE = 4096

#: Called once the bytes are safe, or with the error that says that they never will be.
Done = Callable[[PutMessageStatus | StorePoisonedError], None]


class LogSync:
    """Syncs the files of the log that have unsynced bytes, oldest first; shared by both policies.

    Attributes:
        safe_timestamp: Store time (ms) up to which everything is on the disk: what the checkpoint may say.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self.lock = Lock()
        self.failure: StorePoisonedError | None = None
        self.safe_timestamp = 0

    def run(self) -> int:
        """Sync all that is appended by now, with `lock` held; returns the new flushed offset.

        Raises:
            StorePoisonedError: The sync failed, now or before.
        """
        if self.failure is not None:
            raise self.failure
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
                "store, look after the disk, and open it again, which recovers what is there"
            )
            self.failure.__cause__ = error
            log.failure = self.failure
            raise self.failure from error
        self.safe_timestamp = timestamp
        return log.flushed_offset


class FlushPolicy(Protocol):
    """How a put becomes safe."""

    sync: LogSync

    def wait(self, end_offset: int) -> PutMessageStatus:
        """Return once the log is as safe up to `end_offset` as the policy promises."""

    def submit(self, end_offset: int, done: Done) -> None:
        """The same without waiting: `done` is called, perhaps by another thread."""

    def nudge(self) -> None:
        """Bytes were appended for which nobody waits yet."""

    def start(self) -> None:
        """Start the thread."""

    def shutdown(self) -> None:
        """Sync everything and stop the thread."""


class GroupCommitService:
    """SYNC_FLUSH: one sync serves all who wait for it.

    A caller that finds no sync running syncs by itself, which spares two thread switches; the others queue up, each
    with a lock of its own, and the thread serves them together with the next sync.
    """

    def __init__(self, commit_log: CommitLog, config: MessageStoreConfig) -> None:
        self.sync = LogSync(commit_log)
        self._commit_log = commit_log
        self._timeout_s = config.sync_flush_timeout / 1000
        self._waiters: list[tuple[int, Done]] = []
        self._guard = Lock()
        self._wake = Lock()
        self._wake.acquire()
        self._stopping = False
        self._ended = False
        self._thread = Thread(target=self._run, name="reput-flush", daemon=True)

    def wait(self, end_offset: int) -> PutMessageStatus:
        """Return once the log is on the disk up to `end_offset`, or after `syncFlushTimeout`."""
        log, sync = self._commit_log, self.sync
        if not self._waiters and sync.lock.acquire(False):
            try:
                if log.flushed_offset < end_offset:
                    sync.run()
            finally:
                sync.lock.release()
            if self._waiters:
                self._answer(None)
            return PutMessageStatus.PUT_OK
        waiter = Lock()
        waiter.acquire()
        outcome: list[PutMessageStatus | StorePoisonedError] = []

        def done(result: PutMessageStatus | StorePoisonedError) -> None:
            outcome.append(result)
            waiter.release()

        self.submit(end_offset, done)
        if not waiter.acquire(timeout=self._timeout_s):
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        if isinstance(outcome[0], StorePoisonedError):
            raise outcome[0]
        return outcome[0]

    def submit(self, end_offset: int, done: Done) -> None:
        """Call `done` from the flush thread once the log is on the disk up to `end_offset`."""
        with self._guard:
            self._waiters.append((end_offset, done))
            ended = self._ended
        if ended:
            self._commit()
        else:
            self.nudge()

    def nudge(self) -> None:
        """Let the thread sync what is there."""
        try:
            self._wake.release()
        except RuntimeError:  # it is awake already
            return

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Sync everything and stop the thread."""
        self._stopping = True
        self.nudge()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.acquire()
            self._commit()
        with self._guard:
            self._ended = True  # who comes later commits by himself
        self._commit()

    def _commit(self) -> None:
        failure: StorePoisonedError | None = None
        try:
            with self.sync.lock:
                self._answer(None)  # whom the sync before has covered need not wait for the next one
                self.sync.run()
        except StorePoisonedError as error:
            failure = error
        self._answer(failure)

    def _answer(self, failure: StorePoisonedError | None) -> None:
        """Answer those whose bytes are on the disk, and with a failure everybody."""
        flushed = self._commit_log.flushed_offset
        with self._guard:
            answered = [waiter for waiter in self._waiters if failure is not None or waiter[0] <= flushed]
            if answered:
                self._waiters = [waiter for waiter in self._waiters if failure is None and waiter[0] > flushed]
        for end_offset, done in answered:
            # What was synced before a later sync failed is safe.
            done(PutMessageStatus.PUT_OK if end_offset <= flushed or failure is None else failure)


class FlushRealTimeService:
    """ASYNC_FLUSH: a put is acknowledged once it is in the page cache; a thread syncs by interval.

    Every `flushIntervalCommitLog` with at least `flushCommitLogLeastPages` unsynced pages; after
    `flushCommitLogThoroughInterval` whatever there is.
    """

    def __init__(self, commit_log: CommitLog, config: MessageStoreConfig) -> None:
        self.sync = LogSync(commit_log)
        self._commit_log = commit_log
        self._interval_s = config.flush_interval_commit_log / 1000
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough_s = config.flush_commit_log_thorough_interval / 1000
        self._stop = Event()
        self._thread = Thread(target=self._run, name="reput-flush", daemon=True)

    def wait(self, end_offset: int) -> PutMessageStatus:
        """Return at once."""
        return PutMessageStatus.PUT_OK

    def submit(self, end_offset: int, done: Done) -> None:
        """Call `done` at once."""
        done(PutMessageStatus.PUT_OK)

    def nudge(self) -> None:
        """Nothing: the interval decides."""

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
        """Sync when enough pages wait; a failure is kept for the next put, which must not go on as if nothing was."""
        log = self._commit_log
        pages = log.max_offset // _PAGE_SIZE - log.flushed_offset // _PAGE_SIZE
        if pages < least_pages or log.max_offset == log.flushed_offset:
            return least_pages == 0
        try:
            with self.sync.lock:
                self.sync.run()
        except StorePoisonedError:
            return False  # kept in CommitLog.failure: every later put raises it
        return True
