"""Pull consumers against brokers in the same loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reput.client import (
    Message,
    MessageQueue,
    MessageSelector,
    MQBrokerError,
    MQClientError,
    Producer,
    PullConsumer,
    PushConsumer,
)
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.errors import ConfigError, SubscriptionError
from tests.support.broker import Served, with_topic
from tests.support.clients import cluster
from tests.support.proxy import proxy_to


async def filled(broker: Served, namesrv: str, count: int, queues: int = 2, name: str = "broker-a") -> None:
    """A topic with so many messages, their numbers as bodies, in turn in its queues."""
    await with_topic(await broker.client(), "orders", queues)
    async with Producer(namesrv, group="filler") as producer:
        for number in range(count):
            queue = MessageQueue("orders", name, number % queues)
            tags = "even" if number % 2 == 0 else "odd"
            await producer.send(Message("orders", b"%d" % number, tags=tags), queue=queue)


async def polled(consumer: PullConsumer, count: int) -> list[int]:
    """So many numbers, or more that came with the last of them."""
    found: list[int] = []
    while len(found) < count:
        found += [int(one.body) for one in await consumer.poll(timeout=30)]
    return found


class Polled(NamedTuple):
    """A consumer that has polled the five messages of the one queue of a topic."""

    broker: Served
    namesrv: str
    consumer: PullConsumer
    queue: MessageQueue


@asynccontextmanager
async def five_polled(tmp_path: Path) -> AsyncIterator[Polled]:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        broker = brokers["broker-a"]
        await filled(broker, namesrv.address, 5, queues=1)
        async with PullConsumer(namesrv.address, group="p", topics={"orders": "*"}, consume_from="first") as consumer:
            await polled(consumer, 5)
            (queue,) = {one for one in consumer.assignment if one.topic == "orders"}
            yield Polled(broker, namesrv.address, consumer, queue)


async def test_a_group_goes_on_where_it_has_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 10)
        topics = {"orders": "*"}
        async with PullConsumer(namesrv.address, group="p", topics=topics, consume_from="first") as consumer:
            assert sorted(await polled(consumer, 10)) == list(range(10))
            await consumer.commit()
            assert {await consumer.committed(queue) for queue in consumer.assignment} == {5}
        await filled(brokers["broker-a"], namesrv.address, 2)
        async with PullConsumer(namesrv.address, group="p", topics=topics) as consumer:
            assert sorted(await polled(consumer, 2)) == [0, 1]
            assert {consumer.position(queue) for queue in consumer.assignment} == {6}
        async with PullConsumer(namesrv.address, group="p", topics=topics) as consumer:
            assert sorted(await polled(consumer, 2)) == [0, 1]  # nothing was committed


async def test_a_poll_gives_no_more_than_it_was_asked_for_and_commits_what_it_gave(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 10, queues=1)
        topics = {"orders": "*"}
        async with PullConsumer(namesrv.address, group="p", topics=topics, consume_from="first") as consumer:
            assert [int(one.body) for one in await consumer.poll(3, timeout=30)] == [0, 1, 2]
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in consumer.assignment] == [3]
            table = await consumer.poll_arrow(timeout=30, columns=["body"])
            assert table["body"].to_pylist() == [b"%d" % number for number in range(3, 10)]
            assert await consumer.poll(timeout=0.01) == []
            assert (await consumer.poll_arrow(timeout=0.01)).num_rows == 0


async def test_a_backlog_comes_in_tables_of_many_pulls(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 500, queues=1)  # a pull brings 32
        async with PullConsumer(namesrv.address, group="p") as consumer:
            consumer.assign([])
            assert (await consumer.poll_arrow(timeout=0.01)).num_rows == 0  # all modules are imported
            (queue,) = await consumer.queues("orders")
            consumer.assign([queue])
            consumer.seek(queue, 0)
            assert (await consumer.poll_arrow(timeout=30)).num_rows == 500


async def test_pulls_that_end_elsewhere_than_expected_bring_each_message_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        # A pull brings 32 messages, or those of 256 KiB; random bytes, as large bodies are compressed.
        bodies = random.Random(1)
        sizes = [10] * 128 + [20_000] * 40 + [10] * 40 + [60_000] * 9 + [10] * 70
        async with Producer(namesrv.address, group="filler") as producer:
            for number, size in enumerate(sizes):
                await producer.send(Message("orders", bodies.randbytes(size), tags=str(number)))
        async with PullConsumer(namesrv.address, group="p") as consumer:
            (queue,) = await consumer.queues("orders")
            consumer.assign([queue])
            consumer.seek(queue, 0)
            found: list[str | None] = []
            while len(found) < len(sizes):
                found += [one.tags for one in await consumer.poll(timeout=30)]
            assert found == list(map(str, range(len(sizes))))
            assert consumer.position(queue) == len(sizes)


async def test_a_table_that_waits_for_more_comes_at_its_timeout(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 10, queues=1)
        topics = {"orders": "*"}
        async with PullConsumer(namesrv.address, group="p", topics=topics, consume_from="first") as consumer:
            assert len(await consumer.poll(1, timeout=30)) == 1
            (queue,) = consumer.assignment
            consumer._pulled(queue).is_behind = True  # as if the broker did not answer the next pull
            assert (await consumer.poll_arrow(timeout=0.2)).num_rows == 9


async def test_only_messages_with_the_tags_come(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 10)
        async with PullConsumer(
            namesrv.address, group="p", topics={"orders": "odd || none"}, consume_from="first"
        ) as consumer:
            assert sorted(await polled(consumer, 5)) == [1, 3, 5, 7, 9]


async def test_members_share_the_queues_and_take_over_those_of_one_that_leaves(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers):
        for name, one in brokers.items():
            await filled(one, namesrv.address, 0, queues=4, name=name)
        topics = {"orders": "*"}
        async with PullConsumer(namesrv.address, group="p", topics=topics, consume_from="first") as first:
            await assigned(first, 8)
            async with PullConsumer(namesrv.address, group="p", topics=topics, consume_from="first") as second:
                await asyncio.gather(assigned(first, 4), assigned(second, 4))
                assert first.assignment.isdisjoint(second.assignment)
                for name, one in brokers.items():
                    await filled(one, namesrv.address, 8, queues=4, name=name)
                found = await asyncio.gather(polled(first, 8), polled(second, 8))
                assert [len(numbers) for numbers in found] == [8, 8]
                await first.commit()
                await second.commit()
            await assigned(first, 8)
            for name, one in brokers.items():
                await filled(one, namesrv.address, 4, queues=4, name=name)
            assert sorted(await polled(first, 8)) == [0, 0, 1, 1, 2, 2, 3, 3]


async def assigned(consumer: PullConsumer, count: int) -> None:
    """Return when a consumer has so many queues."""
    while len(consumer.assignment) != count:
        await asyncio.sleep(0.01)


async def test_queues_that_are_assigned_are_polled_from_where_one_seeks(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 10)
        async with PullConsumer(namesrv.address, group="p") as consumer:
            queue, other = await consumer.queues("orders")
            consumer.assign([queue])
            consumer.seek(queue, 3)
            assert await polled(consumer, 2) == [6, 8]
            await consumer.seek_to_begin(queue)
            assert await polled(consumer, 5) == [0, 2, 4, 6, 8]
            await consumer.seek_to_end(queue)
            assert await consumer.poll(timeout=0.05) == []
            assert await consumer.offset_of_time(queue, datetime(2020, 1, 1, tzinfo=UTC)) == 0
            await consumer.commit({queue: 2})
            assert await consumer.committed(queue) == 2
            with pytest.raises(MQClientError, match="none of this consumer's queues"):
                consumer.seek(other, 0)
            consumer.assign([other])
            consumer.seek(other, 4)
            assert await polled(consumer, 1) == [9]
            assert consumer.assignment == {other}


@pytest.mark.parametrize("namespace", [None, "tests"])
async def test_the_first_request_for_a_queue_asks_who_serves_it(
    tmp_path: Path, namespace: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, "broker-a") as (asked, served):
        namesrv, broker = asked.address, served["broker-a"]
        topic = "orders" if namespace is None else f"{namespace}%orders"
        await with_topic(await broker.client(), topic, 1)
        queue = MessageQueue("orders", "broker-a", 0)
        async with Producer(namesrv, group="p", namespace=namespace) as producer:
            await producer.send(Message("orders", b"0"), queue=queue)
        for first in (None, "seek", "seek_to_begin", "seek_to_end", "offset_of_time", "committed"):
            group = PullConsumer(namesrv, group=f"g-{first}", topics=None, consume_from="first", namespace=namespace)
            async with group as consumer:
                consumer.assign([queue])
                match first:
                    case "seek":
                        consumer.seek(queue, 0)
                    case "offset_of_time":
                        assert await consumer.offset_of_time(queue, datetime(2026, 1, 1, tzinfo=UTC)) == 0
                    case "committed":
                        assert await consumer.committed(queue) == 0
                    case str():
                        await getattr(consumer, first)(queue)
                if first != "seek_to_end":
                    assert await polled(consumer, 1) == [0]
        assert "a pull failed" not in caplog.text


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 4)
        async with PullConsumer(namesrv.address, group="p") as consumer:
            queues = await consumer.queues("orders")
            consumer.assign(queues)
            for queue in queues:
                consumer.seek(queue, 0)
            consumer.pause(queues[0])
            assert await polled(consumer, 2) == [1, 3]
            assert await consumer.poll(timeout=0.05) == []
            assert (await consumer.poll_arrow(timeout=0.05)).num_rows == 0
            consumer.resume(queues[0])
            assert await polled(consumer, 2) == [0, 2]


async def test_an_offset_that_is_not_in_the_queue_is_moved_into_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 3, queues=1)
        async with PullConsumer(namesrv.address, group="p") as consumer:
            (queue,) = await consumer.queues("orders")
            consumer.assign([queue])
            consumer.seek(queue, 1000)
            while consumer.position(queue) != 3:
                assert await consumer.poll(timeout=0.05) == []
            await filled(brokers["broker-a"], namesrv.address, 1, queues=1)
            assert await polled(consumer, 1) == [0]
            assert consumer.position(queue) == 4


async def test_a_topic_that_is_made_later_is_consumed_then(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        PullConsumer(namesrv.address, group="p", topics={"orders": "*"}, consume_from="first") as consumer,
    ):
        assert await consumer.poll(timeout=0.01) == []
        await filled(brokers["broker-a"], namesrv.address, 2)
        assert sorted(await polled(consumer, 2)) == [0, 1]


async def test_a_network_that_is_cut_loses_no_message(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        broker = brokers["broker-a"]
        await filled(broker, namesrv.address, 4, queues=1)
        async with (
            proxy_to(broker.controller.address) as proxy,
            PullConsumer(namesrv.address, group="p") as consumer,
        ):
            (queue,) = await consumer.queues("orders")
            group = consumer._open_group()
            group.client.routes.address = lambda *_: proxy.address  # type: ignore[method-assign]
            consumer.assign([queue])
            consumer.seek(queue, 0)
            assert await polled(consumer, 4) == [0, 1, 2, 3]
            proxy.cut()
            await filled(broker, namesrv.address, 2, queues=1)
            assert await polled(consumer, 2) == [0, 1]
            assert proxy.connections > 1


async def test_a_refusal_of_the_broker_is_raised_by_the_poll(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 1)
        async with PullConsumer(namesrv.address, group="p", consume_from="first") as consumer:
            consumer.assign([MessageQueue("orders", "broker-a", 99)])
            with pytest.raises(MQBrokerError, match="queueId"):
                await consumer.poll(timeout=30)


async def test_an_expression_is_checked_when_the_consumer_starts(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", enable_property_filter=True) as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 1)
        wrong, right = ({"orders": MessageSelector.by_sql(text)} for text in ("a >", "a > 1"))
        with pytest.raises(SubscriptionError, match="topic orders: 'a >'"):
            await PullConsumer(namesrv.address, group="p", topics=wrong).start()
        with pytest.raises(SubscriptionError, match="topic orders: 'a >'"):
            await PushConsumer(namesrv.address, group="p", topics=wrong, on_message=print).start()
        async with PullConsumer(namesrv.address, group="p", topics=right) as consumer:
            assert await consumer.poll(timeout=0) == []
    async with cluster(tmp_path / "plain", "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 1)
        with pytest.raises(MQBrokerError, match="does not support consumer to filter message by SQL92"):
            await PullConsumer(namesrv.address, group="p", topics=right).start()


async def test_what_cannot_be_consumed_is_refused_before_anything_is_asked() -> None:
    for topics, error in (({}, ConfigError), ({"orders": "||"}, SubscriptionError)):
        with pytest.raises(error):
            PullConsumer("127.0.0.1:9", group="p", topics=topics)
    with pytest.raises(ConfigError, match="consume_from"):
        await PullConsumer("127.0.0.1:9", group="p", topics={"a": "*"}, consume_from="end").start()  # type: ignore[arg-type]
    with pytest.raises(MQClientError, match="no name server answers"):
        await PullConsumer("127.0.0.1:9", group="p", topics={"a": "*"}).start()
    with pytest.raises(MQClientError, match="not started"):
        await PullConsumer("127.0.0.1:9", group="p").poll()


async def test_a_commit_that_a_broker_does_not_take_is_an_error_and_can_be_done_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 2, queues=1)
        async with PullConsumer(namesrv.address, group="p") as consumer:
            (queue,) = await consumer.queues("orders")
            consumer.assign([queue])
            consumer.seek(queue, 0)
            await polled(consumer, 2)
            group = consumer._open_group()
            group.serving = lambda queue, broker_id=0: "127.0.0.1:9"  # type: ignore[method-assign]
            with pytest.raises(MQClientError, match="group p: offsets are not committed: broker-a"):
                await consumer.commit()
            group.serving = ConsumerGroup.serving.__get__(group)  # type: ignore[method-assign]
            await consumer.commit()
            assert await consumer.committed(queue) == 2


async def test_a_cancelled_poll_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 0, queues=1)
        async with PullConsumer(namesrv.address, group="p", topics={"orders": "*"}) as consumer:
            await assigned(consumer, 1)
            (queue,) = consumer.assignment
            while consumer.position(queue) is None:  # the last message is that of now
                await asyncio.sleep(0)
            polling = asyncio.create_task(consumer.poll(timeout=30))
            await asyncio.sleep(0)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            await filled(brokers["broker-a"], namesrv.address, 1, queues=1)
            assert await polled(consumer, 1) == [0]


async def test_a_consumer_without_topics_and_queues_says_what_to_do(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, _), PullConsumer(namesrv.address, group="p") as consumer:
        for work in (consumer.poll(), consumer.poll_arrow(), anext(consumer.tail())):
            with pytest.raises(MQClientError, match=r'topics={"orders": "\*"}, or give it queues by `assign`'):
                await work
        consumer.assign([])
        assert await consumer.poll(timeout=0) == []


def reset(broker: Served, queue: MessageQueue, offset: int) -> None:
    """An operator's reset."""
    state = broker.controller.state
    assert state.offsets.assign_reset_offset(queue.topic, "p", queue.queue_id, offset, state.clock.now_ms())


