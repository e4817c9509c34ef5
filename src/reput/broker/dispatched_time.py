"""DispatchedTime: how far queues have come, as a time."""

from __future__ import annotations

from reput.store.message_store import MessageStore


class DispatchedTime:
    """The newest of the times of which all is dispatched that was in the log when they were noted.

    While puts never stop, dispatch never has all of the log; but it soon has all that was there a moment ago.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._noted_ms, self._noted_end, self._dispatched_ms = 0, 0, 0

    def note(self, time_ms: int) -> int:
        """Note a time, unless an earlier one still waits for dispatch; return the newest that does not."""
        behind, end = self._store.dispatch_behind_bytes, self._store.max_commit_log_offset
        if end - behind >= self._noted_end:
            self._dispatched_ms = self._noted_ms if behind else time_ms
            self._noted_ms, self._noted_end = time_ms, end
        return min(self._dispatched_ms, time_ms)  # the clock may have been set back
