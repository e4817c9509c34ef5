"""Histogram: how many values are how large, as Prometheus takes it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Histogram(Generic[_Key]):
    """Values in ranges, by a key.

    Args:
        bounds: Upper bounds of the ranges, inclusive; a further range has what is larger.

    Attributes:
        counts: Number of values in each range, by key.
        sums: Sum of the values, by key.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts: dict[_Key, list[int]] = {}
        self.sums: dict[_Key, float] = {}

    def add(self, key: _Key, value: float, count: int = 1) -> None:
        """Count a value, or several that are alike."""
        counts = self.counts.get(key)
        if counts is None:
            counts = self.counts[key] = [0] * (len(self.bounds) + 1)
            self.sums[key] = 0
        counts[bisect_left(self.bounds, value)] += count
        self.sums[key] += value * count
