"""Heartbeats that are taken beside the loop: how many groups a connection has, and that they are gone with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from reput.broker.disk_work import DiskPools
from reput.broker.pulls.message_filters import compile_beside
from reput.broker.view import BrokerView
from reput.remoting.body_bounds import LARGE_BODY
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.connection import Connection
from tests.support.broker import consumer, serving_broker

MOST = 1000


def heartbeat(*consumers: object, producers: Sequence[str] = ()) -> RemotingCommand:
    body = {
        "clientID": "c",
        "consumerDataSet": consumers,
        "producerDataSet": [{"groupName": name} for name in producers],
    }
    return RemotingCommand(RequestCode.HEART_BEAT, ext_fields={}, body=json.dumps(body).encode())


async def test_a_client_of_many_groups_says_so_again_and_again(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        command = heartbeat(producers=[f"p{number}" for number in range(700)])
        assert len(command.body) > LARGE_BODY
        for _ in range(3):
            assert (await client.begin_all([command])[0]).code == 0
        assert len(served.controller.state.producers.groups()) == 700


async def test_heartbeats_of_one_write_make_no_more_groups_than_a_connection_may_have(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        commands = [heartbeat(producers=[f"p{n}-{number}" for number in range(900)]) for n in range(4)]
        answers = await asyncio.gather(*client.begin_all(commands))
        assert {answer.code for answer in answers} <= {0, 1}
        assert 900 <= len(served.controller.state.producers.groups()) <= MOST


@pytest.mark.parametrize("groups", [1, 100])
async def test_a_farewell_behind_a_heartbeat_that_is_taken_beside_the_loop_is_the_last_word(
    tmp_path: Path, groups: int
) -> None:
    """The connection lives on, as of a client with other groups: nobody would have handled the queues of the member."""
    async with serving_broker(tmp_path / "store", enablePropertyFilter="true") as served:
        client = await served.client()
        text = " OR ".join(f"a{number} = {number}" for number in range(60))
        subscription = {"topic": "t", "subString": text, "expressionType": "SQL92", "subVersion": 1}
        sql = consumer("g", "t") | {"subscriptionDataSet": [subscription]}
        large = heartbeat(sql, producers=[f"p{number}" for number in range(groups)])
        assert (len(large.body) > LARGE_BODY) is (groups > 1)
        fields = {"clientID": "c", "consumerGroup": "g", "producerGroup": "p0"}
        leave = RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=fields)
        again = heartbeat(consumer("other", "orders"))
        answers = await asyncio.gather(*client.begin_all([large, leave, again]))
        assert [answer.code for answer in answers] == [0, 0, 0]
        state = served.controller.state
        assert state.consumers.consumer_group_info("g") is None
        assert state.consumers.consumer_group_info("other") is not None
        assert not state.producers.channels("p0")


async def test_a_client_that_leaves_while_its_expression_is_compiled_is_no_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_compiled = asyncio.Event()

    async def and_leave(view: BrokerView, pools: DiskPools, connection: Connection, texts: Sequence[str]) -> None:
        await compile_beside(view, pools, connection, texts)
        await client.leave()
        while connection.is_open:
            await asyncio.sleep(0)
        is_compiled.set()  # who waits for it comes after the rest of the heartbeat

    monkeypatch.setattr("reput.broker.client_processor.compile_beside", and_leave)
    async with serving_broker(tmp_path / "store", enablePropertyFilter="true") as served:
        client = await served.client()
        text = " OR ".join(f"a{number} = {number}" for number in range(200))
        subscription = {"topic": "t", "subString": text, "expressionType": "SQL92", "subVersion": 1}
        client.begin_all([heartbeat(consumer("g", "t") | {"subscriptionDataSet": [subscription]})])
        await is_compiled.wait()
        assert served.controller.state.consumers.consumer_group_info("g") is None
