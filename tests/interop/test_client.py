"""reput's client with RocketMQ's brokers and ours: the same tests, and groups that it shares with RocketMQ's client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from reput import Broker
from reput.client import (
    Message,
    MessageClientExt,
    MessageSelector,
    MQBrokerError,
    MQClientError,
    Producer,
    PullConsumer,
    PushConsumer,
    SendStatus,
)
from tests.support.broker import make_topic
from tests.support.rocketmq.apache import VERSIONS, Apache

pytestmark = pytest.mark.java

FILE_SIZE = 16 << 20
#: The third, of a first retry, is ten seconds by default.
LEVELS = {"messageDelayLevel": "1s 5s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"}
HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE} | LEVELS
TOPICS = ("sends", "retries", "order", "delays", "shared", "table", "ns%named")


class Side(NamedTuple):
    """A broker: its name server, who serves it, and RocketMQ's client for it."""

    namesrv: str
    name: str
    java: Apache


@pytest.fixture(scope="module", params=["ours", *VERSIONS])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    path = tmp_path_factory.mktemp("store")
    with Broker.start(path, **HERE) as broker:
        for topic in TOPICS:
            make_topic(broker.address, topic, 4)
    if request.param == "ours":
        with Broker.start(path, **HERE) as broker, Apache("5.3.3") as java:
            yield Side(broker.namesrv, "ours", java)
        return
    with Apache(request.param) as java:
        namesrv = java.serve(path, keys=LEVELS, log_file_size=FILE_SIZE, topic="sends", queues=4)
        yield Side(namesrv, request.param, java)


async def polled(consumer: PullConsumer, count: int) -> list[MessageClientExt]:
    found: list[MessageClientExt] = []
    while len(found) < count:
        found += await consumer.poll(timeout=30)
    return found


async def test_messages_that_were_sent_in_every_way_come_as_they_were(side: Side) -> None:
    async with Producer(side.namesrv, group="p") as producer:
        one = await producer.send(Message("sends", b"one", tags="paid", keys=["o-1"], properties={"a": "b"}, flag=7))
        assert one.status is SendStatus.SEND_OK
        many = await producer.send_batch([Message("sends", b"%d" % number, tags="batch") for number in range(5)])
        assert [each.queue_offset - many[0].queue_offset for each in many] == [0, 1, 2, 3, 4]
        assert len({each.offset_message_id for each in many}) == 5
        await producer.send(Message("sends", b"large" * 10_000))
        await producer.send_oneway(Message("sends", b"one-way"))
        async with PullConsumer(side.namesrv, group="sends", topics={"sends": "*"}, consume_from="first") as consumer:
            by_body = {each.body: each for each in await polled(consumer, 8)}
            assert set(by_body) == {b"one", b"large" * 10_000, b"one-way", b"0", b"1", b"2", b"3", b"4"}
            first = by_body[b"one"]
            assert (first.message_id, first.offset_message_id) == (one.message_id, one.offset_message_id)
            assert (first.tags, first.keys, first.properties["a"], first.flag) == ("paid", ("o-1",), "b", 7)
            await consumer.commit()
        await producer.send(Message("sends", b"next"))
        async with PullConsumer(side.namesrv, group="sends", topics={"sends": "*"}) as consumer:
            assert [each.body for each in await polled(consumer, 1)] == [b"next"]


async def test_messages_of_one_key_come_in_their_order(side: Side) -> None:
    handled: dict[str, list[bytes]] = {}
    done = asyncio.Event()

    async def handle(message: MessageClientExt) -> None:
        handled.setdefault(message.properties["__SHARDINGKEY"], []).append(message.body)
        if sum(map(len, handled.values())) == 40:
            done.set()

    async with Producer(side.namesrv, group="p") as producer:
        for number in range(40):
            await producer.send(Message("order", b"%d" % number), sharding_key=f"k{number % 5}")
    async with PushConsumer(
        side.namesrv, group="order", topics={"order": "*"}, on_message=handle, orderly=True, consume_from="first"
    ):
        await done.wait()
    assert handled == {f"k{key}": [b"%d" % number for number in range(key, 40, 5)] for key in range(5)}


async def test_a_handler_gets_the_messages_with_its_tags_and_failed_ones_again(side: Side) -> None:
    handled: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    def handle(message: MessageClientExt) -> None:
        handled.append((message.body, message.reconsume_times))
        if len(handled) == 3:
            loop.call_soon_threadsafe(done.set)
        if message.body == b"fails" and message.reconsume_times == 0:
            raise ValueError("no")

    loop = asyncio.get_running_loop()
    async with Producer(side.namesrv, group="p") as producer:
        for body, tags in ((b"fails", "paid"), (b"other", "cancelled"), (b"good", "shipped")):
            await producer.send(Message("retries", body, tags=tags))
    async with PushConsumer(
        side.namesrv, group="retries", topics={"retries": "paid || shipped"}, on_message=handle,
        consume_from="first",
    ):  # fmt: skip
        await done.wait()
    assert sorted(handled) == [(b"fails", 0), (b"fails", 1), (b"good", 0)]


