"""Sends of one turn of the loop in one request, against brokers in the same loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reput.client import Message, MessageQueue, MQClientError, Producer, SendResult
from reput.client.instance.mq_client_api import MQClientAPI
from reput.client.instance.send_request import queue_of_key
from reput.errors import MessageIllegalError
from tests.support.broker import with_topic
from tests.support.clients import cluster, stored
from tests.support.proxy import proxy_to


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages in each request that sends some."""
    sizes: list[int] = []
    plain = MQClientAPI.send

    async def send(api: MQClientAPI, address: str, group: str, queue: Any, request: Any, timeout_s: float) -> Any:
        sizes.append(len(request.ids))
        return await plain(api, address, group, queue, request, timeout_s)

    monkeypatch.setattr(MQClientAPI, "send", send)
    return sizes


async def test_sends_of_one_turn_share_a_request_and_each_has_its_result(tmp_path: Path, requests: list[int]) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer:
            alone = await producer.send(Message("orders", b"alone", tags="t"))
            sends = [producer.send(Message("orders", b"%d" % i, keys=[f"k{i}"])) for i in range(20)]
            results = [alone, *await asyncio.gather(*sends)]
        assert requests == [1, 20]
        found = await stored(brokers["broker-a"], "orders")
        assert [one.body for one in found] == [b"alone", *(b"%d" % i for i in range(20))]
        assert [(one.unique_key, one.queue_offset) for one in found] == [
            (result.message_id, result.queue_offset) for result in results
        ]
        assert [one.message_id for one in found] == [result.offset_message_id for result in results]
        assert found[5].keys == ("k4",)


async def test_what_a_batch_cannot_hold_is_sent_alone(tmp_path: Path, requests: list[int]) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer:
            await asyncio.gather(
                producer.send(Message("orders", b"1")), producer.send(Message("orders", b"2")),
                producer.send(Message("orders", bytes(5000))),
                producer.send(Message("orders", b"3"), delay_ms=1000),
                producer.send(Message("orders", b"4", properties={"DELAY": "1"})),
                producer.send(Message("orders", b"5", born_timestamp=7)),
            )  # fmt: skip
        assert sorted(requests) == [1, 1, 1, 1, 2]
        found = {one.body[:1]: one for one in await stored(brokers["broker-a"], "orders")}
        assert found[b"5"].born_timestamp == 7


async def test_a_wrong_message_fails_alone(tmp_path: Path, requests: list[int]) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer:
            wrong: Any = [
                Message("orders", b""), Message("orders", b"x", properties={"a": "\x01"}), Message("a b", b"x"),
                Message("orders", "text"), "text",  # type: ignore[arg-type]
            ]  # fmt: skip
            sends = [producer.send(one) for one in (Message("orders", b"1"), *wrong, Message("orders", b"2"))]
            first, *errors, last = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(one) for one in errors] == [MessageIllegalError] * 5
            assert isinstance(first, SendResult)
            assert isinstance(last, SendResult)
            with pytest.raises(MessageIllegalError, match="holds ' '"):
                await producer.send(Message("a b", b"x"), sharding_key="k")
        assert [one.body for one in await stored(brokers["broker-a"], "orders")] == [b"1", b"2"]


async def test_messages_with_a_sharding_key_share_requests_to_its_queue(tmp_path: Path, requests: list[int]) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 4)
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer:
            queues = await producer.queues("orders")
            keys = [f"key-{i % 3}" for i in range(30)]
            sends = [producer.send(Message("orders", b"%d" % i), sharding_key=key) for i, key in enumerate(keys)]
            results = await asyncio.gather(*sends)
            told = await producer.send(Message("orders", b"there"), queue=MessageQueue("orders", "broker-a", 2))
        assert [one.queue for one in results] == [queue_of_key(key, queues) for key in keys]
        assert len(requests) == len({one.queue for one in results}) + 1
        assert told.queue_id == 2
        for key in set(keys):
            offsets = [result.queue_offset for result, of in zip(results, keys, strict=True) if of == key]
            assert offsets == sorted(offsets)
        (first,) = [one for one in await stored(brokers["broker-a"], "orders", 4) if one.body == b"0"]
        assert first.properties["__SHARDINGKEY"] == "key-0"


async def test_a_cancelled_send_is_not_sent_and_the_others_are(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer:
            sends = [asyncio.create_task(producer.send(Message("orders", b"%d" % i))) for i in range(3)]
            asyncio.get_running_loop().call_soon(sends[1].cancel)  # before the request is made
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(results[1], asyncio.CancelledError)
        assert [one.body for one in await stored(brokers["broker-a"], "orders")] == [b"0", b"2"]


async def test_a_request_without_an_answer_goes_to_another_broker_with_all_of_its_sends(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g", auto_batch=True) as producer,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "orders", 1)
        await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(2)))
        await brokers["broker-a"].leave_all()
        await brokers["broker-a"].stop()
        for _ in range(3):
            results = await asyncio.gather(*(producer.send(Message("orders", b"y")) for _ in range(8)))
            assert {one.queue.broker_name for one in results} == {"broker-b"}
        await brokers["broker-b"].leave_all()
        await brokers["broker-b"].stop()
        sends = [producer.send(Message("orders", b"z")) for _ in range(8)]
        errors = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(one) for one in errors} == {MQClientError}


async def test_a_request_that_a_close_cancels_before_it_begins_fails_its_sends(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer:
            client = producer._open_client()
            sends = [asyncio.create_task(producer.send(Message("orders", b"1"))) for _ in range(3)]
            before = set(client._tasks)
            while not (begun := client._tasks - before):
                await asyncio.sleep(0)
            for task in begun:
                task.cancel()
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(one) for one in results} == {MQClientError}
        assert await stored(brokers["broker-a"], "orders") == []


async def test_sends_that_wait_when_the_producer_is_closed_fail(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        async with proxy_to(brokers["broker-a"].controller.address) as proxy:
            producer = Producer(namesrv.address, group="g", auto_batch=True)
            async with producer:
                producer._open_client().routes.master = lambda _: proxy.address  # type: ignore[method-assign]
                await producer.send(Message("orders", b"1"))
                proxy.hold()
                sends = [asyncio.create_task(producer.send(Message("orders", b"2"))) for _ in range(3)]
                while not producer._open_client().remoting.connections[proxy.address]._calls:
                    await asyncio.sleep(0)
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(one) for one in results} == {MQClientError}
            assert "was closed before the answer came" in str(results[0])
