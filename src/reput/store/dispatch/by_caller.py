"""Dispatch without a thread: the store's caller, an event loop, makes each pass when it has time."""

from __future__ import annotations

import time

from reput.errors import ReputError, StoreError, StoreFullError
from reput.store.dispatch.reput import RETRY_WAIT_S, ReputMessageService


class DispatchByCaller(ReputMessageService):
    """`ReputMessageService` whose passes are made by `dispatch`, one thread at a time."""

    _retry_at = 0.0

    def dispatch(self, max_bytes: int | None = None) -> int:
        """Do one pass over at most so many bytes; returns the number of records, 0 if nothing is to do.

        After a full disk nothing is done for a second. Any other failure ends dispatch, as it ends the thread's, and
        `failure` says so.
        """
        if self._retry_at and time.monotonic() < self._retry_at:
            return 0
        try:
            with self.between_passes:
                rows = self.run_once(max_bytes)
        except StoreFullError as error:  # space may return
            self.failure, self._retry_at = error, time.monotonic() + RETRY_WAIT_S
            return 0
        except ReputError as error:
            self._give_up(error)
            return 0
        except Exception as error:  # a bug, or an error of bit_maps: callers must learn that dispatch has stopped
            failure = StoreError(f"dispatch stopped at commit log offset {self.reput_from_offset}: {error!r}")
            failure.__cause__ = error
            self._give_up(failure)
            return 0
        self.failure, self._retry_at = None, 0.0
        return rows

    def start(self) -> None:
        """Start nothing."""

    def wake_if_idle(self) -> None:
        """Do nothing: the caller knows what it has put."""

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Dispatch all records before an offset here and now; False after `timeout_s`, or where it cannot go on."""
        deadline = time.monotonic() + timeout_s
        while self.reput_from_offset < offset and time.monotonic() < deadline:
            if not self.dispatch():
                break
        if self._commit_log.failure is not None:
            raise self._commit_log.failure
        return self.reput_from_offset >= offset

    def shutdown(self) -> None:
        """Dispatch all records that are there; a disk that was full may have space again."""
        self._retry_at = 0.0
        while self.dispatch():
            pass
