"""Which client consumes a queue in order (`RebalanceLockManager`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

#: What names a queue: topic, broker and queue id.
QueueT = TypeVar("QueueT", bound=Hashable)
#: A lock that was not renewed for longer is free, in ms (`rocketmq.broker.rebalance.lockMaxLiveTime`).
LOCK_MAX_LIVE_TIME_MS = 60_000


class RebalanceLockManager(Generic[QueueT]):
    """Locks of queues by group: one client holds a queue until it unlocks it, or does not renew the lock in time.

    They are lost with the process, and a closed connection frees none.
    """

    def __init__(self, *, lock_max_live_time_ms: int = LOCK_MAX_LIVE_TIME_MS) -> None:
        self._live_time_ms = lock_max_live_time_ms
        self._locks: dict[str, dict[QueueT, tuple[str, int]]] = {}  # holder, time of the last renewal in ms

    def try_lock_batch(self, group: str, queues: Iterable[QueueT], client_id: str, now_ms: int) -> list[QueueT]:
        """Lock queues or renew their locks; the queues that the client holds now, in the order asked for."""
        locks = self._locks.setdefault(group, {})
        held = []
        for queue in queues:
            holder, renewed_ms = locks.get(queue, (client_id, now_ms))
            if holder == client_id or self._is_expired(renewed_ms, now_ms):
                locks[queue] = client_id, now_ms
                held.append(queue)
        return held

    def unlock_batch(self, group: str, queues: Iterable[QueueT], client_id: str) -> None:
        """Free queues that the client holds; those of others stay locked."""
        locks = self._locks.get(group, {})
        for queue in queues:
            if queue in locks and locks[queue][0] == client_id:
                del locks[queue]
        if not locks:
            self._locks.pop(group, None)

    def is_lock_all_expired(self, group: str, now_ms: int) -> bool:
        """Whether nobody holds a queue of the group."""
        return all(self._is_expired(renewed_ms, now_ms) for _, renewed_ms in self._locks.get(group, {}).values())

    def _is_expired(self, renewed_ms: int, now_ms: int) -> bool:
        return now_ms - renewed_ms > self._live_time_ms
