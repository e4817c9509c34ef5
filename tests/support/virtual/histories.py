"""Histories of a group of consumers, drawn by a seed: members join, leave and die, brokers too, operators reset."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from reput.client import Message, MessageClientExt, MessageQueue, PullConsumer, PushConsumer
from reput.errors import ReputError
from reput.remoting.codes import RequestCode
from reput.transport.connection import Connection
from tests.support.virtual.ledger import Ledger
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.quiet import LOCK_S, MOST_MEMBERS, Quiet
from tests.support.virtual.servers import Faults, ModelBroker
from tests.support.virtual.shares import given_to

GROUP, TOPIC, NAMESRV = "g", "orders", "10.0.0.100:9876"
#: A handler takes so many seconds at most: shorter than a lock that is trusted and not renewed may live on.
_SLOW_S = 25.0


class Member:
    """One consumer, from its start to its end."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._is_leaving = asyncio.Event()
        self.consumer: PushConsumer | PullConsumer = self._made()
        self.task = asyncio.get_running_loop().create_task(self._live())

    def _made(self) -> PushConsumer | PullConsumer:
        world = self._world
        more: dict[str, Any] = {"group": GROUP, "topics": {TOPIC: "*"}, "consume_from": "first"}
        if world.kind in ("pull", "tail"):
            return PullConsumer(NAMESRV, **more)
        return PushConsumer(
            NAMESRV, on_message=self._handle, orderly=world.kind == "orderly", concurrency=world.concurrency,
            consume_timeout=world.consume_timeout_s, **more,
        )  # fmt: skip

    @property
    def queues(self) -> set[MessageQueue]:
        """Of the topic."""
        return {queue for queue in self.consumer.assignment if queue.topic == TOPIC}

    @property
    def client_id(self) -> str:
        group = self.consumer._group
        return "" if group is None else group.client.client_id

    async def leave(self) -> None:
        self._is_leaving.set()
        await self.task

    async def die(self) -> None:
        """End as a process that is killed."""
        self.task.cancel()
        group = self.consumer._group
        tasks = [self.task]
        if group is not None:
            client = group.client
            client.is_open = False
            tasks += client._tasks
            for task in list(client._tasks):
                task.cancel()
            client.remoting.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._world.dead()

    async def _live(self) -> None:
        while not self._is_leaving.is_set():
            try:
                await self.consumer.start()
                break
            except ReputError:  # nobody answers
                await asyncio.sleep(1.0)
        else:
            return
        work = {"pull": self._poll, "tail": self._tail}.get(self._world.kind, self._is_leaving.wait)
        try:
            await work()
        finally:
            if self.consumer._group is not None and self.consumer._group.client.is_open:
                await self.consumer.__aexit__(None, None, None)

    async def _poll(self) -> None:
        consumer = self.consumer
        assert isinstance(consumer, PullConsumer)
        while not self._is_leaving.is_set():
            try:
                for message in await consumer.poll(self._world.chance.choice((1, 5, 1000)), timeout=1.0):
                    await self._handle_quietly(message)
                if self._world.chance.random() < 0.5 or self._world.is_quiet:
                    await consumer.commit()
            except ReputError:  # a refusal of a broker
                await asyncio.sleep(0.5)
        with suppress(ReputError):
            await consumer.commit()

    async def _tail(self) -> None:
        consumer = self.consumer
        assert isinstance(consumer, PullConsumer)
        while not self._is_leaving.is_set():
            try:
                async for message in consumer.tail(timeout=1.0):
                    await self._handle_quietly(message)
                    if self._is_leaving.is_set():
                        break
            except ReputError:
                await asyncio.sleep(0.5)

    async def _handle_quietly(self, message: MessageClientExt) -> None:
        """The loop of a program that tries again until a message is handled."""
        while True:
            try:
                return await self._handle(message)
            except ValueError:
                await asyncio.sleep(0.1)

    async def _handle(self, message: MessageClientExt) -> None:
        world, ledger = self._world, self._world.ledger
        queue, offset = message.queue, message.queue_offset
        ledger.begun(self.name, self.client_id, queue, offset)
        is_done = False
        try:
            await world.work()
            is_done = world.is_quiet or world.chance.random() >= world.fail_share
            if not is_done:
                raise ValueError("no")
        finally:
            ledger.ended(self.name, queue, offset, is_done=is_done)


