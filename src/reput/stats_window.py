"""StatsWindow: by how much counters have grown in the last minute, hour or day, by samples (`StatsItem`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

#: Which counter: a name of `BrokerStatsManager`, and the topic, `topic@group` or cluster that it is about.
StatsKey = tuple[str, str]


class Growth(NamedTuple):
    """Growth of a counter, and the number of its additions."""

    value: int
    times: int


class StatsSnapshot(NamedTuple):
    """Growth of a counter: the sum, the sum a second, and the sum of one addition."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsWindow:
    """Growth of counters over the last intervals.

    An interval keeps the counters that have grown in it, so one that stands still costs nothing.

    Args:
        interval_s: About how long an interval is. A counter is taken to have begun so long before its first one ends.
        intervals: How many of the last ones count.
    """

    def __init__(self, interval_s: float, intervals: int) -> None:
        self._interval_s = interval_s
        self._ended: deque[tuple[float, dict[StatsKey, Growth]]] = deque(maxlen=intervals)
        self._begun: dict[StatsKey, Growth] = {}
        self._since_s: dict[StatsKey, float] = {}
        self._at_s = 0.0

    def add(self, grown: Mapping[StatsKey, Growth]) -> None:
        """Add to the interval that has begun."""
        for key, (value, times) in grown.items():
            before = self._begun.get(key, _NOTHING)
            self._begun[key] = Growth(before.value + value, before.times + times)

    def end(self, at_s: float) -> None:
        """End the interval, at a time of the monotonic clock, and begin the next one."""
        begin_s = self._at_s if self._ended else at_s - self._interval_s
        for key in self._begun:
            self._since_s.setdefault(key, begin_s)
        self._ended.append((begin_s, self._begun))
        self._begun, self._at_s = {}, at_s

    def has(self, key: StatsKey) -> bool:
        """Whether the counter has ever grown."""
        return key in self._since_s

    def snapshot(self, key: StatsKey) -> StatsSnapshot:
        """Growth of one counter; zeros if no interval has it."""
        if key not in self._since_s:
            return StatsSnapshot()
        grown = [growth[key] for _, growth in self._ended if key in growth]
        value, times = sum(one.value for one in grown), sum(one.times for one in grown)
        elapsed_s = self._at_s - max(self._since_s[key], self._ended[0][0])
        return StatsSnapshot(value, value / elapsed_s, value / times if times else 0.0)


_NOTHING = Growth(0, 0)
