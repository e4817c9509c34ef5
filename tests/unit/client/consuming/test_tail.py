"""PullConsumer.tail: messages one by one, and the commits of those that are handled."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from reput import Broker
from reput.client import Message, MQClientError, Producer, PullConsumer
from reput.client import sync as blocking
from tests.support.broker import SMALL, with_topic
from tests.support.clients import cluster

TOPICS = {"orders": "*"}


async def send_bodies(namesrv: str, *bodies: bytes) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for body in bodies:
            await producer.send(Message("orders", body))


def consumer_of(namesrv: str) -> PullConsumer:
    return PullConsumer(namesrv, group="g", topics=TOPICS, consume_from="first")


async def committed(namesrv: str) -> int | None:
    async with PullConsumer(namesrv, group="g") as consumer:
        (queue,) = await consumer.queues("orders")
        return await consumer.committed(queue)


async def test_a_loop_waits_for_messages_and_commits_those_that_are_handled(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        await send_bodies(namesrv.address, b"0", b"1")
        found = []
        async with consumer_of(namesrv.address) as consumer:
            async for message in consumer.tail():
                found.append(message.body)
                if message.body == b"1":
                    later = asyncio.create_task(send_bodies(namesrv.address, b"2"))
                if message.body == b"2":
                    break
            await later
        assert found == [b"0", b"1", b"2"]
        assert await committed(namesrv.address) == 3
        async with consumer_of(namesrv.address) as consumer:
            assert [message async for message in consumer.tail(timeout=0.3)] == []


async def test_a_message_whose_handling_fails_comes_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        await send_bodies(namesrv.address, b"0", b"1", b"2")
        with contextlib.suppress(ZeroDivisionError):
            async with consumer_of(namesrv.address) as consumer:
                async for message in consumer.tail():
                    1 // (1 - message.queue_offset)
        assert await committed(namesrv.address) == 1
        async with consumer_of(namesrv.address) as consumer:
            assert (await anext(consumer.tail())).body == b"1"
            await consumer.close()
        assert await committed(namesrv.address) == 1


async def test_a_second_is_committed_in_the_middle_of_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.client.consuming.tail._COMMIT_S", 0.0)

    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        await send_bodies(namesrv.address, b"0", b"1", b"2")
        async with consumer_of(namesrv.address) as consumer:
            tail = consumer.tail()
            assert [(await anext(tail)).body, (await anext(tail)).body] == [b"0", b"1"]
            assert await committed(namesrv.address) == 1


async def test_a_commit_that_no_broker_takes_is_told_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(_: object, queue: object, offset: object) -> None:
        raise MQClientError("nobody is there")

    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        await send_bodies(namesrv.address, b"0", b"1")
        async with consumer_of(namesrv.address) as consumer:
            with monkeypatch.context() as patch:
                patch.setattr("reput.client.consuming.consumer_group.ConsumerGroup.commit", refused)
                tail = consumer.tail(timeout=30)
                assert [(await anext(tail)).body, (await anext(tail)).body] == [b"0", b"1"]
                waiting = asyncio.create_task(anext(tail))
                while "nobody is there" not in caplog.text:
                    await asyncio.sleep(0)
                waiting.cancel()
        assert await committed(namesrv.address) == 2  # at the end


def test_without_asyncio(tmp_path: Path) -> None:
    keys = SMALL | {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with Broker.start(tmp_path / "store", **keys) as broker:
        with blocking.Producer(broker.namesrv, group="shop") as producer:
            for number in range(3):
                producer.send(Message("orders", b"%d" % number))

        def numbers(most: int) -> list[int]:
            found = []
            with blocking.PullConsumer(broker.namesrv, group="g", topics=TOPICS, consume_from="first") as consumer:
                for message in consumer.tail(timeout=30 if most else 0.3):
                    found.append(int(message.body))
                    if len(found) == most:
                        break
            return found

        first = numbers(2)
        assert len(first) == 2
        assert sorted([*first, *numbers(1)]) == [0, 1, 2]
        assert numbers(0) == []


async def test_a_tail_goes_on_where_another_one_was_left(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        await send_bodies(namesrv.address, b"0", b"1", b"2")
        found = []
        async with consumer_of(namesrv.address) as consumer:
            while len(found) < 3:
                async for message in consumer.tail(timeout=30):
                    found.append(message.body)
                    break
        assert found == [b"0", b"1", b"2"]
        assert await committed(namesrv.address) == 3


async def test_a_tail_gives_no_message_that_it_holds_once_its_consumer_is_closed(tmp_path: Path) -> None:
    """Such a message would be handled, and come again, as its offset is not committed any more."""
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        await send_bodies(namesrv.address, b"0", b"1", b"2")
        async with consumer_of(namesrv.address) as consumer:
            tail = consumer.tail(timeout=30)
            assert [(await anext(tail)).body, (await anext(tail)).body] == [b"0", b"1"]
        with pytest.raises(MQClientError, match="closed"):
            await anext(tail)
        assert await committed(namesrv.address) == 2
