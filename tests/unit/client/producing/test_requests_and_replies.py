"""Requests that consumers reply to, against a broker in the same loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reput.client import Message, MessageClientExt, MQBrokerError, MQClientError, Producer, PushConsumer
from reput.errors import RemotingTimeoutError
from tests.support.broker import with_topic
from tests.support.clients import cluster


async def test_a_request_gets_the_reply_of_the_consumer_that_took_it(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="asker") as asker,
        Producer(namesrv.address, group="replier") as replier,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "prices")

        async def handle(message: MessageClientExt) -> None:
            await replier.reply(message, b"reply to " + message.body + b"!" * 5000)

        async with PushConsumer(
            namesrv.address, group="c", topics={"prices": "*"}, on_message=handle, consume_from="first"
        ):
            asked = [asker.request(Message("prices", b"%d" % number), timeout=30) for number in range(6)]
            replies = await asyncio.gather(*asked)
        assert [one.body for one in replies] == [b"reply to %d" % number + b"!" * 5000 for number in range(6)]


async def test_a_request_that_nobody_replies_to_ends_in_time(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="asker") as asker,
    ):
        await with_topic(await brokers["broker-a"].client(), "prices")
        with pytest.raises(RemotingTimeoutError, match=r"no consumer has replied in 0\.05 s"):
            await asker.request(Message("prices", b"?"), timeout=0.05)
        assert asker._requests is not None
        assert asker._requests._waiting == {}


async def test_a_reply_to_a_client_that_is_gone_or_to_no_request_is_an_error(tmp_path: Path) -> None:
    taken: asyncio.Queue[MessageClientExt] = asyncio.Queue()
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="replier") as replier,
        PushConsumer(namesrv.address, group="c", topics={"prices": "*"}, on_message=taken.put, consume_from="first"),
    ):
        await with_topic(await brokers["broker-a"].client(), "prices")
        async with Producer(namesrv.address, group="asker") as asker:
            with pytest.raises(RemotingTimeoutError):
                await asker.request(Message("prices", b"?"), timeout=0.01)
            await asker.send(Message("prices", b"plain"))
        request, plain = sorted([await taken.get(), await taken.get()], key=lambda one: one.body)
        with pytest.raises(MQBrokerError, match="not found"):
            await replier.reply(request, b"too late")
        with pytest.raises(MQClientError, match="waits for no reply"):
            await replier.reply(plain, b"what?")
