"""One port for the remoting protocol, HTTP/2 and TLS: the first bytes and ALPN tell what a connection is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from reput.config.namesrv import NamesrvConfig
from reput.errors import StoreError
from reput.formats.http2 import DATA, FRAME_HEAD, FRAME_HEAD_SIZE, GOAWAY, HEADERS
from reput.remoting.command import RemotingCommand
from reput.transport import server as server_module
from reput.transport.connection import Connection
from reput.transport.made_certificate import CERTIFICATE_FILE, made_tls
from reput.transport.server_tls import ServerTls
from tests.support.certificates import write_certificate
from tests.support.http2 import HELLO, SERVICE, Calls, Frame, echo, read_frames, request, upper
from tests.support.sockets import Peer, Serving, serving

ECHO = 10


def remoting_echo(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    return command.response(body=command.body)


@asynccontextmanager
async def one_port(calls: Calls | None = None, **options: object) -> AsyncIterator[Serving]:
    calls = calls or Calls({"Echo": echo, "Upper": upper}, {"Upper"})
    async with serving({ECHO: remoting_echo}, calls=calls, **options) as here:
        yield here


async def next_frame(peer: Peer) -> Frame:
    head = await peer.reader.readexactly(FRAME_HEAD_SIZE)
    high, low, kind, flags, stream = FRAME_HEAD.unpack(head)
    return Frame(kind, flags, stream, await peer.reader.readexactly(high << 8 | low))


async def answered(peer: Peer) -> bytes:
    """The message of the next answer."""
    while (frame := await next_frame(peer)).kind != DATA:
        assert frame.kind != GOAWAY
    return frame.payload[5:]


def client_context(*protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


async def tls_peer(here: Serving, *protocols: str) -> Peer:
    opened = asyncio.open_connection("127.0.0.1", here.port, ssl=client_context(*protocols), limit=1 << 24)
    return Peer(*await opened)


async def remoting_works(peer: Peer) -> None:
    peer.send(RemotingCommand(ECHO, 1, body=b"body"))
    assert (await peer.receive()).body == b"body"
    peer.close()


async def http2_works(peer: Peer) -> None:
    peer.writer.write(HELLO + request(1, "Echo", b"x" * 50_000))
    message = await answered(peer)
    while len(message) < 50_000:
        message += (await next_frame(peer)).payload
    assert message == b"x" * 50_000
    peer.close()


async def test_both_protocols_are_served_on_one_port() -> None:
    async with one_port() as here:
        await remoting_works(await here.peer())
        await http2_works(await here.peer())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
async def test_first_bytes_that_come_one_by_one_are_waited_for(size: int) -> None:
    async with one_port() as here:
        peer = await here.peer()
        peer.writer.write(HELLO[:size])
        while not here.server._beginnings and not here.server.http2_connections:
            await asyncio.sleep(0)
        await peer.writer.drain()
        await asyncio.sleep(0.01)
        peer.writer.write(HELLO[size:] + request(1, "Echo", b"x"))
        assert await answered(peer) == b"x"
        assert not here.server._beginnings
        assert len(here.server.http2_connections) == 1
        peer.close()


@pytest.mark.parametrize("begin", [b"POST / HTTP/1.1\r\n\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", b"PRX\0\0\0\0\0"])
async def test_what_begins_as_http2_and_is_not_is_told_as_before(
    begin: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with one_port() as here:
            peer = await here.peer()
            peer.writer.write(begin)
            await peer.ends()
    assert "connection closed: " in caplog.text


async def test_without_an_owner_of_calls_http2_is_told_what_it_needs() -> None:
    async with serving({ECHO: remoting_echo}) as here:
        peer = await here.peer()
        peer.writer.write(HELLO)
        assert (await peer.ends()).startswith(b"HTTP/1.1 400")


async def test_a_certificate_is_for_both_protocols(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    tls = ServerTls.of(NamesrvConfig.from_mapping(files.server_keys))
    async with one_port(tls=tls) as here:
        await remoting_works(await here.peer())
        await http2_works(await here.peer())
        await remoting_works(await tls_peer(here))
        peer = await tls_peer(here, "h2", "http/1.1")
        assert peer.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        await http2_works(peer)


async def test_where_tls_is_required_no_plain_http2_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = write_certificate(tmp_path).server_keys | {"tls.server.mode": "enforcing"}
    with caplog.at_level(logging.WARNING):
        async with one_port(tls=ServerTls.of(NamesrvConfig.from_mapping(keys))) as here:
            peer = await here.peer()
            peer.writer.write(HELLO + request(1, "Echo"))
            assert await peer.ends() == b""
            await http2_works(await tls_peer(here, "h2"))
    assert "tls.server.mode=enforcing" in caplog.text


# -- a certificate that nobody has signed


async def test_a_certificate_is_made_for_clients_of_http2_alone(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    async with one_port(make_tls=partial(made_tls, str(folder))) as here:
        await http2_works(await here.peer())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await tls_peer(here)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await tls_peer(here, "http/1.1")
        assert not folder.exists()  # nobody has needed it
        peers = await asyncio.gather(*[tls_peer(here, "h2") for _ in range(3)])
        assert here.server.made_tls is not None
        assert (folder / CERTIFICATE_FILE).stat().st_mode & 0o777 == 0o600
        for peer in peers:
            await http2_works(peer)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await tls_peer(here)
        await remoting_works(await here.peer())


async def test_a_hello_in_pieces_is_waited_for(tmp_path: Path) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context("h2").wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    async with one_port(make_tls=partial(made_tls, str(tmp_path))) as here:
        peer = await here.peer()
        for at in range(0, len(hello), 100):
            peer.writer.write(hello[at : at + 100])
            await peer.writer.drain()
            await asyncio.sleep(0)
        while client.selected_alpn_protocol() is None:
            incoming.write(await peer.reader.read(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
        assert client.selected_alpn_protocol() == "h2"
        peer.close()


async def test_a_certificate_that_cannot_be_kept_ends_the_handshake_and_the_next_client_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    def make() -> ServerTls:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreError("the disk is full")
        return made_tls(str(tmp_path))

    with caplog.at_level(logging.ERROR):
        async with one_port(make_tls=make) as here:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await tls_peer(here, "h2")
            await http2_works(await tls_peer(here, "h2"))
    assert "the disk is full" in caplog.text


# -- bounds


async def test_connections_of_both_protocols_and_those_that_say_nothing_count_together() -> None:
    async with one_port(max_connections=3) as here:
        remoting, http2, silent = await here.peer(), await here.peer(), await here.peer()
        remoting.send(RemotingCommand(ECHO, 1))
        await remoting.receive()
        http2.writer.write(HELLO + request(1, "Echo", b"x"))
        await answered(http2)
        while len(here.server._beginnings) < 1:
            await asyncio.sleep(0)
        assert await (await here.peer()).ends() == b""
        for peer in (remoting, http2, silent):
            peer.close()


async def test_idle_and_half_open_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_CHECK_S", 0.01)
    async with one_port(max_idle_s=0.2) as here:
        silent, started, idle = await here.peer(), await here.peer(), await here.peer()
        started.writer.write(HELLO[:3])
        idle.writer.write(HELLO + request(1, "Echo", b"x"))
        await answered(idle)
        assert await silent.ends() == await started.ends() == b""
        assert read_frames(await idle.ends())[-1].kind == GOAWAY
        assert not here.server.http2_connections


async def test_the_connection_that_holds_most_memory_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_CHECK_S", 0.01)
    monkeypatch.setattr(server_module, "_MOST_HELD_BYTES", 1 << 19)
    async with one_port() as here:
        small, large = await here.peer(), await here.peer()
        small.writer.write(HELLO + request(1, "Echo", bytes(1000), ends=False))
        large.writer.write(HELLO + request(1, "Echo", bytes(900_000), ends=False))
        await large.ends()
        assert len(here.server.http2_connections) == 1
        small.close()


async def test_stop_ends_calls_and_connections() -> None:
    async with one_port() as here:
        peer = await here.peer()
        peer.writer.write(HELLO + request(1, "Upper", b"x", ends=False))
        assert await answered(peer) == b"X"
        await here.server.stop()
        assert {HEADERS, GOAWAY} <= {each.kind for each in read_frames(await peer.ends())}


# -- grpcio, a client that knows nothing of ours


def asked_by_grpcio(port: int) -> list[object]:
    seen: list[object] = []
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        unary = channel.unary_unary(f"{SERVICE}Echo")
        seen += [unary(b""), unary(b"x" * 3_000_000) == b"x" * 3_000_000]
        for name, message in (("Echo", bytes(6_000_000)), ("Nothing", b"")):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(f"{SERVICE}{name}")(message)
            seen.append(refused.value.code())  # type: ignore[attr-defined]
        stream = channel.stream_stream(f"{SERVICE}Upper")
        seen.append([len(message) for message in stream(iter([b"a", b"b" * 2_000_000, b""]))])
        seen.append(sum(len(unary(b"y" * 100)) for _ in range(300)))
    return seen


async def test_grpcio_is_served() -> None:
    async with one_port() as here:
        seen = await asyncio.to_thread(asked_by_grpcio, here.port)
    status = grpc.StatusCode
    assert seen == [b"", True, status.RESOURCE_EXHAUSTED, status.UNIMPLEMENTED, [1, 2_000_000, 0], 30_000]
