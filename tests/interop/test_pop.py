"""POP with RocketMQ's own client, and messages that one broker hands out and the other gets back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.formats.message_ext import MessageExt
from reput.remoting.codes import RequestCode
from tests.support.async_tests import run
from tests.support.broker import Client, make_topic, messages_of
from tests.support.pop import ack, change_invisible_time, handles, pop, renewed
from tests.support.rocketmq.apache import Apache
from tests.support.sockets import free_ports

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE}
RETRY = "%RETRY%g_orders"


def with_client(address: str, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine function returns of a client of a broker."""

    async def connected() -> Any:
        host, _, port = address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        try:
            return await work(client)
        finally:
            await client.leave()

    return run(connected())


async def popped(client: Client, count: int, invisible_ms: int) -> dict[bytes, tuple[MessageExt, str, str]]:
    """So many messages with their topics and handles, by their bodies; waits for them."""
    found: dict[bytes, tuple[MessageExt, str, str]] = {}
    while len(found) < count:
        answer = await pop(client, "orders", invisible_ms=invisible_ms, poll_ms=5000, maxMsgNums=count - len(found))
        if answer.code == 0:
            found |= {one[0].body: one for one in handles(answer)}
    assert len(found) == count, sorted(found)
    return found


async def acked(client: Client, one: tuple[MessageExt, str, str]) -> None:
    assert (await ack(client, one[1], one[2])).code == 0


async def retries(client: Client) -> list[bytes]:
    """The bodies in the retry topic."""
    answer = await client.pull(RETRY, group="reader")
    return [message.body for message in messages_of(answer)]


def serve(apache: Apache, path: Path) -> str:
    """Apache's broker on a directory; its address."""
    port, namesrv_port = free_ports(2)
    keys = {"brokerName": "broker-a"}
    apache.start_broker(path, keys=keys, port=port, namesrv_port=namesrv_port, log_file_size=FILE_SIZE)
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)
def test_the_java_client_pops_and_acks(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 4)
        body = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}

        async def fill(client: Client) -> None:
            asked = await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps(body).encode())
            assert asked.code == 0
            for number in range(40):
                await client.send_message("orders", b"%d" % number, queueId=number % 4)

        with_client(broker.address, fill)
        where = {"namesrv": broker.namesrv, "topic": "orders", "group": "g", "tags": "*", "asks_broker": True}
        found = apache.run("client-push", count=40, **where)
        assert sorted(int(one["body"]) for one in found) == list(range(40))

        async def offsets(client: Client) -> list[str]:
            asked = [
                await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="orders", queueId=queue)
                for queue in range(4)
            ]
            return [(one.ext_fields or {})["offset"] for one in asked]

        assert with_client(broker.address, offsets) == ["10"] * 4


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_either_broker_acks_renews_and_revives_what_the_other_handed_out(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def ours(client: Client) -> dict[bytes, tuple[MessageExt, str, str]]:
        for number in range(7):
            await client.send_message("orders", b"%d" % number)
        found = await popped(client, 5, 15_000)
        await acked(client, found[b"0"])
        return found

    with Broker.start(path, **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        first = with_client(broker.address, ours)

    async def theirs(client: Client) -> dict[bytes, tuple[MessageExt, str, str]]:
        await acked(client, first[b"1"])
        answer = await change_invisible_time(client, first[b"2"][1], first[b"2"][2], 600_000)
        assert answer.code == 0, answer
        for one in (await popped(client, 2, 60_000)).values():
            await acked(client, one)
        again = await popped(client, 2, 15_000)
        assert {body: one[0].reconsume_times for body, one in again.items()} == {b"3": 1, b"4": 1}
        await acked(client, again[b"3"])
        return again | {b"2": (first[b"2"][0], first[b"2"][1], renewed(first[b"2"][2], answer))}

    second = with_client(serve(apache, path), theirs)
    apache.run("broker-stop")
    apache.kill()

    async def ours_again(client: Client) -> list[bytes]:
        await acked(client, second[b"2"])
        (one,) = (await popped(client, 1, 60_000)).values()
        assert (one[0].body, one[0].reconsume_times) == (b"4", 2)
        await acked(client, one)
        return await retries(client)

    with Broker.start(path, **HERE) as broker:
        assert sorted(with_client(broker.address, ours_again)) == [b"3", b"4", b"4"]
