"""What an operator's client sees of brokers, and does to them: two brokers of ours behind one name server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from reput import Broker
from reput.admin import brokers, groups, messages, topics
from reput.admin.admin_client import AdminClient
from reput.client import Message, MessageQueue, Producer, PullConsumer
from reput.errors import MQClientError
from reput.remoting.codes import RequestCode
from tests.support.broker import SMALL

HERE = SMALL | {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of two brokers with the topic orders, of 2 queues each; 3 messages are in broker-a's queue 0."""
    path = tmp_path_factory.mktemp("brokers")
    with (
        Broker.start(path / "a", brokerName="broker-a", **HERE) as a,
        Broker.start(path / "b", brokerName="broker-b", namesrvAddr=a.namesrv, **HERE),
    ):

        async def fill(client: AdminClient) -> None:
            await topics.create_topic(client, "orders", 2, None)
            async with Producer(a.namesrv, group="p") as producer:
                for body in (b"one", b"two", b"three"):
                    await producer.send(Message("orders", body), queue=MessageQueue("orders", "broker-a", 0))

        ask(a.namesrv, fill)
        yield a.namesrv


def ask(namesrv: str, work: Callable[[AdminClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with AdminClient(namesrv) as client:
            return await work(client)

    return asyncio.run(run())


def consume(namesrv: str, group: str, count: int) -> None:
    """Consume messages of orders as a group, and commit once each of its four queues has an offset."""

    async def run() -> None:
        async with PullConsumer(namesrv, group=group, topics={"orders": "*"}, consume_from="first") as consumer:
            seen = 0
            known: list[MessageQueue] = []
            while seen < count or len(known) < 4:
                seen += len(await consumer.poll(timeout=0.1))
                known = [queue for queue in consumer.assignment if consumer.position(queue) is not None]
            await consumer.commit()

    asyncio.run(run())


def test_brokers_of_a_cluster(namesrv: str) -> None:
    rows = ask(namesrv, brokers.brokers)
    assert [(one.cluster, one.broker, one.broker_id, one.version) for one in rows] == [
        ("DefaultCluster", "broker-a", 0, "V5_3_3"), ("DefaultCluster", "broker-b", 0, "V5_3_3"),
    ]  # fmt: skip
    assert all(0 < one.disk_ratio < 1 for one in rows)


def test_topics_without_those_of_the_system(namesrv: str) -> None:
    names = [one.topic for one in ask(namesrv, topics.topics)]
    assert "orders" in names
    assert not [name for name in names if name.startswith(("%", "rmq_sys")) or "broker" in name or name == "TBW102"]
    (orders,) = [one for one in ask(namesrv, topics.topics) if one.topic == "orders"]
    assert (orders.write_queues, orders.perm, orders.brokers) == (4, "rw", ("broker-a", "broker-b"))
    everything = ask(namesrv, lambda client: topics.topics(client, with_system=True))
    assert {"TBW102", "broker-a"} <= {one.topic for one in everything}


def test_queues_of_a_topic(namesrv: str) -> None:
    rows = ask(namesrv, lambda client: topics.topic_state(client, "orders")).queues
    assert [(one.broker, one.queue_id, one.messages) for one in rows] == [
        ("broker-a", 0, 3), ("broker-a", 1, 0), ("broker-b", 0, 0), ("broker-b", 1, 0),
    ]  # fmt: skip
    assert rows[0].last_stored > 0


def test_an_unknown_name_is_told_with_the_nearest_one(namesrv: str) -> None:
    consume(namesrv, "shop", 3)
    for text, work in (
        ("no topic 'ordres'; did you mean 'orders'?", lambda client: topics.topic_state(client, "ordres")),
        ("no topic 'ordres'; did you mean 'orders'?", lambda client: topics.delete_topic(client, "ordres")),
        ("no group 'shpo'; did you mean 'shop'?", lambda client: groups.lag(client, "shpo")),
        ("no group 'shpo'; did you mean 'shop'?", lambda client: groups.connections(client, "shpo")),
        ("no group 'shpo'", lambda client: groups.reset_plan(client, "shpo", "orders", "earliest")),
        ("nobody of group 'shop' is connected", lambda client: groups.connections(client, "shop")),
        ("no broker 'c'; there are broker-a, broker-b", lambda client: topics.create_topic(client, "t", 1, ["c"])),
    ):
        with pytest.raises(MQClientError, match=text.replace("?", r"\?")):
            ask(namesrv, work)


def test_lag_of_a_group_and_a_reset(namesrv: str) -> None:
    consume(namesrv, "far", 3)

    def lags() -> dict[tuple[str, int], int]:
        found = ask(namesrv, lambda client: groups.lag(client, "far"))
        return {(one.broker, one.queue_id): one.lag for one in found.queues if one.topic == "orders"}

    assert lags() == {("broker-a", 0): 0, ("broker-a", 1): 0, ("broker-b", 0): 0, ("broker-b", 1): 0}

    def plan(client: AdminClient) -> Awaitable[list[groups.QueueReset]]:
        return groups.reset_plan(client, "far", "orders", groups.EARLIEST)

    planned = ask(namesrv, plan)
    assert planned[0] == groups.QueueReset("broker-a", 0, 3, 0)
    assert sum(lags().values()) == 0
    ask(namesrv, lambda client: groups.reset(client, "far", "orders", groups.EARLIEST, planned))
    assert lags()["broker-a", 0] == 3
    (row,) = [one for one in ask(namesrv, groups.groups) if one.group == "far"]
    assert (row.members, row.topics, row.lag) == (0, 1, 3)
    later = int(time.time() * 1000) + 60_000
    by_time = ask(namesrv, lambda client: groups.reset_plan(client, "far", "orders", later))
    assert by_time[0].after == 3


async def test_members_of_a_group_and_what_they_subscribe_to(namesrv: str) -> None:
    async with (
        AdminClient(namesrv) as client,
        PullConsumer(namesrv, group="both", topics={"orders": "paid"}) as consumer,
        Producer(namesrv, group="both") as producer,
    ):
        await producer.send(Message("other", b"x"))
        await consumer.poll(timeout=0)
        members, subscriptions = await groups.connections(client, "both")
        assert {one.kind for one in members} == {"consumer", "producer"}
        assert {(one.language, one.version) for one in members} == {("PYTHON", "V5_3_3")}
        assert subscriptions["orders"] == "paid"


def test_messages_are_looked_at_and_not_consumed(namesrv: str) -> None:
    def bodies(
        queue_id: int | None = None, offset: int | None = None, count: int = 10, ms: int | None = None
    ) -> list[bytes]:
        found = ask(
            namesrv,
            lambda client: messages.peek(client, "orders", queue_id=queue_id, offset=offset, time_ms=ms, count=count),
        )
        return [bytes(one.body) for one in found]

    assert bodies() == [b"one", b"two", b"three"]
    assert bodies(count=2) == [b"two", b"three"]
    assert bodies(queue_id=0, offset=1, count=1) == [b"two"]
    assert bodies(ms=0, count=1) == [b"one"]
    assert bodies(ms=int(time.time() * 1000) + 60_000) == []
    assert bodies(queue_id=0, offset=7) == []
    with pytest.raises(MQClientError, match="no queue 9"):
        bodies(queue_id=9)
    stats = [one for one in ask(namesrv, groups.groups) if one.group == "TOOLS_CONSUMER"]
    assert stats == []


def test_a_topic_is_made_on_one_broker_and_deleted_everywhere(namesrv: str) -> None:
    assert ask(namesrv, lambda client: topics.create_topic(client, "made", 3, ["broker-b"])) == {"broker-b": 3}
    rows = ask(namesrv, lambda client: topics.topic_state(client, "made")).queues
    assert [(one.broker, one.queue_id) for one in rows] == [("broker-b", 0), ("broker-b", 1), ("broker-b", 2)]
    assert ask(namesrv, lambda client: topics.delete_topic(client, "made")) == ["broker-b"]
    assert "made" not in ask(namesrv, lambda client: client.name_servers.topic_names())


def test_a_topic_that_is_there_keeps_all_but_the_queues_to_send_to(namesrv: str) -> None:
    fields = {
        "topic": "kept", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 4,
        "topicFilterType": "MULTI_TAG", "topicSysFlag": 2, "order": True,
    }  # fmt: skip

    async def make(client: AdminClient) -> dict[str, Any]:
        address = (await client.brokers())["broker-a"][0]
        await client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert await topics.create_topic(client, "kept", 1, ["broker-a"]) == {"broker-a": 4}
        table = await client.ask_json(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        config: dict[str, Any] = table["topicConfigTable"]["kept"]
        assert await topics.create_topic(client, "kept", 6, ["broker-a"]) == {"broker-a": 6}
        await topics.delete_topic(client, "kept")
        return config

    config = ask(namesrv, make)
    wanted = {name: value for name, value in fields.items() if name not in ("topic", "defaultTopic")}
    assert {name: config[name] for name in wanted} == wanted | {"writeQueueNums": 1}


def test_a_name_server_that_is_not_there() -> None:
    with pytest.raises(MQClientError, match=r"no name server answers: 127\.0\.0\.1:1"):
        ask("127.0.0.1:1", brokers.brokers)
