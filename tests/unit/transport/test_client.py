"""RemotingClient: calls by address, one connection for each, and again after its end."""

from __future__ import annotations

import asyncio

import pytest

from reput.errors import RemotingError
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.requests import Requests
from tests.support.sockets import free_ports, serving

ECHO = 10


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=request.body)


class Watched(RemotingClient):
    """Tells when a connection has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    def closed(self, connection: Connection) -> None:
        self.ended.set()


async def test_calls_at_once_share_one_connection_and_get_their_own_answers() -> None:
    async with serving({ECHO: echo}) as here:
        client = RemotingClient()
        calls = (client.call(here.address, RemotingCommand(ECHO, body=b"%d" % i)) for i in range(100))
        answers = await asyncio.gather(*calls)
        assert [one.body for one in answers] == [b"%d" % i for i in range(100)]
        assert len(here.server.connections) == 1
        client.close()
        await here.closed_connections.get()


async def test_a_connection_that_has_ended_is_made_again() -> None:
    client, (port,) = Watched(), free_ports(1)
    async with serving({ECHO: echo}, port=port) as here:
        assert (await client.call(here.address, RemotingCommand(ECHO, body=b"1"))).body == b"1"
    await client.ended.wait()
    with pytest.raises(RemotingError, match=f"{here.address}: "):
        await client.call(here.address, RemotingCommand(ECHO))
    async with serving({ECHO: echo}, port=here.port) as again:
        assert (await client.call(again.address, RemotingCommand(ECHO, body=b"2"))).body == b"2"
        client.close()


async def test_who_waits_for_a_try_to_connect_gets_its_error_and_who_asks_later_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, tries, end = RemotingClient(), [], asyncio.Event()

    async def connect(address: str) -> Connection:
        tries.append(address)
        await end.wait()
        raise RemotingError(f"{address}: silent, try {len(tries)}")

    monkeypatch.setattr(client, "_connect", connect)
    waiting = [asyncio.create_task(client.connection("a:1")) for _ in range(20)]
    other = asyncio.create_task(client.connection("b:1"))
    await asyncio.sleep(0)
    end.set()
    errors = await asyncio.gather(*waiting, other, return_exceptions=True)
    assert tries == ["a:1", "b:1"]
    assert len(set(map(id, errors))) == 21
    assert [str(error) for error in errors] == ["a:1: silent, try 2"] * 20 + ["b:1: silent, try 2"]
    with pytest.raises(RemotingError, match="a:1: silent, try 3"):
        await client.connection("a:1")


async def test_each_connection_that_is_made_is_told_once() -> None:
    client, (port,), told = RemotingClient(), free_ports(1), list[str]()
    client.on_connect = told.append
    address = f"127.0.0.1:{port}"
    for number in range(1, 3):
        with pytest.raises(RemotingError):
            await client.connection(address)
        async with serving({ECHO: echo}, port=port) as here:
            await asyncio.gather(*(client.connection(address) for _ in range(3)))
            await client.connection(address)
            assert told == [address] * number
            client.close()
            await here.closed_connections.get()


async def test_what_a_server_asks_is_handled_by_the_client() -> None:
    notified = asyncio.Event()
    handlers = Requests({307: echo, 40: lambda *_: notified.set()})
    async with serving({ECHO: echo}) as here:
        client = RemotingClient(handlers)
        await client.call(here.address, RemotingCommand(ECHO))
        connection = await here.opened_connections.get()
        answer = await connection.call(RemotingCommand(307, body=b"how are you"), 30)
        assert (answer.code, answer.body) == (0, b"how are you")
        assert (await connection.call(RemotingCommand(77), 30)).code == 3
        connection.send_one_way(RemotingCommand(40))
        await notified.wait()
        client.close()


@pytest.mark.parametrize("address", ["", "host", "host:", ":10911", "host:x", "host:-1", "host:١"])
async def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(RemotingError, match="expected HOST:PORT"):
        await RemotingClient().call(address, RemotingCommand(ECHO))


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "x" * 70 + ":1", "a\0b:1"])
async def test_an_address_that_no_socket_takes_is_told(address: str) -> None:
    with pytest.raises(RemotingError, match=":"):
        await RemotingClient().call(address, RemotingCommand(ECHO))


async def test_a_server_that_sends_garbage_is_closed() -> None:
    def garbage(connection: Connection, request: RemotingCommand) -> None:
        connection.write(b"\xff" * 100)

    async with serving({ECHO: garbage}) as here:
        with pytest.raises(RemotingError, match=f"^{here.address}: frame length -1: expected "):
            await RemotingClient().call(here.address, RemotingCommand(ECHO), timeout_s=30)
