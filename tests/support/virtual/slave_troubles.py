"""Histories of brokers with a slave each, which serves a group's members while the master is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from reput.client import MessageQueue
from reput.remoting.queue_tables import QueueKey
from reput.transport.connection import Connection
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.quiet import COMMIT_S, QUIET_S
from tests.support.virtual.servers import ModelBroker
from tests.support.virtual.slaves import ModelSlave
from tests.support.virtual.troubles import Troubled, TroubledBroadcasts

#: A slave that has nothing to do but to copy has all of its master after so many seconds.
_COPIED_S = 10.0
#: Messages of a pull.
_PULLED = 32


class WithSlaves(Troubled):
    """A world whose brokers have slaves, with more troubles."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, kind: str) -> None:
        super().__init__(loop, chance, kind)
        self.slaves = [self._slave(number, broker) for number, broker in enumerate(self.brokers, 1)]
        self._copying = [loop.create_task(slave.copy_all()) for slave in self.slaves]

    def _slave(self, number: int, master: ModelBroker) -> ModelSlave:
        """A slave, registered; what is committed at it, or asked, is the group's as at its master."""
        knows = self.name_server.knows
        slave = ModelSlave(self.loop, master, f"10.0.1.{number}:10911", self.chance, lambda: master.name in knows)
        on_commit, on_begin = master._on_commit, master._on_begin
        for one in (master, slave):
            one._on_commit = self._by_client(on_commit, one)
            one._on_begin = self._by_client(on_begin, one)
        self.name_server.slaves[master.name] = slave
        slave.start()
        return slave

    def _by_client(
        self, told: Callable[[QueueKey, int, Hashable], None], at: ModelBroker
    ) -> Callable[[QueueKey, int, Connection], None]:
        """A member is the same one at master and slave, whatever its connection."""

        def tell(queue: QueueKey, offset: int, connection: Connection) -> None:
            self.ledger.counts["offsets at slaves"] += isinstance(at, ModelSlave)
            told(queue, offset, self.loop.net.client_of(connection))

        return tell

    def happenings(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        more = self._lose_master, self._forget_master, self._lose_slave, self._hold_up_slave
        return (*super().happenings(), *more, *more, self._lose_master, self._lose_master)

    async def reset(self) -> None:
        """As ever; but a slave knows of a reset later, and of none while it does not copy."""
        await super().reset()
        for slave in self.slaves:
            if slave.name not in self.name_server.knows or not slave.is_copying:
                self._undo(slave)

    async def _lose_master(self) -> None:
        """A master is away, and its slave serves, once the name server has forgotten the master."""
        broker = self.chance.choice(self.brokers)
        if broker.is_up:
            self.background(self._master_lost(broker))

    async def _master_lost(self, broker: ModelBroker) -> None:
        self._undo(broker)
        broker.kill()
        self.ledger.counts["masters away"] += 1
        if self.chance.random() < 0.3:
            self.loop.net.silent.add(broker.address)
        await self._while_it_lasts(0.0, self.chance.choice((0.1, 20.0)))
        self.name_server.knows.discard(broker.name)
        if self.chance.random() < 0.4:
            await self.join()
        if self.chance.random() < 0.3:
            await self.leave()
        await self._while_it_lasts(0.5, 90)
        self._return(broker)

    def _return(self, broker: ModelBroker) -> None:
        self.loop.net.silent.discard(broker.address)
        broker.start()
        self.name_server.knows.add(broker.name)
        self._undo(broker)
        self.last_lock_at = self.loop.time()

    async def _forget_master(self) -> None:
        """The name server does not see a master that goes on: members are at both."""
        self.background(self._forgotten(self.chance.choice(self.brokers)))

    async def _forgotten(self, broker: ModelBroker) -> None:
        self._undo(broker)
        self.name_server.knows.discard(broker.name)
        await self._while_it_lasts(0.5, 60)
        self._return(broker)

    async def _lose_slave(self) -> None:
        """A slave is away, and the name server may not see it."""
        slave = self.chance.choice(self.slaves)
        if slave.is_up:
            self.background(self._slave_lost(slave))

    async def _slave_lost(self, slave: ModelSlave) -> None:
        self._undo(slave)
        slave.kill()
        self.ledger.counts["slaves away"] += 1
        if self.chance.random() < 0.3:
            self.loop.net.silent.add(slave.address)
        if self.chance.random() < 0.5:
            self.name_server.slaves.pop(slave.name, None)
        await self._while_it_lasts(0.5, 60)
        self.loop.net.silent.discard(slave.address)
        slave.start()
        self.name_server.slaves[slave.name] = slave

    async def _hold_up_slave(self) -> None:
        """A slave copies nothing for a while."""
        self.background(self._held_up(self.chance.choice(self.slaves)))

    async def _held_up(self, slave: ModelSlave) -> None:
        self._undo(slave)
        slave.is_copying = False
        await self._while_it_lasts(0.5, 60)
        slave.is_copying = True

    # -- once nothing happens any more

    async def check(self) -> None:
        """Check the group while slaves serve it alone, or one of them is lost for ever; then as ever."""
        await self._check_alone()
        if self.chance.random() < 0.3:
            await self._lose_slave_for_ever()
        await super().check()
        for slave in self.slaves:
            self.ledger.counts["pulls that slaves served"] += slave.served
            if slave.asked_to_lock:
                self.ledger.broken.append(f"the slave of {slave.name} was asked for locks {slave.asked_to_lock} times")

    async def _lose_slave_for_ever(self) -> None:
        """A slave stays away, perhaps in the middle of what it serves, and the name server does not see it."""
        slave = self.chance.choice(self.slaves)
        await asyncio.sleep(QUIET_S)  # all are at the master by then
        for _ in range(6 * _PULLED):
            self._put_to_all()
        await asyncio.sleep(self.chance.uniform(0.0, 0.2))
        self._undo(slave)
        slave.kill()

    async def _check_alone(self) -> None:
        """Check that members are served while all masters are away, but for locks."""
        if self.chance.random() < 0.5:
            return
        await asyncio.sleep(_COPIED_S)
        self._put_to_all()  # what is committed at last is in no file yet
        await asyncio.sleep(self.chance.uniform(0.5, COMMIT_S))
        for broker in self.brokers:
            self._undo(broker)
            broker.kill()
            self.name_server.knows.discard(broker.name)
        begun = self.loop.time()
        while self._shares() != sorted(self.queues) and self.loop.time() < begun + QUIET_S + 1:
            await asyncio.sleep(0.5)
        if self.loop.time() > begun + QUIET_S:
            self.ledger.broken.append(f"slaves are alone, and after {QUIET_S:g} s the queues are not shared")
        if self.kind != "orderly":
            await self._check_served()
        for broker in self.brokers:
            self._return(broker)

    def _shares(self) -> list[MessageQueue]:
        return sorted(queue for one in self.members for queue in one.queues)

    async def _check_served(self) -> None:
        """Check that members have handled what slaves have, and committed it there."""
        await asyncio.sleep(QUIET_S + COMMIT_S)
        for slave in self.slaves:
            for queue, records in slave.records.items():
                if not queue.topic.startswith("%DLQ%"):
                    self._check_queue(queue, len(records), slave.offsets.get(queue, 0))

    def _check_queue(self, queue: QueueKey, end: int, committed: int) -> None:
        one = self.ledger.queue(queue)
        if missing := sorted(set(range(end)) - one.ever - one.passed):
            self.ledger.broken.append(f"slaves are alone: of {queue} {missing[:5]} of {end} were never handled")
        if committed < end:  # members may have handled what the slave has not
            self.ledger.broken.append(f"slaves are alone: of {queue} {committed} of {end} is committed")


class BroadcastsWithSlaves(WithSlaves, TroubledBroadcasts):
    """Broadcasting consumers whose brokers have slaves."""

    async def _check_served(self) -> None:
        """Check that each member has handled what slaves have, or more, as its master lived for longer, and kept it."""
        await asyncio.sleep(QUIET_S + COMMIT_S)
        for slave in self.slaves:
            for queue in [queue for queue in self.queues if queue.broker_name == slave.name]:
                for member in self.members:
                    reach = self.reference.queue(member.name, queue).reach
                    self.reference.check_end(member.name, queue, max(slave.end(queue), reach))

    def _shares(self) -> list[MessageQueue]:
        return sorted(self.queues)
