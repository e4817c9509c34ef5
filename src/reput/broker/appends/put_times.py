"""PutTimes: when messages came into the log, by the clock as it is now."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

#: A message counts as put at most so much too late, or a thousandth of the time since then: so a thousand notes do for
#: each time that this grows by a factor of e, and none has to be forgotten, however long a delay is.
_EVERY_MS, _PART = 1000, 1000
#: Notes are thinned out once there are this many, and twice as many as were left the last time.
_LEAST_THINNED = 4096


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
        self._thinned_at = _LEAST_THINNED

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
        if len(self._times) >= self._thinned_at:
            self._thin_out(now_ms)

    def _thin_out(self, now_ms: int) -> None:
        """Keep of the notes those between which not too much time has gone by, and the first and the last one."""
        kept, times = [len(self._times) - 1], self._times
        while kept[-1]:
            after_ms = times[kept[-1]]
            first = bisect_left(times, after_ms - max(_EVERY_MS, (now_ms - after_ms) // _PART))
            kept.append(min(first, kept[-1] - 1))
        kept.reverse()
        self._ends, self._times = [self._ends[one] for one in kept], [times[one] for one in kept]
        self._thinned_at = max(_LEAST_THINNED, 2 * len(kept))

    def put_ms(self, commit_log_offset: int, stored_ms: int, now_ms: int) -> int:
        """Time of a message's put in ms: its store time, unless this is still to come."""
        if stored_ms <= now_ms:
            return stored_ms
        if not self._ends or self._ends[-1] <= commit_log_offset or self._times[-1] > now_ms:
            self._note(now_ms)
        return self._times[bisect_right(self._ends, commit_log_offset)]
