"""Locks of clients that consume a queue in order (`RebalanceLockManager`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

#: What names a queue: topic, broker and queue id.
QueueT = TypeVar("QueueT", bound=Hashable)
#: A lock that was not renewed for longer is free, in ms (`rocketmq.broker.rebalance.lockMaxLiveTime`).
LOCK_MAX_LIVE_TIME_MS = 60_000
#: Locks of all groups, so that no client fills the memory; further ones are not given.
_MOST_LOCKS = 200_000


class RebalanceLockManager(Generic[QueueT]):
    """Locks of queues by group: one client holds a queue until it unlocks it, or does not renew the lock in time.

    They are lost with the process, and a closed connection frees none.
    """

    def __init__(self, *, lock_max_live_time_ms: int = LOCK_MAX_LIVE_TIME_MS) -> None:
        self._live_time_ms = lock_max_live_time_ms
        self._locks: dict[str, dict[QueueT, tuple[str, int]]] = {}  # holder, time of the last renewal in ms
        self._count = 0

    def __len__(self) -> int:
        """Locks of all groups, also those that nobody has renewed in time since the last `clean`."""
        return self._count

    def try_lock_batch(self, group: str, queues: Iterable[QueueT], client_id: str, now_ms: int) -> list[QueueT]:
        """Lock queues or renew their locks; the queues that the client holds now, in the order asked for."""
        locks = self._locks.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None and self._count >= _MOST_LOCKS:
                continue
            if lock is None or lock[0] == client_id or self._is_expired(lock[1], now_ms):
                locks[queue] = client_id, now_ms
                self._count += lock is None
                held.append(queue)
        if not locks:
            del self._locks[group]
        return held

    def unlock_batch(self, group: str, queues: Iterable[QueueT], client_id: str) -> None:
        """Free queues that the client holds; other clients' stay locked."""
        locks = self._locks.get(group, {})
        for queue in queues:
            if queue in locks and locks[queue][0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._locks.pop(group, None)

    def clean(self, now_ms: int) -> None:
        """Forget the locks that were not renewed in time, and the groups that have no other."""
        for group, locks in list(self._locks.items()):
            left = {queue: lock for queue, lock in locks.items() if not self._is_expired(lock[1], now_ms)}
            self._count -= len(locks) - len(left)
            if left:
                self._locks[group] = left
            else:
                del self._locks[group]

    def is_lock_all_expired(self, group: str, now_ms: int) -> bool:
        """Whether nobody holds a queue of the group."""
        return all(self._is_expired(renewed_ms, now_ms) for _, renewed_ms in self._locks.get(group, {}).values())

    def _is_expired(self, renewed_ms: int, now_ms: int) -> bool:
        return now_ms - renewed_ms > self._live_time_ms