async def test_what_is_polled_again_after_a_reset_is_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 5, queues=1)
        async with PullConsumer(namesrv.address, group="p", topics={"orders": "*"}, consume_from="first") as consumer:
            assert await polled(consumer, 5) == [0, 1, 2, 3, 4]
            await consumer.commit()
            (queue,) = {one for one in consumer.assignment if one.topic == "orders"}
            reset(brokers["broker-a"], queue, 2)
            await filled(brokers["broker-a"], namesrv.address, 1, queues=1)  # ends the pull that waits
            found = await polled(consumer, 1)
            assert await consumer.committed(queue) == 2
            while found[-3:] != [3, 4, 0]:
                found += await polled(consumer, 1)
            await consumer.commit()
            assert await consumer.committed(queue) == 6


async def test_a_commit_of_what_was_polled_before_a_reset_does_not_undo_it(tmp_path: Path) -> None:
    async with five_polled(tmp_path) as scene:
        reset(scene.broker, scene.queue, 2)
        await filled(scene.broker, scene.namesrv, 1, queues=1)
        while scene.consumer.position(scene.queue) != 2:
            await asyncio.sleep(0.01)
        await scene.consumer.commit()
        assert await scene.consumer.committed(scene.queue) == 2


async def test_an_offset_that_is_committed_by_its_number_is_the_last_one_that_is_known(tmp_path: Path) -> None:
    async with five_polled(tmp_path) as scene:
        await scene.consumer.commit()
        await scene.consumer.commit({scene.queue: 1})
        assert await scene.consumer.committed(scene.queue) == 1
        await scene.consumer.commit()
        assert await scene.consumer.committed(scene.queue) == 5


