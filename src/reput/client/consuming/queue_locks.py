"""QueueLocks: queues that this member alone may handle, locked at their brokers (`RebalanceImpl.lockAll`)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby

from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.instance.peer_log import peers
from reput.errors import ReputError
from reput.remoting.queue_tables import QueueKey

#: A broker keeps a lock for 60 s; it is renewed in time, and trusted for half of that.
_RENEW_S, _TRUSTED_S = 20.0, 30.0
#: A queue that another member has still locked is asked for again after so many seconds.
_AGAIN_S = 1.0


class QueueLocks:
    """Locks, and their renewal in the background."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._locked_at: dict[QueueKey, float] = {}
        #: Asked for, without an answer: who is cancelled meanwhile may have them.
        self._asked: set[QueueKey] = set()
        #: One request at a time to a broker: the answer to a renewal must not come behind an unlock.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        group.client.spawn(self._renew_service())

    def is_held(self, queue: QueueKey) -> bool:
        """Whether this member may handle messages of a queue now."""
        locked_at = self._locked_at.get(queue)
        return locked_at is not None and locked_at + _TRUSTED_S > asyncio.get_running_loop().time()

    def locked_s(self, queue: QueueKey) -> float | None:
        """Seconds since a queue was locked; None if this member does not hold it."""
        return asyncio.get_running_loop().time() - self._locked_at[queue] if self.is_held(queue) else None

    async def lock(self, queue: QueueKey) -> None:
        """Return when a queue is this member's; raises RemotingError where its broker does not tell."""
        while True:
            await self._lock([queue])
            if self.is_held(queue):
                return
            await asyncio.sleep(_AGAIN_S)

    async def lock_again(self, queue: QueueKey) -> None:
        """Ask for the lock of a queue once more, which its broker has refused at a renewal, or that was not renewed."""
        try:
            await self._lock([queue])
        except ReputError as error:
            peers.failed("a queue was not locked again", error, broker=queue.broker_name)

    async def unlock(self, queues: Iterable[QueueKey]) -> None:
        """Give locks back; one that a broker does not take back ends by itself."""
        held = sorted(queue for queue in queues if queue in self._locked_at or queue in self._asked)
        group = self._group
        for broker_name, of_broker in groupby(held, lambda queue: queue.broker_name):
            locked = list(of_broker)
            async with self._turns[broker_name]:
                for queue in locked:
                    self._locked_at.pop(queue, None)
                    self._asked.discard(queue)
                try:
                    await group.api.unlock(group.client.master(broker_name), group.name, group.client.client_id, locked)
                except ReputError as error:
                    peers.failed("locks were not given back", error, broker=broker_name)

    async def unlock_all(self) -> None:
        """Give all locks back."""
        await self.unlock(self._asked | self._locked_at.keys())

    async def _lock(self, queues: list[QueueKey]) -> None:
        """Lock queues of one broker."""
        async with self._turns[queues[0].broker_name]:
            await self._lock_in_turn(queues)

    async def _lock_in_turn(self, queues: list[QueueKey]) -> None:
        begun = asyncio.get_running_loop().time()
        group = self._group
        address = group.client.master(queues[0].broker_name)
        self._asked.update(queues)
        locked = await group.api.lock(address, group.name, group.client.client_id, queues)
        self._asked.difference_update(queues)
        for queue in queues:
            if queue in locked:
                self._locked_at[queue] = begun
            else:
                self._locked_at.pop(queue, None)

    async def _renew_service(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            for broker_name in sorted({queue.broker_name for queue in self._locked_at}):
                async with self._turns[broker_name]:
                    held = sorted(queue for queue in self._locked_at if queue.broker_name == broker_name)
                    try:
                        if held:
                            await self._lock_in_turn(held)
                    except ReputError as error:
                        peers.failed("locks were not renewed", error, broker=broker_name)
