"""RemotingServer: its port, its connections, and their end."""

from __future__ import annotations

import asyncio
import math
import socket
import subprocess
import sys

import pytest

from reput.errors import RemotingError
from reput.remoting.command import RemotingCommand, encode_command
from reput.transport import server as module
from reput.transport.connection import Connection
from reput.transport.server import RemotingServer
from tests.support.sockets import Serving, serving

ECHO = 10


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=request.body)


async def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    async with serving({}) as here:
        with pytest.raises(RemotingError, match=f"cannot listen on 127.0.0.1:{here.port}: .*0 for any that is free"):
            await RemotingServer(Serving({})).start("127.0.0.1", here.port)


async def test_an_address_of_another_machine_is_no_port_that_is_taken() -> None:
    with pytest.raises(RemotingError, match=r"cannot listen on 192\.0\.2\.1:0: .*this machine has no such address"):
        await RemotingServer(Serving({})).start("192.0.2.1", 0)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("x" * 70, 0), ("a\0b", 0)])
async def test_a_port_or_a_host_that_is_none_is_told(host: str, port: int) -> None:
    with pytest.raises(RemotingError, match="cannot listen on"):
        await RemotingServer(Serving({})).start(host, port)


async def test_small_answers_leave_at_once() -> None:
    """Else the system holds each one back until the one before is acknowledged (Nagle): 40 ms."""
    async with serving({ECHO: echo}) as here:
        await here.peer()
        connection = await here.opened_connections.get()
        assert connection._transport is not None
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_connections_above_the_limit_are_closed_and_the_others_served() -> None:
    async with serving({ECHO: echo}, max_connections=2) as here:
        first, second = await here.peer(), await here.peer()
        for _ in range(2):
            await here.opened_connections.get()
        third = await here.peer()
        third.send(RemotingCommand(ECHO, 3))
        assert await third.ends() == b""
        await here.closed_connections.get()
        for peer in (first, second):
            peer.send(RemotingCommand(ECHO, 1))
            assert (await peer.receive()).opaque == 1
        first.close()
        await here.closed_connections.get()
        fourth = await here.peer()
        fourth.send(RemotingCommand(ECHO, 4))
        assert (await fourth.receive()).opaque == 4


async def test_idle_connections_are_closed_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_S", 0.001)

    async with serving({ECHO: echo}, max_idle_s=1000.0) as here:
        idle, busy, half = await here.peer(), await here.peer(), await here.peer()
        half.writer.write(encode_command(RemotingCommand(ECHO)) + encode_command(RemotingCommand(ECHO))[:20])
        await half.receive()
        connections = [await here.opened_connections.get() for _ in range(3)]
        by_port = {one.remote_host[1]: one for one in connections}
        for peer in (idle, half):
            connection = by_port[peer.writer.get_extra_info("sockname")[1]]
            connection.last_active -= 1001
            assert await peer.ends() == b""
            assert await here.closed_connections.get() is connection
        busy.send(RemotingCommand(ECHO, 1))
        assert (await busy.receive()).opaque == 1


async def test_a_frame_that_does_not_come_whole_in_time_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_S", 0.001)
    frame = encode_command(RemotingCommand(ECHO, 1, body=bytes(100)))

    async with serving({ECHO: echo}, max_idle_s=1000.0) as here:
        slow, steady = await here.peer(), await here.peer()
        by_port = {}
        for _ in range(2):
            connection = await here.opened_connections.get()
            by_port[connection.remote_host[1]] = connection
        one, other = (by_port[peer.writer.get_extra_info("sockname")[1]] for peer in (slow, steady))
        for peer in (slow, steady):
            peer.writer.write(frame + frame[:50])
            assert (await peer.receive()).opaque == 1
        one.frame_since -= 900  # it has begun long ago
        other.frame_since -= 900
        began = one.frame_since
        slow.writer.write(frame[50:60])  # a little of it, which is life, but does not end the frame
        steady.writer.write(frame[50:] + frame[:50])
        assert (await steady.receive()).opaque == 1
        while len(one.frames) < 60:
            await asyncio.sleep(0)
        assert one.frame_since == began
        assert other.frame_since > began + 899
        one.frame_since -= 101
        assert await slow.ends() == b""
        assert await here.closed_connections.get() is one
        steady.writer.write(frame[50:])
        assert (await steady.receive()).opaque == 1
        assert other.frame_since == math.inf


