"""TimerStats: what the timers have done since the broker's start, for a monitoring system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reput.service.histogram import Histogram

#: As 5.3.3's `DefaultStoreMetricsManager`.
_DELAY_BOUNDS_S = (60, 600, 3600, 43_200, 86_400, 259_200)
#: For so long the last message says how late the timers are.
_LAST_COUNTS_MS = 2000


class TimerStats:
    """Counts by the topic that messages go to.

    Attributes:
        enqueued: Messages that got a slot, each time they did.
        dequeued: Messages that were put when their slot was due, into their topic or back into the queue.
        delay_s: From the birth of a message to the time of its slot.
    """

    def __init__(self) -> None:
        self.enqueued: Counter[str] = Counter()
        self.dequeued: Counter[str] = Counter()
        self.delay_s: Histogram[str] = Histogram(_DELAY_BOUNDS_S)
        self._last_at_ms = self._last_stored_ms = 0

    def enqueue(self, delays_s: Mapping[tuple[str, int], int], stored_ms: int, now_ms: int) -> None:
        """Count messages that get a slot.

        Args:
            delays_s: How many there are of each topic and each delay, in s, from their birth to their own slot.
            stored_ms: When the last of them was stored.
            now_ms: The time.
        """
        for (topic, delay_s), count in delays_s.items():
            self.enqueued[topic] += count
            self.delay_s.add(topic, max(0, delay_s), count)
        self._last_at_ms, self._last_stored_ms = now_ms, stored_ms

    def enqueue_latency_ms(self, now_ms: int) -> int:
        """Age in ms of the last message that got a slot, by its store time; 0 if it did not get it just now."""
        return max(0, now_ms - self._last_stored_ms) if now_ms - self._last_at_ms < _LAST_COUNTS_MS else 0
