"""ConsumeStatistics: how fast a consumer pulls and handles messages, by topic (`ConsumerStatsManager`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from reput.stats_window import Growth, StatsKey, StatsWindow

#: A sample is taken each ten seconds.
_INTERVAL_S = 10.0
_MINUTE, _HOUR = 6, 360


@dataclass(slots=True)
class _Counts:
    """Counts of a topic since the last sample."""

    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    done: int = 0
    failed: int = 0
    handle_s: float = 0.0

    def growths(self, topic: str) -> dict[StatsKey, Growth]:
        """As counters of a window."""
        return {
            ("pulled", topic): Growth(self.pulled, self.pulls),
            ("pull_ms", topic): Growth(int(self.pull_s * 1000), self.pulls),
            ("done", topic): Growth(self.done, self.done),
            ("failed", topic): Growth(self.failed, self.failed),
            ("handle_ms", topic): Growth(int(self.handle_s * 1000), self.done + self.failed),
        }


class ConsumeStatistics:
    """Counts of the last minute, and of the last hour, up to the last sample; topics by their names here."""

    def __init__(self) -> None:
        self._minute = StatsWindow(_INTERVAL_S, _MINUTE)
        self._hour = StatsWindow(_INTERVAL_S, _HOUR)
        self._counts: dict[str, _Counts] = {}

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """A pull has brought messages."""
        counts = self._counts_of(topic)
        counts.pulls += 1
        counts.pulled += messages
        counts.pull_s += seconds

    def handled(self, topic: str, seconds: float, *, is_done: bool) -> None:
        """A handler has ended with a message."""
        counts = self._counts_of(topic)
        if is_done:
            counts.done += 1
        else:
            counts.failed += 1
        counts.handle_s += seconds

    def _counts_of(self, topic: str) -> _Counts:
        found = self._counts.get(topic)
        if found is None:
            found = self._counts[topic] = _Counts()
        return found

    def sample(self, at_s: float) -> None:
        """Count what has happened by a time of the monotonic clock."""
        for topic, counts in self._counts.items():
            growths = counts.growths(topic)
            self._minute.add(growths)
            self._hour.add(growths)
        self._counts.clear()
        self._minute.end(at_s)
        self._hour.end(at_s)

    async def run(self) -> None:
        """Take samples, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_INTERVAL_S)
            self.sample(loop.time())

    def status(self, topic: str) -> dict[str, Any]:
        """The counts of a topic as RocketMQ's `ConsumeStatus` names them: times in ms, messages a second."""
        minute, hour = self._minute.snapshot, self._hour.snapshot
        return {
            "consumeFailedMsgs": hour(("failed", topic)).sum,
            "consumeFailedTPS": minute(("failed", topic)).tps,
            "consumeOKTPS": minute(("done", topic)).tps,
            "consumeRT": minute(("handle_ms", topic)).avgpt or hour(("handle_ms", topic)).avgpt,
            "pullRT": minute(("pull_ms", topic)).avgpt,
            "pullTPS": minute(("pulled", topic)).tps,
        }