class World:
    """A cluster, a group, and what happens to them."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, kind: str) -> None:
        self.kind = kind
        self.chance = chance
        self.is_quiet = False
        self.concurrency = chance.choice((1, 2, 20))
        self.consume_timeout_s = chance.choice((10.0, 900.0))
        self.fail_share = chance.choice((0.0, 0.05, 0.3))
        self.slow_share = chance.choice((0.02, 0.1, 0.3) if kind == "orderly" else (0.0, 0.02, 0.1))
        self.ledger = Ledger(loop.time, is_orderly=kind == "orderly", lock_is_lost=self._lock_is_lost)
        self.members: list[Member] = []
        self.last_lock_at = -1e9  # that may live on, since nobody gave it back
        self._running: set[asyncio.Task[None]] = set()
        self.loop = loop
        self._quiet = asyncio.Event()
        self._number = 0
        self._queues = chance.choice((1, 2, 3, 4))
        names = ("broker-a", "broker-b")[: chance.choice((1, 1, 2))]
        self.brokers = [
            ModelBroker(
                loop,
                name,
                f"10.0.0.{number}:10911",
                chance,
                GROUP,
                (TOPIC,),
                self.ledger.committed,
                self.ledger.begins_at,
                self._told,
            )
            for number, name in enumerate(names, 1)
        ]
        for broker in self.brokers:
            broker.sent_back, broker.on_lock = self._sent_back, self.ledger.locked
        self.name_server = ModelNameServer(loop, NAMESRV, chance, self.brokers, self._queues)
        for server in (self.name_server, *self.brokers):
            server.start()
        self.queues = [
            MessageQueue(TOPIC, broker.name, queue_id) for broker in self.brokers for queue_id in range(self._queues)
        ]

    def broker_of(self, queue: MessageQueue) -> ModelBroker:
        return next(one for one in self.brokers if one.name == queue.broker_name)

    def _lock_is_lost(self, queue: MessageQueue, since: float) -> bool:
        """A broker that was killed has forgotten who has locked its queues: RocketMQ keeps that nowhere."""
        return self.broker_of(queue).killed_at + LOCK_S > since

    def _sent_back(self, queue: MessageQueue, offset: int, is_dead: bool) -> None:
        self.ledger.settled(queue, offset)
        self.ledger.counts["dead letters" if is_dead else "messages sent back"] += 1

    def _told(self, queue: MessageQueue, connection: Connection | None) -> None:
        """A pull is told of a reset: of a member that has given its queue up it is lost."""
        by_id = {id(known): one for one, known in self.broker_of(queue).members.items()}
        heard = by_id.get(id(connection))
        owners = {one.client_id for one in self.members if queue in one.consumer.assignment}
        self.ledger.told(queue, is_heard=owners == {heard})

    async def work(self) -> None:
        """Work of a handler: wait."""
        chance = self.chance
        if self.is_quiet:
            await asyncio.sleep(0.001)
            return
        if chance.random() >= self.slow_share:
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.1)))
            return
        try:
            async with asyncio.timeout(chance.uniform(1, _SLOW_S)):
                await self._quiet.wait()
        except TimeoutError:
            pass

    async def watch(self) -> None:
        """Each member has the queues that it was given last."""
        while not self.ledger.broken:
            for member in self.members:
                table = member.consumer._queues
                if (given := given_to(table)) != (has := table.share()):
                    self.ledger.broken.append(f"{member.name} was given {sorted(given)}, and has {sorted(has)}")
            await asyncio.sleep(0.2)

    async def feed(self) -> None:
        """Messages come, until it is quiet."""
        while not self.is_quiet:
            queue = self.chance.choice(self.queues)
            for _ in range(self.chance.choice((1, 1, 1, 5, 40))):
                self.broker_of(queue).put(queue, Message(TOPIC, b"x"))
            await asyncio.sleep(self.chance.choice((0.01, 0.3, 2.0)))

    # -- what happens

    def happenings(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """Happenings of a step, by chance; one that stands here twice happens twice as often."""
        return (
            self.join, self.join, self._visit, self._visit, self.leave, self.die, self.restart, self.cut,
            self.reset, self.reset, self.trouble,
        )  # fmt: skip

    async def step(self) -> None:
        happens = self.chance.choice(self.happenings())
        self.ledger.counts[happens.__name__.strip("_")] += 1
        await happens()

    async def join(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            self._number += 1
            self.members.append(Member(self, f"member {self._number}"))

    async def leave(self) -> None:
        if self.members:
            member = self.chance.choice(self.members)
            self.members.remove(member)
            self.background(member.leave())

    async def _visit(self) -> None:
        chance = self.chance
        await self.visit(chance.choice(("0", "z")), chance.choice((0.05, 0.5, 3.0)), chance.choice((0.0, 0.0, 4.0)))

    async def visit(self, name: str, seconds: float, late_s: float) -> None:
        """A member comes and goes at once: queues leave members, and come back before their end is over.

        It is before all others, or behind them, by its name. Messages come before and in between, so that there is
        something to commit for who leaves a queue, whose commit is answered late, and for who has it meanwhile.
        """
        for broker in self.brokers:
            broker.answers_late[RequestCode.UPDATE_CONSUMER_OFFSET] = late_s
        self._put_to_all()
        await asyncio.sleep(0.2)
        for broker in self.brokers:
            self.background(broker.visited(name, seconds))
        await asyncio.sleep(seconds / 3)
        self._put_to_all()
        await asyncio.sleep(seconds * 2 / 3 + late_s)
        for broker in self.brokers:
            broker.answers_late.clear()

    def _put_to_all(self) -> None:
        for queue in self.queues:
            self.broker_of(queue).put(queue, Message(TOPIC, b"x"))

    async def die(self) -> None:
        if self.members:
            member = self.chance.choice(self.members)
            self.members.remove(member)
            await member.die()
            self.ledger.counts["members that died"] += 1

    def dead(self) -> None:
        """A member has died: its locks live on."""
        self.last_lock_at = self.loop.time()

    async def restart(self) -> None:
        broker = self.chance.choice(self.brokers)
        if broker.is_up:
            self.background(self._restarted(broker))

    async def _restarted(self, broker: ModelBroker) -> None:
        self.ledger.undo(broker.name)
        broker.kill()
        self.ledger.counts["brokers killed"] += 1
        is_forgotten = self.chance.random() < 0.5
        if is_forgotten:
            self.name_server.knows.discard(broker.name)
        try:
            async with asyncio.timeout(self.chance.choice((0.1, 3.0, 20.0))):
                await self._quiet.wait()
        except TimeoutError:
            pass
        broker.start()
        self.name_server.knows.add(broker.name)

    async def cut(self) -> None:
        server = self.chance.choice((self.name_server, *self.brokers))
        if isinstance(server, ModelBroker):
            self.ledger.undo(server.name)
        server.cut()
        self.last_lock_at = self.loop.time()

    async def reset(self) -> None:
        queue = self.chance.choice(self.queues)
        broker = self.broker_of(queue)
        if not broker.is_up:
            return
        offset = self.chance.choice((0, broker.end(queue), self.chance.randint(0, broker.end(queue))))
        is_sure = self.chance.random() < 0.7
        self.ledger.reset(queue, offset, is_sure=is_sure)
        if is_sure:
            broker.reset(queue, offset)
        else:
            broker.reset_members(queue, offset)

    async def trouble(self) -> None:
        server = self.chance.choice((self.name_server, *self.brokers))
        late_s = self.chance.choice((0.0, 0.5, 5.0, 10.0))
        server.faults = Faults(late_s, self.chance.choice((0.0, 0.3)), self.chance.choice((0.0, 0.05)))
        self.background(self._healed(server))

    async def _healed(self, server: ModelBroker | ModelNameServer) -> None:
        try:
            async with asyncio.timeout(self.chance.uniform(1.0, 20.0)):
                await self._quiet.wait()
        except TimeoutError:
            pass
        server.faults = Faults()
        self.last_lock_at = self.loop.time()

    async def calm(self) -> None:
        """Nothing happens any more."""
        self.is_quiet = True
        self._quiet.set()
        await asyncio.gather(*self._running)
        if not self.members:
            await self.join()

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def check(self) -> None:
        """Check the group once nothing happens any more."""
        await Quiet(self).check()

    def in_place(self) -> AbstractContextManager[None]:
        """Parts in the place of the machine's that consumers use, while the world is there."""
        return nullcontext()
