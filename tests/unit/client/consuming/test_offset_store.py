"""Offsets of a pull consumer at its broker, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from reput.client import Message, MessageQueue, PullConsumer
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.offset_store import RemoteBrokerOffsetStore
from reput.client.consuming.process_queue import ProcessQueue, ProcessQueueTable
from reput.client.consuming.pulled_queue import PulledQueue
from reput.errors import MQBrokerError, RemotingError
from reput.remoting.codes import ResponseCode
from reput.remoting.queue_tables import QueueKey
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import ModelBroker

NAMESRV = "10.0.0.100:9876"
QUEUE = MessageQueue("orders", "broker-a", 0)


#: A client whose brokers have masters.
CLIENT = SimpleNamespace(routes=SimpleNamespace(master=lambda _: "10.0.0.1:10911"))


async def connect(_: QueueKey) -> None:
    """Be connected."""


async def test_a_queue_that_is_left_or_moved_while_others_are_committed_is_not_committed_after_it() -> None:
    """Another member may be farther by then, or an operator has said where it goes on."""
    committed: list[tuple[int, int]] = []
    queues = ProcessQueueTable(ProcessQueue)

    async def commit(queue: QueueKey, offset: int) -> None:
        committed.append((queue.queue_id, offset))
        left, moved = (queues.known(QueueKey("orders", "broker-a", number)) for number in (1, 2))
        left.forget()
        moved.move(3)

    async def commit_at_each(broker_names: set[str], commit: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        for broker_name in broker_names:
            await commit(broker_name)

    group = SimpleNamespace(
        queues=queues, commit=commit, commit_at_each=commit_at_each, connect=connect, look_at_connections=lambda: None,
        client=CLIENT,
    )  # fmt: skip
    offsets = RemoteBrokerOffsetStore(cast("ConsumerGroup", group))
    for number in range(3):
        queues.known(QueueKey("orders", "broker-a", number)).offset = 10 + number
    await offsets.persist()
    assert committed == [(0, 10)]
    await offsets.persist()
    assert committed == [(0, 10), (2, 3)]


async def test_a_pulled_queue_that_is_dropped_while_others_are_committed_is_not_committed_after_it() -> None:
    """It may be this member's again by then, at an offset that another member has committed."""
    committed: list[int] = []
    queues = ProcessQueueTable(lambda queue: PulledQueue(group, queue, offsets, lambda: None))

    async def commit(queue: QueueKey, offset: int) -> None:
        committed.append(offset)
        if queue.queue_id == 0:
            queues.known(QueueKey("orders", "broker-a", 1)).drop()

    async def commit_at_each(broker_names: set[str], commit: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        await commit("broker-a")

    group: Any = SimpleNamespace(
        queues=queues, commit=commit, commit_at_each=commit_at_each, connect=connect, look_at_connections=lambda: None,
        client=CLIENT,
    )  # fmt: skip
    offsets = RemoteBrokerOffsetStore(group)
    for number in range(2):
        queues.known(QueueKey("orders", "broker-a", number)).offset = 10 + number
    await offsets.persist()
    assert committed == [10]


async def committed_twice(error: RemotingError, *, is_dropped: bool) -> list[int]:
    """Queues that are committed by two `persist`, the first one of which always ends in an error."""
    committed: list[int] = []
    queues = ProcessQueueTable(ProcessQueue)

    async def commit(queue: QueueKey, offset: int) -> None:
        committed.append(queue.queue_id)
        if queue.queue_id == 0:
            raise error

    async def commit_at_each(broker_names: set[str], commit: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        with suppress(RemotingError):
            await commit("broker-a")

    group = SimpleNamespace(
        queues=queues, commit=commit, commit_at_each=commit_at_each, connect=connect, look_at_connections=lambda: None,
        client=CLIENT,
    )  # fmt: skip
    offsets = RemoteBrokerOffsetStore(cast("ConsumerGroup", group))
    for number in range(2):
        one = queues.known(QueueKey("orders", "broker-a", number))
        one.want()
        one.offset = 5
        if is_dropped:
            one.drop()
    for _ in range(2):
        await offsets.persist()
    return committed


async def test_an_offset_whose_commit_has_no_answer_is_committed_again_but_for_a_queue_that_was_dropped() -> None:
    """The broker may have it, and by the next time an offset of another member; others are committed then."""
    assert await committed_twice(RemotingError("no answer"), is_dropped=False) == [0, 0]
    assert await committed_twice(RemotingError("no answer"), is_dropped=True) == [0, 1]


async def test_an_operator_that_moves_a_dropped_queue_during_its_last_commit_has_the_last_word() -> None:
    """Brokers of RocketMQ 4 know of a reset only by the commits of those who have heard of it."""
    committed: list[int] = []
    queues = ProcessQueueTable(ProcessQueue)

    async def commit(queue: QueueKey, offset: int) -> None:
        committed.append(offset)
        if offset == 5:
            queues.known(queue).move(3)
            raise RemotingError("no answer")

    async def commit_at_each(broker_names: set[str], commit: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        with suppress(RemotingError):
            await commit("broker-a")

    group = SimpleNamespace(
        queues=queues, commit=commit, commit_at_each=commit_at_each, connect=connect, look_at_connections=lambda: None,
        client=CLIENT,
    )  # fmt: skip
    offsets = RemoteBrokerOffsetStore(cast("ConsumerGroup", group))
    one = queues.known(QUEUE)
    one.want()
    one.offset = 5
    one.drop()
    for _ in range(2):
        await offsets.persist()
    assert committed == [5, 3]


async def test_an_offset_that_is_refused_holds_up_no_other_one_of_its_broker() -> None:
    """As of a queue whose topic was deleted."""
    error = MQBrokerError("10.0.0.1:10911", ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    assert await committed_twice(error, is_dropped=False) == [0, 1, 0, 1]


async def test_the_offset_of_a_queue_that_was_dropped_is_not_committed_again() -> None:
    """As it is for half a minute, while the member before may commit late: by now that is this one."""
    committed: list[int] = []
    queues = ProcessQueueTable(ProcessQueue)

    async def commit(queue: QueueKey, offset: int) -> None:
        committed.append(offset)

    async def commit_at_each(broker_names: set[str], commit: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        await commit("broker-a")

    group = SimpleNamespace(
        queues=queues, commit=commit, commit_at_each=commit_at_each, connect=connect, look_at_connections=lambda: None,
        client=CLIENT,
    )  # fmt: skip
    offsets = RemoteBrokerOffsetStore(cast("ConsumerGroup", group))
    one = queues.known(QUEUE)
    one.asked_at, one.offset = asyncio.get_running_loop().time(), 5
    for _ in range(2):
        await offsets.persist()
    one.offset = 6
    one.drop()
    for _ in range(2):
        await offsets.persist()
    assert committed == [5, 5, 6]


def test_an_offset_that_the_member_before_commits_late_is_committed_again() -> None:
    """It looks at its group after the queue's next member has committed; Java's clients commit all offsets each 5 s."""
    commits: list[int] = []

    async def act() -> None:
        loop, chance = asyncio.get_running_loop(), random.Random(0)
        assert isinstance(loop, VirtualLoop)
        broker = ModelBroker(
            loop, "broker-a", "10.0.0.1:10911", chance, "g", ("orders",), lambda _, offset, by: commits.append(offset)
        )
        for server in (broker, ModelNameServer(loop, NAMESRV, chance, [broker], 1)):
            server.start()
        for _ in range(5):
            broker.put(QUEUE, Message("orders", b"x"))
        async with PullConsumer(NAMESRV, group="g", topics={"orders": "*"}, consume_from="first") as consumer:
            assert len(await consumer.poll()) == 5
            await consumer.commit()
            broker.offsets[QUEUE] = 3
            await consumer.commit()
            assert broker.offsets[QUEUE] == 5
            await asyncio.sleep(60)
            await consumer.commit()
            assert commits == [5, 5]

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(0))) as runner:
        runner.run(act())
