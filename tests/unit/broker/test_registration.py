"""What a broker of many topics tells its name servers when one of them is made or changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput import MessageStore
from reput.formats.metadata import TopicConfig
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.namesrv_headers import UnRegisterBrokerRequestHeader
from tests.support.broker import SMALL, Client, Served, serving_broker, with_topic
from tests.support.namesrv import CLUSTER, Asked, asked_name_server
from tests.support.sockets import free_ports

ALL, VERSION, ONE = (
    RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_TOPIC_IN_NAMESRV,
)  # fmt: skip


class Watched:
    """A broker of many topics at name servers: what it asks them, and what they know.

    `asked`: the codes of its requests; `held`: until it is set, no registration of all is sent; `refused`: a code that
    no name server takes; `version`: of the name servers, None for their own.
    """

    def __init__(self, served: Served, client: Client, namesrv: Asked) -> None:
        self.served, self.client, self.namesrv = served, client, namesrv
        self.asked: list[int] = []
        self.held = asyncio.Event()
        self.held.set()
        self.refused: int | None = None
        self.version: int | None = None
        connections = served.controller.state.registration._client
        self._call, connections.call = connections.call, self._told  # type: ignore[method-assign]

    async def _told(self, address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        self.asked.append(command.code)
        if command.code == ALL:
            await self.held.wait()
        if command.code == self.refused:
            return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._call(address, command, timeout_s)
        return answer if self.version is None else replace(answer, version=self.version)

    async def route(self, topic: str) -> dict[str, Any] | None:
        """The queues that a name server knows of a topic."""
        answer = await self.namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return json.loads(answer.body)["queueDatas"][0] if answer.code == 0 else None


@asynccontextmanager
async def watched(tmp_path: Path, topics: int = 200, servers: str = "{}", **keys: Any) -> AsyncIterator[Watched]:
    with MessageStore.open(tmp_path / "store", **SMALL) as store:
        store.update_topics([TopicConfig(f"topic-{number}", 1, 1) for number in range(topics)])
    async with (
        asked_name_server(tmp_path) as namesrv,
        serving_broker(tmp_path / "store", namesrvAddr=servers.format(namesrv.address), **keys) as served,
    ):
        yield Watched(served, await served.client(), namesrv)


async def test_a_new_topic_is_registered_by_itself_and_a_change_of_it_too(tmp_path: Path) -> None:
    async with watched(tmp_path) as broker:
        assert (await broker.client.send_message("new")).code == 0
        assert broker.asked == [VERSION, ONE]
        found = await broker.route("new")
        assert found is not None
        assert (found["brokerName"], found["readQueueNums"], found["perm"]) == ("broker-a", 4, 6)
        await with_topic(broker.client, "new", 7)
        assert broker.asked == [VERSION, ONE] * 2
        found = await broker.route("new")
        assert found is not None
        assert found["writeQueueNums"] == 7
        await broker.served.controller.state.registration.register()
        assert await broker.route("new") == found
        assert await broker.route("topic-199") is not None


async def test_a_broker_that_clients_may_not_write_to_says_so_of_each_topic(tmp_path: Path) -> None:
    async with watched(tmp_path, brokerPermission=4) as broker:
        await with_topic(broker.client, "new", 2)
        assert broker.asked == [VERSION, ONE]
        found = await broker.route("new")
        assert found is not None
        assert found["perm"] == 4


@pytest.mark.parametrize("topics", [5, 200])
async def test_topics_are_registered_with_all_others_if_that_is_cheaper(tmp_path: Path, topics: int) -> None:
    async with watched(tmp_path, topics) as broker:
        new = [{"topicName": f"new-{number}"} for number in range(1 if topics == 5 else 30)]
        body = json.dumps({"topicConfigList": new}).encode()
        assert (await broker.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)).code == 0
        assert broker.asked == [ALL]
        assert await broker.route(new[-1]["topicName"]) is not None


async def test_a_name_server_that_lacks_the_other_topics_gets_all(tmp_path: Path) -> None:
    """It would take a topic of a broker that it does not know, and drop it."""
    async with watched(tmp_path) as broker:
        address = broker.served.controller.address
        leaving = encode_header(UnRegisterBrokerRequestHeader("broker-a", address, CLUSTER, 0))
        assert (await broker.namesrv.ask(RequestCode.UNREGISTER_BROKER, **leaving)).code == 0
        while await broker.route("topic-0") is not None:
            await asyncio.sleep(0)
        assert (await broker.client.send_message("new")).code == 0
        assert broker.asked == [VERSION, ALL]
        assert await broker.route("topic-0") is not None
        assert await broker.route("new") is not None


async def test_a_name_server_of_rocketmq_4_gets_all(tmp_path: Path) -> None:
    """It does not answer a request that it does not know, so that a send would wait for seconds."""
    async with watched(tmp_path) as broker:
        broker.version = 411
        assert (await broker.client.send_message("new")).code == 0
        assert broker.asked == [VERSION, ALL]
        assert await broker.route("new") is not None


async def test_a_name_server_that_takes_no_single_topics_gets_all(tmp_path: Path) -> None:
    async with watched(tmp_path) as broker:
        broker.refused = ONE
        assert (await broker.client.send_message("new")).code == 0
        assert broker.asked == [VERSION, ONE, ALL]
        assert await broker.route("new") is not None


async def test_a_name_server_that_is_away_costs_no_registration_of_all(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with watched(tmp_path, servers=f"{{}};127.0.0.1:{port}") as broker:
        assert (await broker.client.send_message("new")).code == 0
        assert sorted(broker.asked) == sorted([VERSION, VERSION, ONE])
        assert await broker.route("new") is not None


async def test_what_changes_while_all_are_registered_is_told_again_after_it(tmp_path: Path) -> None:
    """The registration under way may have the topic as it was, and may come later."""
    async with watched(tmp_path) as broker:
        await with_topic(broker.client, "new", 2)
        broker.asked.clear()
        broker.held.clear()
        under_way = asyncio.create_task(broker.served.controller.state.registration.register())
        while ALL not in broker.asked:
            await asyncio.sleep(0)
        await with_topic(broker.client, "new", 7)
        assert broker.asked == [ALL, VERSION, ONE]
        broker.held.set()
        await under_way
        assert broker.asked == [ALL, VERSION, ONE, VERSION, ONE]
        found = await broker.route("new")
        assert found is not None
        assert found["writeQueueNums"] == 7


async def test_topics_that_are_changed_while_a_name_server_is_silent_wait_for_it_together(tmp_path: Path) -> None:
    """Or the last one of 20 would wait for a minute, and so would a send that makes a topic."""
    async with watched(tmp_path) as broker:
        registration, silent = broker.served.controller.state.registration, asyncio.Event()
        answering, told = registration._client.call, list[int]()

        async def call(address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
            told.append(command.code)
            await silent.wait()
            return await answering(address, command, timeout_s)

        registration._client.call = call  # type: ignore[method-assign]
        changes = [asyncio.create_task(registration.register_topics([f"topic-{number}"])) for number in range(20)]
        while not told:
            await asyncio.sleep(0)
        silent.set()
        await asyncio.gather(*changes)
        assert told == [VERSION, ONE] + [VERSION] + [ONE] * 19


async def test_topics_of_a_call_that_is_cancelled_are_registered_by_the_next_one(tmp_path: Path) -> None:
    """It has taken along what others wait for."""
    async with watched(tmp_path) as broker:
        registration = broker.served.controller.state.registration
        await with_topic(broker.client, "first", 2)
        broker.asked.clear()
        answering, held, told = registration._client.call, asyncio.Event(), list[int]()

        async def call(address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
            told.append(command.code)
            await held.wait()
            return await answering(address, command, timeout_s)

        registration._client.call = call  # type: ignore[method-assign]
        first = asyncio.create_task(registration.register_topics(["topic-0"]))
        while not told:
            await asyncio.sleep(0)
        second, third = (asyncio.create_task(registration.register_topics([f"topic-{one}"])) for one in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        while len(told) < 2:
            await asyncio.sleep(0)
        second.cancel()
        held.set()
        await third
        assert told == [VERSION] * 3 + [ONE] * 3
