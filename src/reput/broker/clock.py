"""BrokerClock: the time of messages, and the machine's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from reput.broker.appends.put_times import PutTimes


class BrokerClock:
    """The times that a broker counts from; used in the loop's thread.

    Args:
        end_offset: Tells where the commit log ends.
        put_store_forward: Called with a time in ms, which messages get that come from then on.

    Attributes:
        was_put_forward: Set by `put_forward`, for what looks at the time once in a long while.
    """

    def __init__(self, end_offset: Callable[[], int], put_store_forward: Callable[[int], None]) -> None:
        self._ahead_ms = 0
        self._put_times = PutTimes(end_offset)
        self._put_store_forward = put_store_forward
        self.was_put_forward = asyncio.Event()

    def now_ms(self) -> int:
        """The time in ms since 1970 UTC, of messages and of all that waits for one."""
        return int(time.time() * 1000) + self._ahead_ms

    def put_ms(self, commit_log_offset: int, stored_ms: int) -> int:
        """Time of a message's put in ms, for delays: its store time may be ahead of a clock that was set."""
        return self._put_times.put_ms(commit_log_offset, stored_ms, self.now_ms())

    def note_put_time(self) -> None:
        """Something has arrived: `put_ms` knows when."""
        self._put_times.note(self.now_ms())

    @staticmethod
    def machine_ms() -> int:
        """The machine's time, whatever `put_forward` has done: that of clients, their heartbeats and locks."""
        return int(time.time() * 1000)

    def put_forward(self, ms: int) -> None:
        """Let the time of messages be later from now on; messages that come get it, too."""
        self._ahead_ms += ms
        self._put_store_forward(self.now_ms())
        self.was_put_forward.set()
