"""Namespaces: names as the brokers have them, and as programs do."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from reput.client import (
    LocalTransactionState,
    Message,
    MessageClientExt,
    MessageQueue,
    MQClientError,
    Producer,
    PullConsumer,
    PushConsumer,
)
from reput.client.instance.namespaces import NO_NAMESPACE, Namespace
from reput.errors import ConfigError
from tests.support.broker import with_topic
from tests.support.clients import cluster, stored

#: Names of programs and of brokers: what RocketMQ 5.3.3's NamespaceUtil gives.
NAMES = [
    ("orders", "ns%orders"),
    ("%RETRY%g", "%RETRY%ns%g"),
    ("%DLQ%g", "%DLQ%ns%g"),
    ("", "ns%"),
    ("TBW102", "TBW102"),
    ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
    ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ("other%orders", "ns%other%orders"),
]


@pytest.mark.parametrize(("bare", "wrapped"), NAMES)
def test_names_are_wrapped_once_and_shown_bare(bare: str, wrapped: str) -> None:
    namespace = Namespace("ns")
    assert (namespace.wrap(bare), namespace.wrap(wrapped), namespace.bare(wrapped)) == (wrapped, wrapped, bare)
    assert namespace.bare_queue(namespace.wrap_queue(MessageQueue(bare, "b", 1))) == MessageQueue(bare, "b", 1)
    assert (NO_NAMESPACE.wrap(bare), NO_NAMESPACE.bare(wrapped)) == (bare, wrapped)


@pytest.mark.parametrize("name", ["a%b", "a b", "ä"])
def test_a_name_that_no_topic_may_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        Producer("127.0.0.1:9876", group="g", namespace=name)


async def test_clients_of_one_namespace_see_its_topics_by_their_own_names(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "ns%orders", 1)
        queue = MessageQueue("orders", "broker-a", 0)
        async with Producer(namesrv.address, group="g", namespace="ns") as producer:
            assert await producer.queues("orders") == (queue,)
            results = [await producer.send(Message("orders", b"1"))]
            results += await producer.send_batch([Message("orders", b"2")], queue=queue)
            results.append(await producer.send(Message("orders", b"3"), sharding_key="k"))
            assert [one.queue for one in results] == [queue] * 3
        assert [one.topic for one in await stored(brokers["broker-a"], "ns%orders")] == ["ns%orders"] * 3
        async with PullConsumer(
            namesrv.address, group="c", topics={"orders": "*"}, consume_from="first", namespace="ns"
        ) as consumer:
            found = await consumer.poll(timeout=30)
            assert [(one.topic, one.queue) for one in found] == [("orders", queue)] * len(found)
            copy = pickle.loads(pickle.dumps(found[0]))
            assert (copy.topic, copy.properties["INSTANCE_ID"]) == ("orders", "ns")
            assert (consumer.assignment, consumer.position(queue)) == ({queue}, len(found))
            await consumer.commit({queue: 1})
            assert await consumer.committed(queue) == 1
        async with PullConsumer(namesrv.address, group="c", namespace="ns") as consumer:
            consumer.assign(await consumer.queues("orders"))
            consumer.pause(queue)
            await consumer.seek_to_end(queue)
            consumer.resume(queue)
            await consumer.seek_to_begin(queue)
            table = await consumer.poll_arrow(timeout=30, columns=["body", "topic"])
            assert table["topic"].to_pylist() == ["orders"] * table.num_rows
            with pytest.raises(MQClientError, match="none of this consumer's queues"):
                consumer.pause(MessageQueue("other", "broker-a", 0))


async def test_retries_and_transactions_stay_in_their_namespace(tmp_path: Path) -> None:
    keys = {"message_delay_level": " ".join(["1s"] * 18), "transaction_check_interval": 100}
    async with cluster(tmp_path, "broker-a", transaction_time_out=100, **keys) as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "ns%orders", 1)
        handled: list[tuple[str, bytes, int]] = []
        checked: list[str] = []
        done = asyncio.Event()

        async def handle(message: MessageClientExt) -> None:
            handled.append((message.topic, message.body, message.reconsume_times))
            if message.reconsume_times:
                done.set()
            else:
                raise ValueError("no")

        def check(message: MessageClientExt) -> LocalTransactionState:
            checked.append(message.topic)
            return LocalTransactionState.COMMIT_MESSAGE

        async with (
            Producer(namesrv.address, group="g", namespace="ns", check_transaction=check) as producer,
            PushConsumer(
                namesrv.address, group="c", topics={"orders": "*"}, on_message=handle, consume_from="first",
                namespace="ns",
            ) as consumer,
        ):  # fmt: skip
            await producer.send_in_transaction(Message("orders", b"1"), lambda _: LocalTransactionState.UNKNOW)
            await done.wait()
            while {queue.topic for queue in consumer.assignment} != {"orders", "%RETRY%c"}:
                await asyncio.sleep(0.01)
        # A broker may ask again before it has the answer, and deliver twice.
        assert list(dict.fromkeys(handled)) == [("orders", b"1", 0), ("orders", b"1", 1)]
        assert set(checked) == {"orders"}
        assert await stored(brokers["broker-a"], "%RETRY%ns%c")