async def test_memory_of_all_connections_is_bounded_and_the_largest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_S", 0.001)
    monkeypatch.setattr(module, "_MOST_HELD_BYTES", 6 << 20)
    frame = encode_command(RemotingCommand(ECHO, 1, body=bytes(8 << 20)))

    async with serving({ECHO: echo}) as here:
        small, large = await here.peer(), await here.peer()
        small.writer.write(frame[: 1 << 20])
        await small.writer.drain()
        large.writer.write(frame[: 6 << 20])
        assert await large.ends() == b""
        await here.closed_connections.get()
        (left,) = here.server.connections
        assert left.remote_host == small.writer.get_extra_info("sockname")


async def test_a_peer_whose_machine_is_gone_is_not_written_to_for_ever() -> None:
    async with serving({}, max_idle_s=70.0) as here:
        await here.peer()
        connection = await here.opened_connections.get()
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert int(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)) == 70_000


async def test_reads_and_writes_both_count_as_life() -> None:
    async with serving({ECHO: lambda *_: None}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        connection.last_active = 0.0
        connection.send_one_way(RemotingCommand(40))
        assert connection.last_active > 0.0
        await peer.receive()
        call = asyncio.ensure_future(connection.call(RemotingCommand(307), 30))
        asked = await peer.receive()
        connection.last_active = 0.0
        peer.send(asked.response())
        await call
        assert connection.last_active > 0.0


async def test_a_stop_sends_what_was_written() -> None:
    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        connection.write(bytes(8 << 20))
        stopping = asyncio.ensure_future(here.server.stop(timeout_s=30))
        found = await peer.ends()
        await stopping
        assert here.server.connections == set()
    assert found == bytes(8 << 20)


async def test_a_stop_does_not_wait_for_a_peer_that_never_reads() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        connection.write(bytes(32 << 20))
        await here.server.stop(timeout_s=0.01)
        assert await here.closed_connections.get() is connection
        assert len(await peer.ends()) < 32 << 20


async def test_nobody_connects_after_a_stop() -> None:
    async with serving({}) as here:
        await here.server.stop()
        with pytest.raises(ConnectionRefusedError):
            await here.peer()


async def test_a_connection_that_comes_after_a_stop_is_closed_and_none_of_its_requests_taken() -> None:
    taken = []

    def take(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        taken.append(request)
        return echo(connection, request)

    async with serving({ECHO: take}) as here:
        await here.server.stop()
        client = Serving({})
        connection = await here.server.join(Connection(client))
        connection.write(encode_command(RemotingCommand(ECHO, 1)))
        assert await client.closed_connections.get() is connection
        assert await here.closed_connections.get() is await here.opened_connections.get()
        assert here.server.connections == set()
    assert taken == []


async def test_a_server_that_never_started_is_stopped() -> None:
    await RemotingServer(Serving({})).stop()


#: Listens, forks, and prints the wait status of a child that ends as a program does.
_FORKS = """
import os, sys
from reput.transport.loop import run
from reput.transport.server import RemotingServer
async def listen(host):
    await RemotingServer(None).start(host, 0)
    child = os.fork()
    if not child:
        sys.exit(0)
    return os.waitpid(child, 0)[1]
status = run(listen(sys.argv[1]))
print(status)
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_child_that_is_forked_beside_a_server_ends_as_any_other(host: str) -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS, host], capture_output=True, text=True, check=False)
    assert done.stdout == "0\n", done.stderr
