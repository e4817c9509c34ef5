"""A server of the remoting protocol on a free port, and peers that are nothing but sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

from reput.remoting.command import RemotingCommand, decode_command, encode_command, frame_size
from reput.transport.connection import Connection
from reput.transport.requests import Handler, Requests
from reput.transport.server import RemotingServer

#: Below the ports that the system gives to connections: one of these may be gone once a process has started.
_PORTS = range(20_000, 32_000)
#: Not the generator that hypothesis seeds: two processes of tests would draw the same ports.
_RANDOM = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Different ports that nobody has now, for processes that have to be told theirs."""
    with ExitStack() as taken:
        ports: list[int] = []
        while len(ports) < count:
            port = _RANDOM.choice(_PORTS)
            with suppress(OSError):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
        return ports


class Serving:
    """Owner of a server's connections: what a broker would be."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self.requests = Requests(handlers)
        self.opened_connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.closed_connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.server: RemotingServer
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def opened(self, connection: Connection) -> None:
        self.opened_connections.put_nowait(connection)

    def readable(self, connection: Connection) -> None:
        self.requests.take_all(connection)

    def closed(self, connection: Connection) -> None:
        self.closed_connections.put_nowait(connection)

    async def peer(self, *, limit: int = 1 << 16) -> Peer:
        """A socket that is connected; `limit`: about how many bytes it takes before somebody reads them."""
        return Peer(*await asyncio.open_connection("127.0.0.1", self.port, limit=limit))


@asynccontextmanager
async def serving(handlers: Mapping[int, Handler], *, port: int = 0, **options: Any) -> AsyncIterator[Serving]:
    """A server that listens, with these handlers by request code."""
    owner = Serving(handlers)
    owner.server = RemotingServer(owner, **options)
    owner.port = await owner.server.start("127.0.0.1", port)
    try:
        yield owner
    finally:
        await owner.server.stop()


class Peer:
    """The other end of a connection, without any code of reput's transport."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *commands: RemotingCommand) -> None:
        """Send commands in one write."""
        self.writer.write(b"".join(map(encode_command, commands)))

    async def receive(self) -> RemotingCommand:
        """The next command."""
        head = await self.reader.readexactly(8)
        return decode_command(head + await self.reader.readexactly(frame_size(head) - len(head)))

    async def ends(self) -> bytes:
        """Bytes before the end of the connection, which the other side has to close."""
        try:
            return await self.reader.read(-1)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.close()
