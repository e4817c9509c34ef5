"""What brokers ask a push consumer, through a broker in the same loop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reput.client import ConsumeStatus, Message, MessageClientExt, MessageQueue, Producer, PushConsumer
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import decode_queue_table
from tests.support.broker import Client, Served, with_topic
from tests.support.clients import cluster

#: What the handler of a test does, by the message's body.
DOES: dict[bytes, ConsumeStatus | None] = {b"good": None, b"late": ConsumeStatus.RECONSUME_LATER}


async def client_id(asking: Client, group: str) -> str:
    answer = await asking.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    (found,) = json.loads(answer.body)["consumerIdList"]
    return str(found)


async def asked(broker: Served, code: int, **fields: Any) -> RemotingCommand:
    asking = await broker.client()
    return await asking.ask(code, consumerGroup="ns%c", clientId=await client_id(asking, "ns%c"), **fields)


async def offsets(broker: Served, topic: str) -> dict[MessageQueue, Any]:
    """The offsets in a topic, as the one consumer of the group tells them."""
    asking = await broker.client()
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = await asking.ask(code, topic=topic, group="ns%c")
    assert answer.code == 0, answer.remark
    head = b'{"consumerTable":{"%s":' % (await client_id(asking, "ns%c")).encode()
    tail = b'},"messageQueueTable":{}}'
    assert answer.body.startswith(head)
    assert answer.body.endswith(tail)
    return decode_queue_table(b'{"table":' + answer.body[len(head) : -len(tail)] + b"}", "table")


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_consumer_tells_what_it_does_and_consumes_what_it_is_given(tmp_path: Path, orderly: bool) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        broker = brokers["broker-a"]
        await with_topic(await broker.client(), "ns%orders", 1)
        handled: list[MessageClientExt] = []
        done = asyncio.Event()

        async def handle(message: MessageClientExt) -> ConsumeStatus | None:
            handled.append(message)
            done.set()
            return DOES[message.body]

        async with (
            Producer(namesrv.address, group="p", namespace="ns") as producer,
            PushConsumer(
                namesrv.address, group="c", topics={"orders": "a || b"}, on_message=handle, namespace="ns",
                consume_from="first", orderly=orderly, concurrency=7,
            ) as consumer,
        ):  # fmt: skip
            sent = await producer.send(Message("orders", b"good", tags="a"))
            await done.wait()
            queue = MessageQueue("ns%orders", "broker-a", 0)
            while await offsets(broker, "ns%orders") != {queue: 1}:
                pass  # the message is counted soon after its handler has returned
            assert await offsets(broker, "ns%other") == {}

            consumer._handler.statistics.sample(0.0)
            answer = await asked(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, jstackEnable=True)
            info = decode_queue_table(answer.body, "mqTable")[queue]
            assert (info["commitOffset"], info["cachedMsgCount"], info["droped"]) == (1, 0, False)
            assert info["lastPullTimestamp"] >= info["lastConsumeTimestamp"] - 60_000 > 0
            assert (info["locked"], info["lastLockTimestamp"] > 0) == (orderly, orderly)
            told = json.loads(answer.body[answer.body.index(b'"properties":') :].join((b"{", b"")))
            assert told["properties"]["PROP_CONSUMEORDERLY"] == str(orderly).lower()
            assert told["properties"]["PROP_THREADPOOL_CORE_SIZE"] == "7"
            assert told["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            subscriptions = {one["topic"]: one["subString"] for one in told["subscriptionSet"]}
            assert subscriptions == {"ns%orders": "a || b", "%RETRY%ns%c": "*"}
            speeds = {key: (one["pullTPS"], one["consumeOKTPS"]) for key, one in told["statusTable"].items()}
            assert speeds == {"ns%orders": (0.1, 0.1), "%RETRY%ns%c": (0.0, 0.0)}
            assert "MainThread" in told["jstack"]

            messages = [Message("orders", body, tags="none") for body in (b"late", b"odd")]
            results = []
            for one in (sent, *[await producer.send(each) for each in messages]):
                code = RequestCode.CONSUME_MESSAGE_DIRECTLY
                results.append(json.loads((await asked(broker, code, msgId=one.offset_message_id)).body))
            assert [(one["consumeResult"], one.get("remark")) for one in results] == [
                ("CR_SUCCESS", None), ("CR_LATER", None), ("CR_THROW_EXCEPTION", "KeyError: b'odd'"),
            ]  # fmt: skip
            assert [one.body for one in handled] == [b"good", b"good", b"late", b"odd"]
            assert handled[1].queue == sent.queue
            assert {one["order"] for one in results} == {orderly}
