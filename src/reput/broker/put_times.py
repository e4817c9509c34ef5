"""PutTimes: when messages came into the log, by the clock as it is now."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

#: A message counts as put at most so much too late.
_EVERY_MS = 1000
#: Nothing waits longer for its put than the highest delay level.
_MOST = 10_000


class PutTimes:
    """Store times that no clock which was ahead can hold up.

    Store times never go back: after a clock that was an hour ahead is set right, all that is put gets the last store
    time for an hour, and what counts from there would stand still. So it is noted how far the log was when; a message
    with a store time that is still to come was put when this was noted, or before.

    Args:
        end_offset: The log's end, as of now.
    """

    def __init__(self, end_offset: Callable[[], int]) -> None:
        self._end_offset = end_offset
        self._ends: list[int] = []
        self._times: list[int] = []

    def note(self, now_ms: int) -> None:
        """Something has arrived."""
        if not self._times or not 0 <= now_ms - self._times[-1] < _EVERY_MS:
            self._note(now_ms)

    def _note(self, now_ms: int) -> None:
        while self._times and self._times[-1] > now_ms:  # the clock was set back
            self._ends.pop()
            self._times.pop()
        self._ends.append(self._end_offset())
        self._times.append(now_ms)
        del self._ends[:-_MOST], self._times[:-_MOST]

    def put_ms(self, commit_log_offset: int, stored_ms: int, now_ms: int) -> int:
        """When a message was put, by its store time, unless this is still to come."""
        if stored_ms <= now_ms:
            return stored_ms
        if not self._ends or self._ends[-1] <= commit_log_offset or self._times[-1] > now_ms:
            self._note(now_ms)
        return self._times[bisect_right(self._ends, commit_log_offset)]
