"""Members of a group while the master of their queues is away, and when it comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.client import Message, MessageClientExt, MessageQueue, MQClientError, Producer, PullConsumer, PushConsumer
from reput.client.consuming.consumer_api import ConsumerAPI, PullResult
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.process_queue import ProcessQueue, ProcessQueueTable
from reput.client.consuming.queue_locks import QueueLocks
from reput.client.instance.topic_route import MASTER_ID
from reput.errors import RemotingError
from reput.formats.consumers import ConsumeType
from reput.remoting.codes import RequestCode
from reput.remoting.subscription_data import build_subscription_data
from tests.support.master_and_slave import NUMBERS, Pair, fill, hurry, name_server, until_copied
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import Faults, ModelBroker
from tests.support.virtual.slaves import SLAVE_ID, ModelSlave

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A pair whose slave is alone, with all messages."""
    hurry(monkeypatch)
    with name_server(tmp_path) as namesrv:
        pair = Pair(tmp_path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            until_copied(master, slave)
            master.close()
            yield pair


async def test_a_slave_tells_offsets_and_keeps_those_of_groups(pair: Pair) -> None:
    async with PullConsumer(pair.namesrv, group="p") as consumer:
        assert list(await consumer.queues("orders")) == QUEUES
        consumer.assign(QUEUES)
        for queue in QUEUES:
            await consumer.seek_to_end(queue)
            assert consumer.position(queue) == len(NUMBERS) // 2
            assert await consumer.offset_of_time(queue, datetime(2020, 1, 1, tzinfo=UTC)) == 0
            await consumer.seek_to_begin(queue)
        found: list[int] = []
        while len(found) < len(NUMBERS):
            found += [int(one.body) for one in await consumer.poll(timeout=30)]
        assert sorted(found) == list(NUMBERS)
        await consumer.commit()
        assert [await consumer.committed(queue) for queue in QUEUES] == [5, 5]


async def test_a_slave_takes_no_message_and_locks_no_queue(pair: Pair) -> None:
    async with Producer(pair.namesrv, group="p") as producer:
        with pytest.raises(MQClientError, match="no queue that takes messages: the master of broker-a is away"):
            await producer.send(Message("orders", b"x"))
    group = ConsumerGroup(
        pair.namesrv, "g", {}, consume_type=ConsumeType.CONSUME_PASSIVELY, queues=ProcessQueueTable(ProcessQueue)
    )
    await group.start()
    try:
        await group.client.routes.subscribe_queues("orders")
        locks, one = QueueLocks(group), ProcessQueue(QUEUES[0])
        with pytest.raises(RemotingError, match="the master of broker-a is away, and a slave changes nothing"):
            await locks.lock(one)
        assert not locks.is_held(one)
    finally:
        await group.close()


async def test_a_reader_that_a_slave_sends_to_its_master_finds_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route that it has is older, and is not refreshed soon; meanwhile it does not ask the slave all the time."""
    pulls: list[str] = []
    pull = ConsumerAPI.pull

    async def counted(self: ConsumerAPI, address: str, *arguments: Any, **more: Any) -> PullResult:
        pulls.append(address)
        return await pull(self, address, *arguments, **more)

    monkeypatch.setattr("reput.client.instance.client_instance._REFRESH_S", 3600.0)
    monkeypatch.setattr("reput.client.consuming.consumer_api.SUSPEND_MS", 100)  # so long the slave holds a pull
    async with PullConsumer(pair.namesrv, group="back", topics={"orders": "*"}, consume_from="first") as consumer:
        found = 0
        while found < len(NUMBERS):
            found += len(await consumer.poll(timeout=30))
        master: Broker = await asyncio.to_thread(pair.start, "master")
        monkeypatch.setattr(ConsumerAPI, "pull", counted)
        try:
            routes = consumer._open_group().client.routes
            while MASTER_ID not in routes.broker("broker-a"):
                await consumer.poll(timeout=0.05)
        finally:
            await asyncio.to_thread(master.close)
    assert len(pulls) < 50


async def test_a_slave_gives_messages_while_its_master_that_is_registered_cannot_be_reached(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ConsumerGroup(
        pair.namesrv, "g", {}, consume_type=ConsumeType.CONSUME_PASSIVELY, queues=ProcessQueueTable(ProcessQueue)
    )
    await group.start()
    try:
        await group.client.routes.subscribe_queues("orders")
        slave = group.serving(QUEUES[0])
        monkeypatch.setattr(
            group.client.routes, "address", lambda _, broker_id=MASTER_ID: slave if broker_id else "127.0.0.1:1"
        )
        one = ProcessQueue(QUEUES[0])
        one.offset, one.suggested_broker_id = 3, 1
        commits: list[int | None] = []
        pull = ConsumerAPI.pull

        async def seen(self: ConsumerAPI, *arguments: Any, **more: Any) -> PullResult:
            commits.append(more["commit_offset"])
            return await pull(self, *arguments, **more)

        monkeypatch.setattr(ConsumerAPI, "pull", seen)
        assert (await group.pull(one, 0, count=32, commits=True)).body
        assert commits == [None]  # the master has them
        one.needs_lock = True
        with pytest.raises(RemotingError, match=r"^127\.0\.0\.1:1: "):
            await group.pull(one, 0, count=32, commits=True)
    finally:
        await group.close()


async def test_a_member_gets_its_share_though_one_broker_of_the_topic_does_not_answer(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    consumer_ids = ConsumerAPI.consumer_ids

    async def counted(self: ConsumerAPI, address: str, group: str) -> list[str]:
        asked.append(address)
        return await consumer_ids(self, address, group)

    monkeypatch.setattr(ConsumerAPI, "consumer_ids", counted)
    subscriptions = {"orders": build_subscription_data("orders", "*")}
    group = ConsumerGroup(
        pair.namesrv,
        "g",
        subscriptions,
        consume_type=ConsumeType.CONSUME_ACTIVELY,
        queues=ProcessQueueTable(ProcessQueue),
    )  # fmt: skip
    await group.start()
    try:
        slave = str(group.client.routes.address("broker-a"))
        monkeypatch.setattr(group.client.routes, "brokers_of", lambda topic: ["127.0.0.1:1", slave])
        while "127.0.0.1:1" not in asked:
            assert await group._member_ids("orders") == [group.client.client_id]
        monkeypatch.setattr(group.client.routes, "brokers_of", lambda topic: [])
        with pytest.raises(RemotingError, match="topic orders: no broker of it is registered"):
            await group._member_ids("orders")
    finally:
        await group.close()


def served(act: Callable[[ModelBroker, ModelSlave, ModelNameServer, PushConsumer], Coroutine[Any, Any, None]]) -> None:
    """A consumer has handled five messages, in virtual time; a reader one message behind is sent to the slave."""

    async def play() -> None:
        loop, chance = asyncio.get_running_loop(), random.Random(0)
        assert isinstance(loop, VirtualLoop)
        master = ModelBroker(loop, "broker-a", "10.0.0.1:10911", chance, "g", ("orders",))
        name_server = ModelNameServer(loop, "10.0.0.100:9876", chance, [master], 1)
        slave = ModelSlave(loop, master, "10.0.1.1:10911", chance, lambda: "broker-a" in name_server.knows)
        slave.is_old, slave.far, slave.lag_s, slave.offsets_s = True, 1, 0.1, 5.0
        name_server.slaves["broker-a"] = slave
        for server in (master, slave, name_server):
            server.start()
        copying = loop.create_task(slave.copy_all())
        async with PushConsumer(
            name_server.address, group="g", topics={"orders": "*"}, consume_from="first", on_message=handle
        ) as consumer:
            await put(master)
            await act(master, slave, name_server, consumer)
        copying.cancel()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(0))) as runner:
        runner.run(play())


async def handle(message: MessageClientExt) -> None:
    """Handle a message in no time, and in no thread."""


async def put(master: ModelBroker) -> None:
    for _ in range(5):
        master.put(QUEUES[0], Message("orders", b"x"))
    await asyncio.sleep(6)
    assert master.offsets[QUEUES[0]] == master.end(QUEUES[0])


def test_a_reader_whose_slave_is_gone_goes_on_at_the_master_though_the_slave_is_registered() -> None:
    async def act(master: ModelBroker, slave: ModelSlave, _: ModelNameServer, __: PushConsumer) -> None:
        slave.kill()
        await put_twice(master)

    served(act)


def test_a_reader_of_a_slave_that_gives_no_messages_goes_on_at_the_master() -> None:
    async def act(master: ModelBroker, slave: ModelSlave, _: ModelNameServer, __: PushConsumer) -> None:
        slave.refuses.add(RequestCode.PULL_MESSAGE)
        await put_twice(master)

    served(act)


async def put_twice(master: ModelBroker) -> None:
    """Let the master send a reader to its slave, and have more messages then."""
    master.suggests = lambda _: SLAVE_ID
    await put(master)
    await put(master)


def test_an_offset_that_a_slave_has_lost_to_its_master_is_sent_again() -> None:
    """The name server does not see a master that is there, and its slave copies the master's offsets."""

    async def act(master: ModelBroker, slave: ModelSlave, name_server: ModelNameServer, consumer: PushConsumer) -> None:
        name_server.knows.discard("broker-a")
        await asyncio.sleep(60)
        assert slave.offsets[QUEUES[0]] == 5
        master.offsets[QUEUES[0]] = 0
        for _ in range(100):
            await asyncio.sleep(0.1)
            if not slave.offsets[QUEUES[0]]:
                break
        assert not slave.offsets[QUEUES[0]]
        await asyncio.sleep(5)
        assert slave.offsets[QUEUES[0]] == 5
        name_server.knows.add("broker-a")

    served(act)


def test_a_pull_does_not_tell_an_offset_that_the_broker_gave() -> None:
    """The member before may commit what it handled at last behind that answer: it would be put back."""

    async def act(master: ModelBroker, _: ModelSlave, __: ModelNameServer, consumer: PushConsumer) -> None:
        await asyncio.sleep(60)
        master.offsets[QUEUES[0]] = 9
        await asyncio.sleep(60)
        assert master.offsets[QUEUES[0]] == 9

    served(act)


def test_a_start_asks_for_the_routes_of_all_topics_at_once() -> None:
    async def play() -> None:
        loop, chance, topics = asyncio.get_running_loop(), random.Random(0), ("orders", "bills", "steps")
        assert isinstance(loop, VirtualLoop)
        master = ModelBroker(loop, "broker-a", "10.0.0.1:10911", chance, "g", topics)
        name_server = ModelNameServer(loop, "10.0.0.100:9876", chance, [master], 1)
        for server in (master, name_server):
            server.start()
        name_server.faults = Faults(late_s=2.0)
        since = loop.time()
        async with PushConsumer(name_server.address, group="g", topics=dict.fromkeys(topics, "*"), on_message=handle):
            assert loop.time() - since < 3.0

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(0))) as runner:
        runner.run(play())
