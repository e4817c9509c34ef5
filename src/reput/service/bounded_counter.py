"""BoundedCounter: counts by names that clients make up."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

_K = TypeVar("_K")

#: Keys of one counter; as many topics and groups as a large cluster has.
MOST_KEYS = 20_000


class BoundedCounter(Counter[_K]):
    """A counter with a bound for its keys: what comes under further ones is counted together."""

    def inc(self, key: _K, rest: _K, count: int = 1) -> None:
        """Add to the count of a key; under `rest` if the key is new, and there are too many."""
        self[key if key in self or len(self) < MOST_KEYS else rest] += count
