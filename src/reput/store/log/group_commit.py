"""SYNC_FLUSH: a put is acknowledged once it is on the disk, and one sync serves all who wait for it.

Whoever finds no sync running leads: it syncs by itself, which spares two thread switches. The others queue up. Once a
sync has ended, the leader gives the lead to the newest in the queue, whom no sync has covered yet, so that the disk has
work again at once; and it gives the first in the queue its turn, who gives it to the next one when it goes on. Were all
woken at once, each of them would be put to sleep again by the interpreter lock, which lets go on one at a time.
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
    """One put that waits; each thread has one for all its puts.

    Attributes:
        end_offset: It waits for a sync up to here.
        turn: Released when it may go on.
        leads: It is to sync then. Set before it leaves the queue.
    """

    __slots__ = ("end_offset", "leads", "turn")

    def __init__(self) -> None:
        self.turn = Lock()
        self.turn.acquire()
        self.end_offset = 0
        self.leads = False


class GroupCommitService:
    """RocketMQ's `GroupCommitService`. Its thread waits for those who do not wait themselves.

    Nobody stays in the queue unseen: while it is not empty somebody leads, or has a turn to give away. A turn is given
    to who is safe, the lead to who is not; after a failure each leads, one after the other, and gets the error.
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
        """`wait`; a time of -1 has no end.

        Raises:
            StorePoisonedError: The sync failed, or one before.
        """
        try:
            waiter = self._of_thread.waiter
        except AttributeError:
            waiter = self._of_thread.waiter = _Waiter()
        waiter.end_offset, waiter.leads = end_offset, False
        try:
            with self._guard:
                if self._is_led:
                    self._waiters.append(waiter)
                else:
                    self._is_led = waiter.leads = True
            if not waiter.leads and not self._rest(waiter, timeout_s):
                return PutMessageStatus.FLUSH_DISK_TIMEOUT
            if waiter.leads:
                with self.sync.lock:
                    if self._commit_log.flushed_offset < end_offset:
                        self.sync.run()
            self._hand_on(led=waiter.leads)
        except BaseException:  # a failed sync, or KeyboardInterrupt at any moment, the one of handing on too
            del self._of_thread.waiter
            if not self._leave(waiter):
                self._hand_on(led=waiter.leads)
            raise
        return PutMessageStatus.PUT_OK

    def _rest(self, waiter: _Waiter, timeout_s: float) -> bool:
        """Wait for the turn; False: it did not come in time, and the waiter has left the queue."""
        if waiter.turn.acquire(timeout=timeout_s):
            return True
        if self._leave(waiter):
            return False
        return waiter.turn.acquire()  # somebody is just giving it

    def _leave(self, waiter: _Waiter) -> bool:
        """Take the waiter out of the queue; False: it has its turn, or gets it right now."""
        with self._guard:
            try:
                self._waiters.remove(waiter)
            except ValueError:
                return False
        return True

    def _hand_on(self, *, led: bool) -> None:
        """Give away the lead, if nobody has it and a sync is wanted, and the turn, to the first that is served.

        KeyboardInterrupt comes behind a call. So who leaves the queue gets its turn by the next one, and doing all of
        it again does no harm: at the worst two lead, one behind the other.
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
                leader.turn.release()
            if waiters and (waiters[0].end_offset <= safe or not self._is_led):
                following = waiters[0]
                del waiters[0]
                if following.end_offset > safe:  # puts need not queue up in the log's order
                    following.leads = self._is_led = True
                following.turn.release()

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
        """Sync what is there, and answer those who have submitted."""
        with self._guard:
            submitted, self._submitted = self._submitted, []
        failure: StorePoisonedError | None = None
        try:
            self._wait(self._commit_log.max_offset, -1)
        except StorePoisonedError as error:
            failure = error
        safe = self._commit_log.flushed_offset
        for end_offset, done in submitted:
            # What was synced before a later sync failed is safe.
            done(PutMessageStatus.PUT_OK if end_offset <= safe or failure is None else failure)
