"""QueueLocks: queues that this member alone may handle, locked at their brokers (`RebalanceImpl.lockAll`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby

from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.process_queue import ProcessQueue, tell_moved
from reput.client.instance.peer_log import peers
from reput.errors import ReputError

#: A broker keeps a lock for 60 s; it is renewed in time.
_RENEW_S = 20.0
#: A queue that another member has still locked is asked for again after this many seconds.
_AGAIN_S = 1.0


class QueueLocks:
    """Asks for locks, gives them back, and renews them in the background; what is locked, each queue knows."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        #: One request at a time to a broker: the answer to a renewal must not come behind an unlock.
        self._turns: dict[str, asyncio.Lock] = {}

    def is_held(self, one: ProcessQueue) -> bool:
        """Whether this member may handle messages of a queue now."""
        return one.locked_s(asyncio.get_running_loop().time()) is not None

    async def lock(self, one: ProcessQueue) -> None:
        """Return when a queue is this member's; raises RemotingError if its broker does not tell."""
        one.needs_lock = True
        while not self.is_held(one):
            await self._lock([one])
            if not self.is_held(one):
                await asyncio.sleep(_AGAIN_S)

    async def lock_again(self, one: ProcessQueue) -> None:
        """Ask for the lock of a queue once more, which its broker has refused at a renewal, or that was not renewed."""
        try:
            await self._lock([one])
        except ReputError as error:
            peers.failed("a queue was not locked again", error, broker=one.queue.broker_name)

    async def unlock(self, queues: Iterable[ProcessQueue]) -> None:
        """Give locks back; one that a broker does not take back ends by itself."""
        held = [one for one in queues if one.locked_at is not None or one.is_lock_asked]
        await asyncio.gather(*(self._unlock(broker_name, locked) for broker_name, locked in _by_broker(held)))

    async def unlock_all(self) -> None:
        """Give all locks back."""
        await self.unlock(self._group.queues)

    def _turn(self, broker_name: str) -> asyncio.Lock:
        """Turns of the requests to a broker, whose locks are renewed from the first one on."""
        turn = self._turns.get(broker_name)
        if turn is None:
            turn = self._turns[broker_name] = asyncio.Lock()
            # each by itself: locks at others would end before a broker that is away has not answered
            self._group.client.spawn(self._renew_service(broker_name))
        return turn

    async def _unlock(self, broker_name: str, locked: list[ProcessQueue]) -> None:
        group = self._group
        async with self._turn(broker_name):
            for one in locked:
                one.locked_at, one.is_lock_asked = None, False
            keys = [one.queue for one in locked]
            try:
                await group.api.unlock(group.client.master(broker_name), group.name, group.client.client_id, keys)
            except ReputError as error:
                peers.failed("locks were not given back", error, broker=broker_name)

    async def _lock(self, queues: list[ProcessQueue]) -> None:
        """Lock queues of one broker."""
        async with self._turn(queues[0].queue.broker_name):
            await self._lock_in_turn(queues)

    async def _lock_in_turn(self, queues: list[ProcessQueue]) -> None:
        begun = asyncio.get_running_loop().time()
        group = self._group
        address = group.client.master(queues[0].queue.broker_name)
        await group.connect(queues[0].queue)
        for one in queues:
            one.is_lock_asked = True
        locked = await group.api.lock(address, group.name, group.client.client_id, [one.queue for one in queues])
        back = [one for one in queues if one.queue in locked and one.locked_s(begun) is None]
        for one in queues:
            if one not in back:
                one.is_lock_asked = False
                one.locked_at = begun if one.queue in locked else None
        for one in back:
            await self._catch_up(one)
            one.is_lock_asked, one.locked_at = False, begun

    async def _catch_up(self, one: ProcessQueue) -> None:
        """Go on where another member has committed that had a queue meanwhile; a queue that begins asks itself."""
        if _handled_before(one) is None:
            return
        committed = await self._group.committed(one.queue)
        offset = _handled_before(one)  # it may be moved, or left, meanwhile
        if committed is not None and offset is not None and committed > offset:
            tell_moved(one.queue, offset, committed)
            one.move(committed)

    async def _renew_service(self, broker_name: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            async with self._turn(broker_name):
                held = [one for one in self._held() if one.queue.broker_name == broker_name]
                try:
                    if held:
                        await self._lock_in_turn(held)
                except ReputError as error:
                    peers.failed("locks were not renewed", error, broker=broker_name)

    def _held(self) -> list[ProcessQueue]:
        return [one for one in self._group.queues if one.locked_at is not None]


def _handled_before(one: ProcessQueue) -> int | None:
    """The offset that this member has come to by itself; None before that, and for one that it was told."""
    return None if one.is_moved else one.offset


def _by_broker(queues: Iterable[ProcessQueue]) -> list[tuple[str, list[ProcessQueue]]]:
    """Queues by their brokers, in order."""
    in_order = sorted(queues, key=lambda one: (one.queue.broker_name, one.queue))
    return [(name, list(of_broker)) for name, of_broker in groupby(in_order, lambda one: one.queue.broker_name)]
