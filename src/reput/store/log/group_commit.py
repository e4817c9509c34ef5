"""SYNC_FLUSH: a put is acknowledged once it is on the disk, and one sync serves all puts that wait for it.

A put that finds no leader leads: it syncs in its own thread, which saves two thread switches. Other puts wait in a
queue. After its sync the leader does two things. It gives the lead to the newest put of the queue, which no sync has
covered yet, so that the disk has work again at once. And it wakes the first put of the queue, which wakes the next put
as soon as it runs, and so on. If all puts were woken at once, the interpreter lock would put each of them to sleep
again, as it lets one thread run at a time.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, local

from reput.config.message_store import MessageStoreConfig
from reput.errors import StorePoisonedError
from reput.store.log.commit_log import CommitLog
from reput.store.log.flush import Done, LogSync
from reput.store.results import PutMessageStatus
from reput.store.service_thread import ServiceThread


class _Waiter:
    """A put that waits for a sync; each thread has one waiter for all its puts.

    Attributes:
        end_offset: Commit log offset up to which it waits for a sync.
        wake: Released when the put may go on.
        leads: Whether the put is to sync when it goes on. Set before the waiter leaves the queue.
    """

    __slots__ = ("end_offset", "leads", "wake")

    def __init__(self) -> None:
        self.wake = Lock()
        self.wake.acquire()
        self.end_offset = 0
        self.leads = False


class GroupCommitService:
    """RocketMQ's `GroupCommitService`. Its thread syncs for puts that do not wait themselves (`submit`).

    No waiter is forgotten: while the queue is not empty, there is a leader, or a put that was woken and wakes the next
    one. A waiter that a sync has covered is woken; any other waiter gets the lead. After a failure each waiter leads,
    one after the other, and gets the error.
    """

    def __init__(self, commit_log: CommitLog, config: MessageStoreConfig) -> None:
        self.sync = LogSync(commit_log)
        self._commit_log = commit_log
        self._timeout_s = config.sync_flush_timeout / 1000
        self._guard = Lock()
        self._waiters: deque[_Waiter] = deque()
        self._is_led = False
        self._of_thread = local()
        self._submitted: list[tuple[int, Done]] = []
        self._wake = Lock()
        self._wake.acquire()
        self._stopping = False
        self._ended = False
        self._thread = ServiceThread(self._run, "reput-flush")

    def wait(self, end_offset: int) -> PutMessageStatus:
        """Return once the log is on the disk up to `end_offset`, or after `syncFlushTimeout`."""
        return self._wait(end_offset, self._timeout_s)

    def _wait(self, end_offset: int, timeout_s: float) -> PutMessageStatus:
        """Do `wait`; a timeout of -1 waits for ever.

        Raises:
            StorePoisonedError: The sync failed, or an earlier sync.
        """
        try:
            waiter = self._of_thread.waiter
        except AttributeError:
            waiter = self._of_thread.waiter = _Waiter()
        waiter.end_offset, waiter.leads = end_offset, False
        try:
            with self._guard:
                queued = self._is_led
                if queued:
                    self._waiters.append(waiter)
                else:
                    self._is_led = waiter.leads = True
            # Not by `leads`: a queued waiter may have been given the lead by now, and must take its wake all the same.
            if queued and not self._sleep(waiter, timeout_s):
                return PutMessageStatus.FLUSH_DISK_TIMEOUT
            if waiter.leads:
                with self.sync.lock:
                    if self._commit_log.flushed_offset < end_offset:
                        self.sync.run()
            self._hand_on(led=waiter.leads)
        except BaseException:  # a failed sync, or a KeyboardInterrupt, which may come inside of `_hand_on`, too
            del self._of_thread.waiter
            if not self._leave(waiter):
                self._hand_on(led=waiter.leads)
            raise
        return PutMessageStatus.PUT_OK

    def _sleep(self, waiter: _Waiter, timeout_s: float) -> bool:
        """Wait until the waiter is woken; False after the timeout, when the waiter has left the queue."""
        if waiter.wake.acquire(timeout=timeout_s):
            return True
        if self._leave(waiter):
            return False
        return waiter.wake.acquire()  # another thread is about to wake it

    def _leave(self, waiter: _Waiter) -> bool:
        """Take a waiter out of the queue; False if another thread has taken it out, to wake it."""
        with self._guard:
            try:
                self._waiters.remove(waiter)
            except ValueError:
                return False
        return True

    def _hand_on(self, *, led: bool) -> None:
        """Give the lead to the newest waiter, if there is no leader and it needs a sync; then wake the first waiter.

        The first waiter is woken if a sync has covered it, or if there is no leader: then it leads.

        A KeyboardInterrupt comes after a call. So a waiter is woken by the call right after it left the queue, and
        doing all of this again does no harm: at the worst two waiters lead, one after the other.
        """
        with self._guard:
            if led:
                self._is_led = False
            waiters = self._waiters
            safe = self._commit_log.flushed_offset
            if waiters and not self._is_led and waiters[-1].end_offset > safe:
                leader = waiters[-1]
                del waiters[-1]
                leader.leads = self._is_led = True
                leader.wake.release()
            if waiters and (waiters[0].end_offset <= safe or not self._is_led):
                first = waiters[0]
                del waiters[0]
                if first.end_offset > safe:  # puts need not queue up in the log's order
                    first.leads = self._is_led = True
                first.wake.release()

    def submit(self, end_offset: int, done: Done) -> None:
        """Call `done` from the flush thread once the log is on the disk up to `end_offset`."""
        with self._guard:
            self._submitted.append((end_offset, done))
            ended = self._ended
        if ended:
            self._commit()
        else:
            self.nudge()

    def nudge(self) -> None:
        """Wake the thread, which syncs what was appended."""
        try:
            self._wake.release()
        except RuntimeError:  # it was woken already
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
            self._ended = True  # a later `submit` commits in its own thread
        self._commit()

    def _commit(self) -> None:
        """Sync what was appended, and answer the submitted puts."""
        with self._guard:
            submitted, self._submitted = self._submitted, []
        failure: StorePoisonedError | None = None
        try:
            self._wait(self._commit_log.max_offset, -1)
        except StorePoisonedError as error:
            failure = error
        safe = self._commit_log.flushed_offset
        for end_offset, done in submitted:
            # Puts that were synced before another sync failed are safe.
            done(PutMessageStatus.PUT_OK if end_offset <= safe or failure is None else failure)