async def test_a_delay_is_kept_or_refused_by_name(side: Side) -> None:
    async with (
        Producer(side.namesrv, group="p") as producer,
        PullConsumer(side.namesrv, group="delays", topics={"delays": "*"}, consume_from="first") as consumer,
    ):
        await producer.send(Message("delays", b"level"), delay_ms=1000)
        count = 1
        if side.name == "4.9.7":
            with pytest.raises(MQClientError, match="V4_9_7 has no timers"):
                await producer.send(Message("delays", b"timer"), delay_ms=1500)
        elif side.name != "ours":
            await producer.send(Message("delays", b"timer"), delay_ms=1500)
            count = 2
        for each in await polled(consumer, count):
            assert each.store_timestamp - each.born_timestamp >= 900


async def test_a_table_has_what_the_objects_have(side: Side) -> None:
    async with Producer(side.namesrv, group="p") as producer:
        for number in range(20):
            await producer.send(Message("table", b"%d" % number * 1000, tags=f"t{number % 2}"))
    rows = []
    for group in ("objects", "tables"):
        async with PullConsumer(side.namesrv, group=group, topics={"table": "t1"}, consume_from="first") as consumer:
            found: list[tuple[int, int, bytes]] = []
            while len(found) < 10:
                if group == "objects":
                    found += [(m.queue_id, m.queue_offset, m.body) for m in await consumer.poll(timeout=30)]
                else:
                    table = await consumer.poll_arrow(timeout=30, columns=["queue_id", "queue_offset", "body"])
                    found += [tuple(row.values()) for row in table.to_pylist()]
            rows.append(sorted(found))
    assert rows[0] == rows[1]


async def test_a_group_is_shared_with_rocketmqs_consumer(side: Side) -> None:
    ours: list[bytes] = []

    async def handle(message: MessageClientExt) -> None:
        ours.append(message.body)

    await asyncio.to_thread(side.java.run, "consumer-start", namesrv=side.namesrv, group="shared", topic="shared")
    async with PushConsumer(
        side.namesrv, group="shared", topics={"shared": "*"}, on_message=handle, consume_from="first"
    ) as consumer:
        while len([queue for queue in consumer.assignment if queue.topic == "shared"]) != 2:
            await asyncio.sleep(0.05)
        theirs: list[bytes] = []

        async def round_of(first: int) -> tuple[set[bytes], set[bytes]]:
            """Send 40 messages, and return what each side has got of them once none is missing."""
            sent = {b"%d" % number for number in range(first, first + 40)}
            async with Producer(side.namesrv, group="p") as producer:
                for body in sent:
                    await producer.send(Message("shared", body))
            while sent - {*ours, *theirs}:
                before = len(ours)
                await asyncio.sleep(1.0)
                while len(ours) == before and sent - {*ours, *theirs}:  # the others are with Java
                    theirs.append((await asyncio.to_thread(side.java.run, "consumer-take")).encode())
            return sent & {*ours}, sent & {*theirs}

        await round_of(0)  # while the members take their shares, a message may come to both
        here, there = await round_of(100)
    assert (len(here), len(there), here & there) == (20, 20, set())
    await asyncio.to_thread(side.java.run, "consumer-stop")


async def test_a_namespace_is_rocketmqs(side: Side) -> None:
    where = {"namesrv": side.namesrv, "topic": "named", "namespace": "ns"}
    async with Producer(side.namesrv, group="p", namespace="ns") as producer:
        await producer.send(Message("named", b"ours"))
    theirs = await asyncio.to_thread(side.java.run, "client-push", group="named", tags="*", count=1, **where)
    assert [one["body"] for one in theirs] == ["ours"]
    await asyncio.to_thread(side.java.run, "client-send", **where)
    async with PullConsumer(
        side.namesrv, group="named", topics={"named": "*"}, consume_from="first", namespace="ns"
    ) as consumer:
        found = await polled(consumer, 9)  # behind what Java has committed: one group
        assert {(each.topic, each.queue.topic) for each in found} == {("named", "named")}
        assert b"ours" not in {each.body for each in found}


async def test_a_consumer_with_an_expression_does_not_start_where_brokers_do_not_filter(side: Side) -> None:
    topics = {"sends": MessageSelector.by_sql("a > 1")}
    with pytest.raises(MQBrokerError, match="SQL92"):
        await PullConsumer(side.namesrv, group="filters", topics=topics).start()
