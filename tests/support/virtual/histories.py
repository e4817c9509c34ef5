"""Histories of a group of consumers, drawn by a seed: members join, leave and die, brokers too, operators reset."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from reput.client import Message, MessageClientExt, MessageQueue, PullConsumer, PushConsumer
from reput.client.instance import client_instance
from reput.errors import ReputError
from reput.transport.connection import Connection
from tests.support.virtual.ledger import Ledger
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import Faults, ModelBroker, ModelNameServer

KINDS = "concurrent", "orderly", "pull", "tail"
GROUP, TOPIC, NAMESRV = "g", "orders", "10.0.0.100:9876"
_MOST_MEMBERS, _STEPS = 4, 16
#: Seconds of quiet after which each queue has one member. A lock whose member has died lives for a minute.
QUIET_S, LOCK_S = 30.0, 60.0
#: A push consumer commits what is handled within so many seconds.
COMMIT_S = 8.0
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
        ledger.begun(self.name, queue, offset)
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
        self._loop = loop
        self._quiet = asyncio.Event()
        self._number = 0
        self._queues = chance.choice((1, 2, 3, 4))
        names = ("broker-a", "broker-b")[: chance.choice((1, 1, 2))]
        self.brokers = [
            ModelBroker(
                loop, name, f"10.0.0.{number}:10911", chance, GROUP, (TOPIC,), self.ledger.committed, self._told
            )
            for number, name in enumerate(names, 1)
        ]
        for broker in self.brokers:
            broker.sent_back = self._sent_back
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
        """What a handler does: wait."""
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

    async def feed(self) -> None:
        """Messages come, until it is quiet."""
        while not self.is_quiet:
            queue = self.chance.choice(self.queues)
            for _ in range(self.chance.choice((1, 1, 1, 5, 40))):
                self.broker_of(queue).put(queue, Message(TOPIC, b"x"))
            await asyncio.sleep(self.chance.choice((0.01, 0.3, 2.0)))

    # -- what happens

    async def step(self) -> None:
        happens = self.chance.choice(
            (
                self._join,
                self._join,
                self._leave,
                self._die,
                self._restart,
                self._cut,
                self._reset,
                self._reset,
                self._trouble,
            )
        )
        self.ledger.counts[happens.__name__.strip("_")] += 1
        await happens()

    async def _join(self) -> None:
        if len(self.members) < _MOST_MEMBERS:
            self._number += 1
            self.members.append(Member(self, f"member {self._number}"))

    async def _leave(self) -> None:
        if self.members:
            member = self.chance.choice(self.members)
            self.members.remove(member)
            self._background(member.leave())

    async def _die(self) -> None:
        if self.members:
            member = self.chance.choice(self.members)
            self.members.remove(member)
            await member.die()
            self.ledger.counts["members that died"] += 1

    def dead(self) -> None:
        """A member has died: its locks live on."""
        self.last_lock_at = self._loop.time()

    async def _restart(self) -> None:
        broker = self.chance.choice(self.brokers)
        if broker.is_up:
            self._background(self._restarted(broker))

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

    async def _cut(self) -> None:
        server = self.chance.choice((self.name_server, *self.brokers))
        if isinstance(server, ModelBroker):
            self.ledger.undo(server.name)
        server.cut()
        self.last_lock_at = self._loop.time()

    async def _reset(self) -> None:
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

    async def _trouble(self) -> None:
        server = self.chance.choice((self.name_server, *self.brokers))
        late_s = self.chance.choice((0.0, 0.5, 5.0, 10.0))
        server.faults = Faults(late_s, self.chance.choice((0.0, 0.3)), self.chance.choice((0.0, 0.05)))
        self._background(self._healed(server))

    async def _healed(self, server: ModelBroker | ModelNameServer) -> None:
        try:
            async with asyncio.timeout(self.chance.uniform(1.0, 20.0)):
                await self._quiet.wait()
        except TimeoutError:
            pass
        server.faults = Faults()
        self.last_lock_at = self._loop.time()

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # -- the end

    async def settle(self) -> None:
        """Nothing happens any more: each queue has one member, a new message is handled once, and all is committed."""
        self.is_quiet = True
        self._quiet.set()
        await asyncio.gather(*self._running)
        if not self.members:
            await self._join()
        begun = self._loop.time()
        limit = QUIET_S + (LOCK_S if self.kind == "orderly" and begun - self.last_lock_at < LOCK_S else 0.0)
        while self._shares() != sorted(self.queues) and self._loop.time() < begun + QUIET_S + 1:
            await asyncio.sleep(0.5)
        settled_s = self._loop.time() - begun
        if settled_s > QUIET_S:
            shares = {one.name: sorted(one.queues) for one in self.members}
            self.ledger.broken.append(f"after {settled_s:.0f} s of quiet the queues are not shared: {shares}")
        await asyncio.sleep(QUIET_S - settled_s)
        await self._until(self._all_is_handled, limit)
        await self._reset_in_quiet(limit)
        await self._probe(limit)
        for member in list(self.members):
            await member.leave()
        for queue in self._all_queues():
            broker = self.broker_of(queue)
            self.ledger.check_end(queue, broker.end(queue), broker.offsets.get(queue))

    def _shares(self) -> list[MessageQueue]:
        return sorted(queue for one in self.members for queue in one.queues)

    def _all_queues(self) -> list[MessageQueue]:
        return [queue for broker in self.brokers for queue in broker.records if not queue.topic.startswith("%DLQ%")]

    def _all_is_handled(self) -> bool:
        return not any(one.retries for one in self.brokers) and all(map(self._is_handled, self._all_queues()))

    def _is_handled(self, queue: MessageQueue) -> bool:
        one, broker = self.ledger.queue(queue), self.broker_of(queue)
        end = broker.end(queue)
        return (
            queue not in broker.resets and len(one.ever | one.passed) >= end and (one.is_undone or one.frontier >= end)
        )

    async def _until(self, holds: Callable[[], bool], limit_s: float) -> None:
        until = self._loop.time() + limit_s
        while not holds() and self._loop.time() < until:
            await asyncio.sleep(0.5)

    async def _reset_in_quiet(self, limit: float) -> None:
        """What is handled again after a reset is committed, also where nothing new comes."""
        await asyncio.sleep(COMMIT_S)
        for queue in self.chance.sample(self.queues, self.chance.randint(0, len(self.queues))):
            broker = self.broker_of(queue)
            offset = self.chance.randint(0, broker.end(queue))
            self.ledger.reset(queue, offset, is_sure=True)
            broker.reset(queue, offset)
        await self._until(self._all_is_handled, limit)
        await asyncio.sleep(COMMIT_S)
        for queue in self._all_queues():
            broker = self.broker_of(queue)
            self.ledger.check_end(queue, broker.end(queue), broker.offsets.get(queue))

    async def _probe(self, limit: float) -> None:
        """A message in each queue is handled by one member, once, and committed within the time of a push consumer."""
        probes = [(queue, self.broker_of(queue).put(queue, Message(TOPIC, b"probe"))) for queue in self.queues]
        await self._until(lambda: all(self.ledger.handlers[probe] for probe in probes), limit)
        await asyncio.sleep(COMMIT_S)
        for queue, offset in probes:
            times, at = self.ledger.handlers[queue, offset], self.broker_of(queue).offsets.get(queue)
            if times != 1 or at != offset + 1:
                self.ledger.broken.append(
                    f"{queue} {offset}: a new message is handled {times} times, {at} is committed"
                )


class _Errors(logging.Handler):
    """What is logged as an error of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def _no_errors() -> Iterator[_Errors]:
    errors, loggers = _Errors(), [logging.getLogger(name) for name in ("reput.client", "reput.transport")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(errors)
        logger.setLevel(logging.ERROR)
    try:
        yield errors
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(errors)
            logger.setLevel(level)


def run(kind: str, seed: int) -> Counter[str]:
    """One history; raises AssertionError with what was broken."""
    chance = random.Random(f"{kind} {seed}")
    random.seed(seed)
    with (
        _no_errors() as errors,
        patch.object(client_instance, "_RANDOM", random.Random(seed)),
        patch("reput.transport.connection._TURN_S", 60.0),  # the machine's time has no part in it
        asyncio.Runner(loop_factory=lambda: VirtualLoop(chance)) as runner,
    ):
        ledger = runner.run(_history(chance, kind))
    broken = ledger.broken + errors.found
    assert not broken, f"{kind} {seed}: {len(broken)} broken: " + "; ".join(broken[:5])
    return ledger.counts


async def _history(chance: random.Random, kind: str) -> Ledger:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    world = World(loop, chance, kind)
    await world.step()
    feeding = loop.create_task(world.feed())
    for _ in range(_STEPS):
        await asyncio.sleep(chance.choice((0.01, 1.0, 5.0, 15.0)))
        await world.step()
    await world.settle()
    await feeding
    return world.ledger
