from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.config.properties import parse_properties
from reput.errors import ConfigError, CorruptMetadataError, RemotingError
from reput.namesrv.name_server import NameServer
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.namesrv_headers import NotifyMinBrokerIdChangeRequestHeader
from reput.remoting.route_bodies import encode_register_body
from reput.transport.connection import Connection
from reput.transport.requests import Requests
from reput.transport.server import RemotingServer
from tests.support.bad_arguments import bad_values, check_refused, parameters
from tests.support.namesrv import Asked, asked_name_server, broker_header, leaving, topics_body
from tests.support.sockets import free_ports

BODY = encode_register_body(topics_body("orders", "payments"))


async def broker_names(asked: Asked) -> list[str]:
    return list(json.loads((await asked.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)["brokerAddrTable"])


async def until_brokers_are(asked: Asked, names: list[str]) -> None:
    """Returns when the name server has noticed that a connection has ended."""
    while await broker_names(asked) != names:
        pass


async def test_a_silent_broker_is_dropped_and_its_connection_closed(tmp_path: Path) -> None:
    now_ms = [0]

    async with asked_name_server(tmp_path, lambda: now_ms[0]) as asked:
        silent = asked.connect()
        command = RemotingCommand(103, ext_fields=encode_header(broker_header()), body=BODY)
        await silent.call(asked.address, command)
        await asked.ask(103, broker_header("broker-b"), BODY)
        now_ms[0] = 100_000
        await asked.ask(
            904, clusterName="DefaultCluster", brokerAddr="broker-b-0:10911", brokerName="broker-b", brokerId="0"
        )
        now_ms[0] = 120_001
        connection = await silent.connection(asked.address)
        unanswered = asyncio.create_task(connection.call(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), 60))
        asked.server.scan_not_active_broker()
        assert await broker_names(asked) == ["broker-b"]
        with pytest.raises(RemotingError, match="the connection ended"):
            await unanswered
        silent.close()


async def test_the_timer_looks_for_silent_brokers(tmp_path: Path) -> None:
    now_ms = [0]

    async with asked_name_server(tmp_path, lambda: now_ms[0], scanNotActiveBrokerInterval=1) as asked:
        broker = asked.connect()
        header = broker_header(heartbeat_timeout_millis=10)
        await broker.call(asked.address, RemotingCommand(103, ext_fields=encode_header(header), body=BODY))
        assert await broker_names(asked) == ["broker-a"]
        now_ms[0] = 11
        await until_brokers_are(asked, [])
        broker.close()


async def test_a_broker_whose_connection_ends_is_dropped_at_once(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        broker = asked.connect()
        await broker.call(asked.address, RemotingCommand(103, ext_fields=encode_header(broker_header()), body=BODY))
        await asked.ask(103, broker_header("broker-b"), BODY)
        assert await broker_names(asked) == ["broker-a", "broker-b"]
        broker.close()
        await until_brokers_are(asked, ["broker-b"])


async def test_brokers_are_told_when_the_smallest_id_changes(tmp_path: Path) -> None:
    told: asyncio.Queue[NotifyMinBrokerIdChangeRequestHeader] = asyncio.Queue()

    class Slave:
        """Where a slave listens."""

        def __init__(self) -> None:
            self.requests = Requests({RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.take})

        def take(self, _: Connection, command: RemotingCommand) -> None:
            assert command.is_one_way
            told.put_nowait(decode_header(NotifyMinBrokerIdChangeRequestHeader, command.ext_fields))

        def opened(self, connection: Connection) -> None: ...

        def closed(self, connection: Connection) -> None: ...

        def readable(self, connection: Connection) -> None:
            self.requests.take_all(connection)

    listening = RemotingServer(Slave())
    slave = f"127.0.0.1:{await listening.start('127.0.0.1', 0)}"
    async with asked_name_server(tmp_path, notifyMinBrokerIdChanged=True) as asked:
        await asked.ask(103, broker_header("broker-a", 1, slave, enable_acting_master=True), BODY)
        await asked.ask(103, broker_header("broker-a", 2, "127.0.0.1:1", enable_acting_master=True), BODY)
        await asked.ask(103, broker_header("broker-a", 0, "master:1", enable_acting_master=True), BODY)
        change = await told.get()
        assert (change.min_broker_id, change.min_broker_addr, change.offline_broker_addr) == (0, "master:1", None)
        await asked.ask(104, leaving("broker-a", 0, "master:1"))
        change = await told.get()
        assert (change.min_broker_id, change.min_broker_addr, change.offline_broker_addr) == (1, slave, "master:1")
    await listening.stop()


async def test_values_are_read_at_the_start(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await asked.ask(100, namespace="NS", key="k", value="v")
    async with asked_name_server(tmp_path) as asked:
        assert (await asked.ask(101, namespace="NS", key="k")).ext_fields == {"value": "v"}


async def test_a_start_that_fails_listens_to_nobody(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")

    failed = NameServer(NamesrvConfig(kv_config_path=str(tmp_path / "none")))
    async with asked_name_server(tmp_path) as asked:
        for _ in range(2):
            with pytest.raises(RemotingError, match=f"{asked.port}.*choose another one, or 0"):
                await failed.start("127.0.0.1", asked.port)
    (port,) = free_ports(1)
    with pytest.raises(CorruptMetadataError, match="kvConfig"):
        await NameServer(NamesrvConfig(kv_config_path=str(path))).start("127.0.0.1", port)
    again = NameServer(NamesrvConfig(kv_config_path=str(tmp_path / "none")))
    assert await again.start("127.0.0.1", port) == port
    await again.stop()
    assert await failed.start("127.0.0.1", port) == port
    await failed.stop()


@pytest.mark.parametrize("name", parameters(NameServer))
def test_what_is_no_argument_of_a_name_server_is_refused(name: str) -> None:
    check_refused(NameServer, {}, name, bad_values(NameServer, name))


@pytest.mark.parametrize(("name", "values"), [("port", [-1, 1 << 16, "0", True, 1.5]), ("host", [5, b"x"])])
async def test_what_is_no_port_and_no_host_is_refused(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name} "):
            await NameServer().start(**{name: value})


async def test_a_value_that_is_being_written_is_answered_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.namesrv.name_server._DRAIN_S", 60)

    async with asked_name_server(tmp_path) as asked:
        await asked.ask(106)
        connection = await asked.client.connection(asked.address)
        fields = {"namespace": "NS", "key": "k", "value": "v"}
        answer = asyncio.create_task(connection.call(RemotingCommand(100, ext_fields=fields), 60))
        await asked.ask(106)  # the name server has taken both requests
        await asked.server.stop()
        assert (await answer).code == 0
    assert json.loads((tmp_path / "ns/kvConfig.json").read_text()) == {"configTable": {"NS": {"k": "v"}}}


async def test_operators_are_shown_the_port_on_which_it_listens(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        answer = await asked.ask(RequestCode.GET_NAMESRV_CONFIG)
        keys = parse_properties(answer.body.decode(), "answer")
        assert (keys["listenPort"], keys["bindAddress"]) == (str(asked.port), "127.0.0.1")
