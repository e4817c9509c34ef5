"""The append lock, and why nothing may pass it: a sync that failed, a full disk, a disk that does not keep up."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NoReturn

from reput.errors import ReputError, StoreBusyError, StoreFullError, WouldWaitError
from reput.files import may_wait


def refuse(refusal: ReputError) -> NoReturn:
    """Raise why nothing is appended: one object for many puts, in which traces would pile up."""
    raise refusal.with_traceback(None)


def _nobody() -> None:
    """There is no thread that makes files ahead."""


class AppendGate(ABC):
    """Gate of every append: `_wait`, then `_lock`, then a look at `_put_refusal`, for copies at `_refusal`.

    The log inherits it instead of having it: an append looks at these three in a few microseconds altogether.

    Args:
        folder: The log's, for errors.
        busy_timeout_ms: How long one append may keep the others waiting (`osPageCacheBusyTimeOutMills`).
    """

    def __init__(self, folder: str, busy_timeout_ms: int) -> None:
        self._folder = folder
        self._busy_s = busy_timeout_ms / 1000
        self._lock = Lock()
        self._failure: ReputError | None = None
        self._refusal: ReputError | None = None
        self._put_refusal: ReputError | None = None
        self._copies_only: ReputError | None = None
        self._no_room: StoreFullError | None = None
        self._lacking = 0
        #: Called with the error that ends all puts.
        self.on_failure: Callable[[ReputError], None] | None = None
        #: Called when `AppendRoom.make_ready` is due, by the appends of a broker, and when `refusal` begins or ends.
        self.on_due: Callable[[], None] = _nobody

    @property
    @abstractmethod
    def max_offset(self) -> int:
        """Commit log offset after the last record that was appended."""

    @property
    def failure(self) -> ReputError | None:
        """The error that ended all puts until the store is opened again; None while all is well."""
        return self._failure

    @failure.setter
    def failure(self, error: ReputError) -> None:
        self._failure = error
        if self.on_failure is not None:
            self.on_failure(error)
        self._refuse_all(error)  # last: a refused caller may end the process; the next start must be warned
        self.on_due()

    @property
    def refusal(self) -> ReputError | None:
        """Reason why appends are refused now, copies too; None while all are taken.

        Every append gets `failure`, and the error of a disk that retention found too full. If the log got no space for
        an append, those that fit into what it has are taken. That ends with the space: each append that needs it tries
        to get it, and `AppendRoom.make_ready` every second.
        """
        return self._refusal or self._no_room

    def _wait(self) -> None:
        """Wait until the append lock is free. The caller then takes it by `with`.

        A KeyboardInterrupt can come after any call, `acquire` too, but not between `with lock` and its block.

        Raises:
            StoreBusyError: No put was appended for `osPageCacheBusyTimeOutMills`: the thread that holds the lock waits
                for the disk (`DefaultMessageStore.isOSPageCacheBusy`).
            WouldWaitError: In `NeverWaiting`, at once.
        """
        # A sleeping waiter would take the lock before it has the interpreter lock, and every put would become a thread
        # switch (14 us). Trying and yielding keeps sixteen threads as fast as one.
        if not self._lock.locked():
            return
        if not may_wait():
            raise WouldWaitError(f"{self._folder}: another thread appends, or waits for the disk", room=1)
        end, since = self.max_offset, time.monotonic()
        while self._lock.locked():
            if self.max_offset != end:
                end, since = self.max_offset, time.monotonic()
            elif time.monotonic() - since > self._busy_s:
                raise StoreBusyError(
                    f"{self._folder}: nothing could be appended at {end} for {self._busy_s * 1000:.0f} ms "
                    "(osPageCacheBusyTimeOutMills), for the disk does not keep up; try again later"
                )
            time.sleep(0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is appended meanwhile; raises StoreBusyError as an append does."""
        self._wait()
        with self._lock:
            yield

    def refuse(self, error: ReputError) -> None:
        """Let no append begin any more, unless something else has stopped them already; those under way end first."""
        with self._lock:
            if self.failure is None:
                self.failure = error

    def refuse_while_full(self, error: StoreFullError | None) -> None:
        """Let no append begin because of the disk; None: let them begin again."""
        with self._lock, self._telling():
            self._refuse_all(error)
            if self.failure is not None:  # asked last: a failure may come at any moment, and no append passes it
                self._refuse_all(self.failure)

    def take_copies_only(self, error: ReputError) -> None:
        """Let no append begin from now on but of copies: the log of a slave is its master's, byte for byte."""
        with self._lock:
            self._copies_only = error
            self._refuse_all(self._refusal)

    def _refuse_all(self, error: ReputError | None) -> None:
        self._refusal = error
        self._put_refusal = error or self._copies_only

    def _refuse_without_room(self, size: int, error: StoreFullError) -> None:
        """Under the append lock: the log got no space for `size` bytes, a blank record after them included."""
        with self._telling():
            self._no_room = StoreFullError(str(error))  # not itself: its trace holds what was to be appended
            self._lacking = max(size, self._lacking)

    def _accept_with_room(self, size: int) -> None:
        """Under the append lock: the log has space for `size` bytes."""
        if self._no_room is not None and size >= self._lacking:
            with self._telling():
                self._no_room, self._lacking = None, 0

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Call `on_due` when a refusal begins or ends meanwhile."""
        before = self.refusal
        yield
        if (before is None) != (self.refusal is None):
            self.on_due()
