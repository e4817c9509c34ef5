"""A producer against brokers in the same loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from reput.client import Message, MQBrokerError, MQClientError, Producer, PullConsumer, SendStatus
from reput.client.instance.mq_client_api import MQClientAPI
from reput.client.instance.send_request import queue_of_key
from reput.errors import ConfigError, MessageIllegalError
from reput.formats.message_id import decode_message_id
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import QueueKey
from reput.transport.client import RemotingClient
from tests.support.broker import with_topic
from tests.support.clients import cluster, stored
from tests.support.proxy import proxy_to


async def test_a_message_is_stored_and_the_result_says_where(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        message = Message("orders", b"one", tags="paid", keys=["o-1"], properties={"a": "b"})
        result = await producer.send(message)
        assert (result.status, result.queue_id, result.queue_offset) == (SendStatus.SEND_OK, 0, 0)
        assert (await producer.send(message)).queue_offset == 1
        (first, second) = await stored(brokers["broker-a"], "orders")
        assert (first.body, first.tags, first.keys, first.properties["a"]) == (b"one", "paid", ("o-1",), "b")
        assert (first.unique_key, first.message_id) == (result.message_id, result.offset_message_id)
        assert decode_message_id(result.offset_message_id)[1] == first.commit_log_offset
        assert second.unique_key != first.unique_key


async def test_a_topic_that_is_not_there_is_made_by_its_first_message(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        results = [await producer.send(Message("fresh", b"x")) for _ in range(8)]
        assert sorted(result.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert len(await stored(brokers["broker-a"], "fresh", 4)) == 8


async def test_a_topic_that_nobody_makes_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", auto_create_topic_enable=False) as (namesrv, _),
        Producer(namesrv.address, group="g") as producer,
    ):
        with pytest.raises(MQClientError, match="topic 'none' has no queue that takes messages: make it"):
            await producer.send(Message("none", b"x"))


async def test_messages_of_a_batch_follow_each_other_and_each_has_a_result(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", mapped_file_size_commit_log=16 << 20) as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        results = await producer.send_batch([Message("orders", b"%d" % i, tags="t") for i in range(5)])
        messages = await stored(brokers["broker-a"], "orders")
        assert [one.body for one in messages] == [b"0", b"1", b"2", b"3", b"4"]
        assert [one.queue_offset for one in results] == [0, 1, 2, 3, 4]
        assert [one.message_id for one in results] == [one.unique_key for one in messages]
        assert [one.offset_message_id for one in results] == [one.message_id for one in messages]
        large = await producer.send_batch([Message("orders", bytes(1 << 20)) for _ in range(5)])
        assert [one.queue_offset for one in large] == [5, 6, 7, 8, 9]


async def test_a_batch_that_a_broker_does_not_take_is_sent_as_smaller_ones(tmp_path: Path) -> None:
    """A broker's `maxMessageSize`, or its log's files, allow less than a producer knows of."""
    bodies = [b"%d" % i * 20_000 for i in range(9)]
    async with (
        cluster(tmp_path, "broker-a", max_message_size=1 << 16) as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        results = await producer.send_batch([Message("orders", body) for body in bodies])
        assert [one.queue_offset for one in results] == list(range(9))
        messages = await stored(brokers["broker-a"], "orders")
        assert [one.body for one in messages] == bodies
        assert [one.message_id for one in results] == [one.unique_key for one in messages]
        with pytest.raises(MQBrokerError, match="the message is illegal") as refused:
            await producer.send_batch([Message("orders", body) for body in (b"a", b"b", bytes(1 << 17), b"c")])
        assert refused.value.stored_messages == 2
        assert [one.body for one in await stored(brokers["broker-a"], "orders")][9:] == [b"a", b"b"]


async def test_of_sends_that_share_a_request_only_the_one_that_is_too_large_fails(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", max_message_size=2000) as (namesrv, brokers),
        Producer(namesrv.address, group="g", auto_batch=True) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        bodies = [b"%02d" % i * (1500 if i == 17 else 100) for i in range(40)]
        results = await asyncio.gather(*[producer.send(Message("orders", b)) for b in bodies], return_exceptions=True)
        failed = [i for i, one in enumerate(results) if isinstance(one, BaseException)]
        assert failed == [17]
        assert isinstance(results[17], MQBrokerError)
        messages = await stored(brokers["broker-a"], "orders")
        assert {one.body for one in messages} == {*bodies} - {bodies[17]}
        assert len(messages) == 39


async def test_a_batch_of_two_topics_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        with pytest.raises(MessageIllegalError, match="a batch is for one topic"):
            await producer.send_batch([Message("orders", b"1"), Message("others", b"2")])
        with pytest.raises(MessageIllegalError, match="at least one message"):
            await producer.send_batch([])
        with pytest.raises(MessageIllegalError, match="a batch is a list of messages"):
            await producer.send_batch(Message("orders", b"1"))  # type: ignore[arg-type]
        for name in ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"):
            timed = Message("orders", b"2", properties={name: "1"})
            with pytest.raises(MessageIllegalError, match=f"message 1: the property {name}: .* send this message with"):
                await producer.send_batch([Message("orders", b"1"), timed])
        assert await stored(brokers["broker-a"], "orders") == []


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_properties_of_a_transaction_that_nobody_has_begun_are_refused(tmp_path: Path, auto_batch: bool) -> None:
    """As of a message that was consumed: a broker would keep the copy back, and consumers never see it."""
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g", auto_batch=auto_batch) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        half = Message("orders", b"1", properties={"TRAN_MSG": "true", "PGROUP": "shop"})
        for send in (producer.send, producer.send_oneway, producer.request):
            with pytest.raises(MessageIllegalError, match=r"TRAN_MSG is of a transaction: .* leave it out"):
                await send(half)  # type: ignore[operator]
        await producer.send(Message("orders", b"2", properties={"TRAN_MSG": "false"}))
        assert [message.body for message in await stored(brokers["broker-a"], "orders")] == [b"2"]


async def test_a_message_as_it_was_received_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, _), Producer(namesrv.address, group="g") as producer:
        await producer.send(Message("orders", b"x"))
        async with PullConsumer(namesrv.address, group="c", topics={"orders": "*"}, consume_from="first") as consumer:
            (got,) = await consumer.poll(timeout=30)
        told = "no reput.Message, but MessageClientExt; make one of its topic, body, tags, keys and properties"
        for send in (producer.send, producer.send_oneway, producer.request):
            with pytest.raises(MessageIllegalError, match=f"message 0 is {told}"):
                await send(got)  # type: ignore[operator]
        with pytest.raises(MessageIllegalError, match=f"message 1 is {told}"):
            await producer.send_batch([Message("orders", b"y"), got])  # type: ignore[list-item]


async def test_a_client_in_another_event_loop_says_so_and_goes_on_in_its_own(tmp_path: Path) -> None:
    def elsewhere(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        with pytest.raises(MQClientError, match="was started in another event loop"):
            asyncio.run(call())

    async with cluster(tmp_path, "broker-a") as (namesrv, _):
        consumer = PullConsumer(namesrv.address, group="c", topics={"orders": "*"}, consume_from="first")
        async with Producer(namesrv.address, group="g", auto_batch=True) as producer, consumer:
            await producer.send(Message("orders", b"x"))
            for call in (
                lambda: producer.send(Message("orders", b"y")), producer.close,
                consumer.poll, consumer.commit, consumer.close,
            ):  # fmt: skip
                await asyncio.to_thread(elsewhere, call)
            await producer.send(Message("orders", b"z"))
            assert {message.body for message in await consumer.poll(timeout=30)} <= {b"x", b"z"}


@pytest.mark.parametrize(("key", "reason"), [("", "is empty"), ("a\x01", "holds a separator")])
async def test_a_sharding_key_that_no_message_can_keep_is_named(tmp_path: Path, key: str, reason: str) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, _), Producer(namesrv.address, group="g") as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(MessageIllegalError, match=f"^sharding_key {reason}"):
                await send(Message("orders", b"x"), sharding_key=key)  # type: ignore[operator]


async def test_messages_with_one_sharding_key_are_in_one_queue_in_their_order(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders", 4)
        for i in range(12):
            await producer.send(Message("orders", b"%d" % i), sharding_key=f"o-{i % 3}")
        messages = await stored(brokers["broker-a"], "orders", 4)
        by_key: dict[str, list[tuple[int, bytes]]] = {}
        for one in messages:
            by_key.setdefault(one.properties["__SHARDINGKEY"], []).append((one.queue_id, one.body))
        for key, found in by_key.items():
            assert [body for _, body in found] == [b"%d" % i for i in range(int(key[2:]), 12, 3)]
            assert len({queue_id for queue_id, _ in found}) == 1


@pytest.mark.parametrize(("key", "queue_id"), [("o-1", 3), ("polygenelubricants", 0), ("", 0), ("Aa", 0), ("TagA", 3)])
def test_the_queue_of_a_key_is_that_of_javas_producer(key: str, queue_id: int) -> None:
    queues = [QueueKey("t", "a", number) for number in range(4)]
    assert queue_of_key(key, queues).queue_id == queue_id


async def test_a_message_that_needs_no_answer_arrives(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        client = await brokers["broker-a"].client()
        await with_topic(client, "orders")
        await producer.send_oneway(Message("orders", b"1"))
        await producer.send_oneway(Message("orders", b"2"), sharding_key="k")
        await producer.send(Message("orders", b"3"))
        assert [one.body for one in await stored(brokers["broker-a"], "orders")] == [b"1", b"2", b"3"]


async def test_a_delayed_message_waits_as_long_as_it_says(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        client = await brokers["broker-a"].client()
        await with_topic(client, "orders")
        await producer.send(Message("orders", b"later"), delay_ms=1000)
        await producer.send(Message("orders", b"now"))
        assert (await client.pull("orders", 1, hold_ms=60_000)).code == 0
        waited = {
            one.body: one.store_timestamp - one.born_timestamp for one in await stored(brokers["broker-a"], "orders")
        }
        assert waited.keys() == {b"later", b"now"}
        assert waited[b"later"] >= 1000


async def test_a_delayed_message_that_is_recalled_does_not_come(tmp_path: Path) -> None:
    keys = {"timer_precision_ms": 100, "timer_flush_interval_ms": 50, "recall_message_enable": True}

    async with (
        cluster(tmp_path, "broker-a", **keys) as (namesrv, brokers),
        Producer(namesrv.address, group="g", namespace="ns") as producer,
    ):
        client = await brokers["broker-a"].client()
        await with_topic(client, "ns%orders")
        first = await producer.send(Message("orders", b"recalled"), delay_ms=61_000)
        await producer.send(Message("orders", b"comes"), delay_ms=61_001)
        assert first.recall_handle is not None
        assert await producer.recall("orders", first.recall_handle) == first.message_id
        brokers["broker-a"].controller.state.clock.put_forward(61_100)
        answer = await client.pull("ns%orders", 0, hold_ms=60_000)
        assert (b"comes" in answer.body, b"recalled" in answer.body) == (True, False)
        with pytest.raises(MQBrokerError, match="recall failed"):
            await producer.recall("orders", first.recall_handle)
        with pytest.raises(MessageIllegalError, match="expected the recall_handle of a SendResult"):
            await producer.recall("orders", "none")
        of_a_level = await producer.send(Message("orders", b"of a level"), delay_ms=60_000)
        with pytest.raises(ConfigError, match="recall_handle None: a message can be taken back that waits for"):
            await producer.recall("orders", of_a_level.recall_handle)


async def test_many_tasks_send_at_once(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        results = await asyncio.gather(*(producer.send(Message("orders", b"%d" % i)) for i in range(500)))
        assert sorted(one.queue_offset for one in results) == list(range(500))
        assert len({one.message_id for one in results}) == 500


async def test_sends_go_on_with_another_broker_where_one_is_stopped(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "orders", 2)
        assert {(await producer.send(Message("orders", b"x"))).queue.broker_name for _ in range(4)} == set(brokers)
        await brokers["broker-a"].leave_all()
        await brokers["broker-a"].stop()
        assert {(await producer.send(Message("orders", b"y"))).queue.broker_name for _ in range(8)} == {"broker-b"}


async def test_a_silent_network_is_left_for_another_broker_and_nothing_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, asked = "", 0
    plain = RemotingClient.call

    async def call(client: RemotingClient, address: str, command: RemotingCommand, timeout_s: float = 60.0) -> Any:
        nonlocal asked
        asked += address == silent
        return await plain(client, address, command, 0.3 if address == silent else timeout_s)

    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "orders", 2)
        async with proxy_to(brokers["broker-a"].controller.address) as proxy:
            client = producer._open_client()
            await producer.queues("orders")
            addresses = {"broker-a": proxy.address, "broker-b": brokers["broker-b"].controller.address}
            client.routes.master = addresses.get  # type: ignore[method-assign, assignment]
            sent = {(await producer.send(Message("orders", b"x"))).queue.broker_name for _ in range(4)}
            assert sent == set(brokers)
            proxy.hold()
            silent = proxy.address
            monkeypatch.setattr(RemotingClient, "call", call)
            names = {(await producer.send(Message("orders", b"y"))).queue.broker_name for _ in range(8)}
            assert names == {"broker-b"}
            assert asked == 1


async def test_where_every_attempt_fails_the_error_tells_each_reason(tmp_path: Path) -> None:
    async def never(topic: str) -> None:
        raise MQClientError("no name server answers")

    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g", retries=1) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        await producer.send(Message("orders", b"x"))
        producer._open_client().routes._ask = never  # type: ignore[assignment]
        await brokers["broker-a"].leave_all()
        await brokers["broker-a"].stop()
        with pytest.raises(MQClientError, match=r"topic orders: not sent after 2 attempts: .*; .*") as raised:
            await producer.send(Message("orders", b"x"))
        assert raised.value.retriable


async def test_a_refusal_that_holds_everywhere_is_not_tried_again(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", max_message_size=1000) as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        with pytest.raises(MQBrokerError) as raised:
            await producer.send(Message("orders", bytes(2000)))
        assert raised.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert raised.value.address == brokers["broker-a"].controller.address
        with pytest.raises(MQBrokerError, match="code 29"):
            await producer.send(Message("orders", b"x"), queue=QueueKey("orders", "broker-a", 7))


async def test_another_name_server_is_asked_where_one_is_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders")
        async with proxy_to(namesrv.address) as gone:
            addresses = f"{gone.address};{namesrv.address}"
            await gone.refuse()
            for _ in range(4):  # the first one is drawn
                async with Producer(addresses, group="g") as producer:
                    await producer.send(Message("orders", b"x"))


async def test_without_a_name_server_the_error_names_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (namesrv, _), proxy_to(namesrv.address) as gone:
        await gone.refuse()
        async with Producer(gone.address, group="g") as producer:
            with pytest.raises(MQClientError, match=f"no name server answers: {gone.address}"):
                await producer.send(Message("orders", b"x"))


@pytest.mark.parametrize("namesrv", ["", "localhost", "localhost:", "a:b", ":9876", "a:99999", "a:1;b"])
async def test_an_address_that_is_none_is_refused_at_the_start(namesrv: str) -> None:
    with pytest.raises(ConfigError, match="name server"):
        await Producer(namesrv, group="g").start()


async def test_a_producer_that_is_not_open_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, _):
        producer = Producer(namesrv.address, group="g")
        with pytest.raises(MQClientError, match="not started"):
            await producer.send(Message("orders", b"x"))
        async with producer:
            with pytest.raises(MQClientError, match="started already"):
                await producer.start()
        await producer.close()
        with pytest.raises(MQClientError, match="closed"):
            await producer.send(Message("orders", b"x"))
        with pytest.raises(MQClientError, match="was closed: make another one"):
            await producer.start()


async def test_a_cancelled_send_leaves_nothing_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders")
        async with (
            proxy_to(brokers["broker-a"].controller.address) as proxy,
            Producer(namesrv.address, group="g") as producer,
        ):
            client = producer._open_client()
            client.routes.master = lambda name: proxy.address  # type: ignore[method-assign]
            await producer.send(Message("orders", b"1"))
            proxy.hold()
            sending = asyncio.create_task(producer.send(Message("orders", b"2")))
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            proxy.go_on()
            await producer.send(Message("orders", b"3"))


async def test_brokers_know_the_producers_of_a_group_until_they_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "reput.client"):
        async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
            client = await brokers["broker-a"].client()
            await with_topic(client, "orders")
            async with Producer(namesrv.address, group="g") as producer:
                await producer.send(Message("orders", b"1"))
                await producer._open_client().heartbeat()
                answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="g")
                assert producer._open_client().client_id in answer.body.decode()
                assert '"language":"PYTHON"' in answer.body.decode()
            assert (await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="g")).code != 0
    assert caplog.records == []


async def test_a_broker_hears_at_once_who_is_there_over_a_new_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    plain = MQClientAPI.heartbeat

    async def heartbeat(api: MQClientAPI, address: str, body: bytes) -> int:
        version = await plain(api, address, body)
        heard.put_nowait(address)
        return version

    monkeypatch.setattr(MQClientAPI, "heartbeat", heartbeat)
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        address = brokers["broker-a"].controller.address
        await producer.send(Message("orders", b"1"))
        assert await heard.get() == address
        for body in (b"2", b"3"):
            producer._open_client().remoting.connections[address].close()
            await producer.send(Message("orders", body))
            async with asyncio.timeout(20):  # the next one in turn comes after 30 s
                assert await heard.get() == address
