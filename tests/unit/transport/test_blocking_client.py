"""Requests without an event loop, to a name server of a broker in a thread of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from reput import Broker
from reput.errors import RemotingError, RemotingTimeoutError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingClient, BlockingConnection
from reput.transport.tls import ClientTls
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
    sent = [connection.send(route(topic)) for topic in ("orders", "missing", "refunds")]
    codes = [connection.answer(opaque, 30).code for opaque in reversed(sent)]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS]
    connection.close()
    with pytest.raises(RemotingError):
        connection.send(route("orders"))


def test_a_call_after_a_connection_has_ended_makes_another_one(broker: Broker) -> None:
    client = BlockingClient()
    first = client.open(broker.namesrv)
    first._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(RemotingError):
        client.call(broker.namesrv, route("orders")).send(None)
    with pytest.raises(StopIteration) as ended:
        client.call(broker.namesrv, route("orders"), 30).send(None)
    assert ended.value.value.code == ResponseCode.SUCCESS
    assert client.open(broker.namesrv) is not first
    client.close()


def test_a_server_that_says_nothing_is_not_waited_for(silent: str) -> None:
    connection = BlockingConnection(silent)
    with pytest.raises(RemotingTimeoutError, match="no answer in time"):
        connection.answer(connection.send(route("orders")), 0.05)
    connection.close()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:1"])
def test_who_cannot_be_reached_is_told(address: str) -> None:
    with pytest.raises(RemotingError, match=address):
        BlockingConnection(address)


def test_a_server_that_talks_no_tls_is_told(broker: Broker) -> None:
    with pytest.raises(RemotingError, match=r"no TLS|ended|reset|closed"):
        BlockingConnection(broker.namesrv, ClientTls(auth_server=False))
