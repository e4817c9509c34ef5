"""A clock for what waits."""

from __future__ import annotations


class HandClock:
    """A clock that goes on by waits alone."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.waits: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time_s += seconds
