"""Requests without an event loop, to a name server of a broker in a thread of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from reput import Broker
from reput.errors import RemotingError, RemotingTimeoutError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingClient, BlockingConnection
from reput.transport.tls import ClientTls
from tests.support.sockets import free_ports
from tests.support.wire import wire_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with wire_broker(tmp_path_factory.mktemp("blocking")) as broker:
        yield broker


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def route(topic: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})


def test_answers_find_their_requests_in_any_order(broker: Broker) -> None:
    connection = BlockingConnection(broker.namesrv)
    sent = connection.send(*map(route, ("orders", "missing", "refunds")))
    codes = [connection.answer(opaque, 30).code for opaque in reversed(sent)]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS]
    connection.close()
    with pytest.raises(RemotingError):
        connection.send(route("orders"))


def test_a_call_after_one_without_an_answer_makes_another_connection(silent: str) -> None:
    client = BlockingClient()
    first = client.open(silent)
    assert client.open(silent) is first
    with pytest.raises(RemotingTimeoutError, match="no answer in time"):
        client.call(silent, route("orders"), 0.01).send(None)
    assert client.open(silent) is not first  # a late answer is not taken for that of a later request
    client.close()


def test_a_connection_that_the_server_has_closed_is_not_used_again(tmp_path: Path) -> None:
    client, (port,) = BlockingClient(), free_ports(1)
    with wire_broker(tmp_path, namesrv_port=port) as one:
        first = client.open(one.namesrv)
    assert not first.is_open
    with wire_broker(tmp_path, namesrv_port=port) as one, pytest.raises(StopIteration):
        client.call(one.namesrv, route("orders"), 30).send(None)
    client.close()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:1"])
def test_who_cannot_be_reached_is_told(address: str) -> None:
    with pytest.raises(RemotingError, match=address):
        BlockingConnection(address)


def test_a_server_that_talks_no_tls_is_told(broker: Broker) -> None:
    with pytest.raises(RemotingError, match=r"no TLS|ended|reset|closed"):
        BlockingConnection(broker.namesrv, ClientTls(auth_server=False))
