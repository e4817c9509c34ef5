"""Queues with units that are not known to be on the disk: a sync looks at these alone, whatever the count of queues."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)


class UnsyncedQueues(Generic[Q]):
    """Unsynced queues of one table. One thread adds queues, while another one may take them."""

    def __init__(self) -> None:
        self._all: set[Q] = set()
        self._lately: set[Q] = set()

    def add(self, queue: Q) -> None:
        """Note that a queue was written to; called after the write."""
        self._all.add(queue)
        self._lately.add(queue)

    def take(self, *, lately: bool) -> list[Q]:
        """Unsynced queues, or only those that were written to since the last call: no other has got more to sync.

        The caller looks at each one afterwards, and gives back those that it does not sync.
        """
        taken = list(self._lately if lately else self._all)
        self._lately.difference_update(taken)
        self._all.difference_update(taken)
        return taken

    def give_back(self, queues: list[Q]) -> None:
        """Count queues as unsynced, which were taken and not synced."""
        self._all.update(queues)

    def forget(self, queue: Q) -> None:
        """Forget a queue whose files are gone."""
        self._all.discard(queue)
        self._lately.discard(queue)
