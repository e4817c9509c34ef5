"""Traces: their bytes as RocketMQ's encoder writes them, and the messages that bring them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from reput.client import (
    ConsumeStatus,
    LocalTransactionState,
    Message,
    MessageClientExt,
    Producer,
    PullConsumer,
    PushConsumer,
)
from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.trace_data import (
    ConsumedContext,
    ConsumeReturnType,
    EndedContext,
    MessageType,
    SentContext,
    TraceContext,
    TracedMessage,
)
from reput.client.instance.traces import Traces
from tests.support.broker import Served, with_topic
from tests.support.clients import cluster, stored

TOPIC = "RMQ_SYS_TRACE_TOPIC"
ID, OFFSET_ID = "0A00000100002A9F0000000000000001", "7F00000100002A9F0000000000000063"
TIME, REGION, ADDRESS = 1700000000123, "DefaultRegion", "127.0.0.1:10911"
FULL, BARE = TracedMessage("orders", ID, "paid", "o-1 o-2"), TracedMessage("orders", ID, None, None)
HANDED = (FULL, TIME, REGION, "g", "REQ", 2)

#: What TraceDataEncoder of RocketMQ 4.9.7, 5.3.3 and 5.5.0 writes of the same contexts; | for 1, ; for 2.
GOLDEN: list[tuple[TraceContext, str]] = [
    (
        SentContext(FULL, TIME, REGION, "g", ADDRESS, 42, 7, MessageType.NORMAL, OFFSET_ID, is_success=True),
        f"Pub|{TIME}|{REGION}|g|orders|{ID}|paid|o-1 o-2|{ADDRESS}|42|7|0|{OFFSET_ID}|true;",
    ),
    (
        SentContext(BARE, TIME, REGION, "g", ADDRESS, 42, 7, MessageType.TRANS_HALF, OFFSET_ID, is_success=False),
        f"Pub|{TIME}|{REGION}|g|orders|{ID}|null|null|{ADDRESS}|42|7|1|{OFFSET_ID}|false;",
    ),
    (ConsumedContext(*HANDED), f"SubBefore|{TIME}|{REGION}|g|REQ|{ID}|2|o-1 o-2;"),
    (ConsumedContext(BARE, *HANDED[1:]), f"SubBefore|{TIME}|{REGION}|g|REQ|{ID}|2|null;"),
    (
        ConsumedContext(*HANDED, cost_time=7, return_type=ConsumeReturnType.SUCCESS),
        f"SubAfter|REQ|{ID}|7|true|o-1 o-2|0|{TIME}|g;",
    ),
    (
        ConsumedContext(*HANDED, cost_time=7, return_type=ConsumeReturnType.FAILED),
        f"SubAfter|REQ|{ID}|7|false|o-1 o-2|4|{TIME}|g;",
    ),
    (
        EndedContext(FULL, TIME, REGION, "g", ADDRESS, "TX", "COMMIT_MESSAGE", is_from_check=False),
        f"EndTransaction|{TIME}|{REGION}|g|orders|{ID}|paid|o-1 o-2|{ADDRESS}|2|TX|COMMIT_MESSAGE|false;",
    ),
]


@pytest.mark.parametrize(("context", "text"), GOLDEN)
def test_contexts_are_written_as_rocketmq_writes_them(context: TraceContext, text: str) -> None:
    assert context.encode() == text.replace("|", "\x01").replace(";", "\x02")


async def traced(broker: Served, topic: str = TOPIC) -> tuple[list[list[str]], set[str]]:
    """The contexts of a topic in the order in which they were stored, and the keys of its messages."""
    messages = sorted(await stored(broker, topic, 4), key=lambda message: message.commit_log_offset)
    contexts = [one.split("\x01") for each in messages for one in each.body.decode().split("\x02") if one]
    return contexts, {key for each in messages for key in each.keys}


async def test_sends_and_handlers_are_told_before_the_client_is_closed(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", trace_topic_enable=True) as (namesrv, brokers):
        broker = brokers["broker-a"]
        await with_topic(await broker.client(), "ns%orders", 1)
        async with Producer(namesrv.address, group="shop", trace=True, namespace="ns") as producer:
            sent = [await producer.send(Message("orders", b"one", tags="paid", keys=["o-1"]))]
            sent += await producer.send_batch([Message("orders", b"two"), Message("orders", b"three")])
            sent.append(await producer.send(Message("orders", b"late"), delay_ms=60_000))
        contexts, keys = await traced(broker)
        assert keys == {"o-1", *(one.message_id for one in sent)}
        assert [(c[0], *c[3:8], c[9], *c[11:]) for c in contexts] == [
            ("Pub", "shop", "orders", one.message_id, tags, key, str(size), kind, one.offset_message_id, "true")
            for one, tags, key, size, kind in zip(
                sent, ("paid", *["null"] * 3), ("o-1", *["null"] * 3), (3, 3, 5, 4), "0003", strict=True
            )
        ]
        assert {c[8].partition(":")[0] for c in contexts} == {"127.0.0.1"}

        results = {b"one": None, b"two": ConsumeStatus.RECONSUME_LATER}
        handled = asyncio.Event()
        seen: list[bytes] = []

        async def handle(message: MessageClientExt) -> ConsumeStatus | None:
            seen.append(message.body)
            if len(seen) == 3:
                handled.set()
            return results[message.body]  # "three": a KeyError

        async with PushConsumer(
            namesrv.address, group="c", topics={"orders": "*"}, on_message=handle, consume_from="first",
            trace="traces", namespace="ns",
        ):  # fmt: skip
            await handled.wait()
        contexts, _ = await traced(broker, "traces")
        before = {c[5]: c for c in contexts if c[0] == "SubBefore"}
        after = {c[2]: c for c in contexts if c[0] == "SubAfter"}
        assert before.keys() == after.keys() == {one.message_id for one in sent[:3]}
        codes = [after[one.message_id][4:7:2] for one in sent[:3]]
        assert codes == [["true", "0"], ["false", "4"], ["false", "2"]]
        assert all(before[key][4] == after[key][1] for key in before)
        assert {c[3] for c in before.values()} | {c[8] for c in after.values()} == {"c"}


async def test_messages_that_are_polled_are_told_as_consumed(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", trace_topic_enable=True) as (namesrv, brokers):
        broker = brokers["broker-a"]
        await with_topic(await broker.client(), "orders", 1)
        async with Producer(namesrv.address, group="p") as producer:
            sent = await producer.send_batch([Message("orders", b"one"), Message("orders", b"two")])
        topics = {"orders": "*"}
        async with PullConsumer(namesrv.address, group="c", topics=topics, consume_from="first", trace=True) as one:
            found = 0
            while found < 2:
                found += len(await one.poll(timeout=30))
        contexts, _ = await traced(broker)
        ids = [result.message_id for result in sent]
        assert [c[5] for c in contexts if c[0] == "SubBefore"] == ids
        assert [(c[2], c[4], c[6], c[8]) for c in contexts if c[0] == "SubAfter"] == [
            (each, "true", "0", "c") for each in ids
        ]


async def test_the_end_of_a_transaction_is_told(tmp_path: Path) -> None:
    keys = {"transaction_check_interval": 100, "transaction_time_out": 100}
    async with cluster(tmp_path, "broker-a", **keys) as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        asked = asyncio.Event()

        def check(message: MessageClientExt) -> LocalTransactionState:
            asked.set()
            return LocalTransactionState.ROLLBACK_MESSAGE

        async with Producer(namesrv.address, group="g", trace=True, check_transaction=check) as producer:
            message = Message("orders", b"x", tags="t")
            told = replace(message, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})  # nobody asks meanwhile
            one = await producer.send_in_transaction(told, lambda _: LocalTransactionState.COMMIT_MESSAGE)
            two = await producer.send_in_transaction(message, lambda _: LocalTransactionState.UNKNOW)
            await asked.wait()
        contexts, _ = await traced(brokers["broker-a"])
        ends = [(c[5], c[6], *c[11:]) for c in contexts if c[0] == "EndTransaction"]
        assert set(ends) == {  # a broker may ask again before it has the answer
            (one.half.message_id, "t", "COMMIT_MESSAGE", "false"),
            (two.half.message_id, "t", "UNKNOW", "false"),
            (two.half.message_id, "t", "ROLLBACK_MESSAGE", "true"),
        }
        assert {c[11] for c in contexts if c[0] == "Pub"} == {"1"}


async def test_a_send_does_not_fail_with_its_traces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with cluster(tmp_path, "broker-a", auto_create_topic_enable=False) as (namesrv, brokers):
            await with_topic(await brokers["broker-a"].client(), "orders", 1)
            async with Producer(namesrv.address, group="g", trace="none") as producer:
                await producer.send(Message("orders", b"x"))
    assert "traces are lost: they cannot be sent" in caplog.text


class Stuck:
    """A producer whose sends do not end."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.asked.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