@pytest.mark.parametrize("columns", [["tag"], "tags", 5, [5]])
async def test_columns_that_are_none_are_refused_before_a_message_is_taken(tmp_path: Path, columns: Any) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 2, queues=1)
        async with PullConsumer(namesrv.address, group="p", topics={"orders": "*"}, consume_from="first") as consumer:
            with pytest.raises(ConfigError, match="column"):
                await consumer.poll_arrow(timeout=30, columns=columns)
            assert await polled(consumer, 2) == [0, 1]


async def test_a_start_that_has_failed_may_be_done_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers), proxy_to(namesrv.address) as proxy:
        await filled(brokers["broker-a"], namesrv.address, 1, queues=1)
        await proxy.refuse()
        handled = asyncio.Event()
        push = PushConsumer(
            proxy.address, group="q", topics={"orders": "*"}, on_message=lambda _: handled.set(), consume_from="first"
        )
        pull = PullConsumer(proxy.address, group="p", topics={"orders": "*"}, consume_from="first")
        for one in (push, pull):
            with pytest.raises(MQClientError, match="no name server answers"):
                await one.start()
        host, _, port = proxy.address.rpartition(":")
        proxy._server = await asyncio.start_server(proxy._accept, host, int(port))
        async with push, pull:
            assert await polled(pull, 1) == [0]


async def test_an_offset_that_a_killed_broker_has_forgotten_is_committed_again(tmp_path: Path) -> None:
    async with five_polled(tmp_path) as scene:
        await scene.consumer.commit()
        scene.broker.controller.state.offsets.commit_offset("p", "orders", 0, 1, 0)  # as its file has it
        for connection in scene.consumer._open_group().client.remoting.connections.values():
            connection.abort()
        assert await scene.consumer.committed(scene.queue) == 1  # over another connection
        await scene.consumer.commit()
        assert await scene.consumer.committed(scene.queue) == 5


async def test_of_two_commits_at_once_each_tells_that_the_broker_did_not_take_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await filled(brokers["broker-a"], namesrv.address, 1, queues=1)
        async with PullConsumer(namesrv.address, group="unknown") as consumer:
            (queue,) = await consumer.queues("orders")
            both = [consumer.commit({queue: offset}) for offset in (5, 7)]
            errors = await asyncio.gather(*both, return_exceptions=True)
            assert [type(error) for error in errors] == [MQClientError, MQClientError]