async def test_a_trace_that_was_on_its_way_is_told_as_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reput.client.instance.traces._CLOSE_S", 0)

    with caplog.at_level(logging.WARNING):
        spawn = asyncio.get_running_loop().create_task
        client = cast(ClientInstance, SimpleNamespace(spawn=spawn, now_ms=lambda: TIME))
        producer = Stuck()
        traces = Traces(client, producer, TOPIC, "g")
        for _ in range(2):
            traces.ended(Message("orders", b"x"), ID, ADDRESS, "TX", "COMMIT_MESSAGE", is_from_check=False)
        await producer.asked.wait()
        traces.ended(Message("orders", b"x"), ID, ADDRESS, "TX", "COMMIT_MESSAGE", is_from_check=False)
        await traces.close()
    assert [str(one.msg) for one in caplog.records] == ["traces are lost: the client is closed traces=3"]


async def test_a_broker_may_refuse_traces(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", trace_on=False) as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders", 1)
        done = asyncio.Event()

        async def handle(message: MessageClientExt) -> None:
            done.set()

        async with Producer(namesrv.address, group="g", trace=True) as producer:
            await producer.send(Message("orders", b"x"))
            async with PushConsumer(
                namesrv.address, group="c", topics={"orders": "*"}, on_message=handle, consume_from="first",
                trace=True,
            ):  # fmt: skip
                await done.wait()
        assert await traced(brokers["broker-a"]) == ([], set())
