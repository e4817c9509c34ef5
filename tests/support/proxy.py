"""A TCP proxy in the loop of a test: a network that is slow, silent, or cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes on between clients and one server.

    Attributes:
        connections: How many were made so far.
        piece: Bytes that are passed on at a time.
        delay_s: How much later each piece comes.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._passing = asyncio.Event()
        self._passing.set()
        self._streams: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.connections = 0
        self.piece, self.delay_s = 65_536, 0.0
        self.address = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def hold(self) -> None:
        """Pass nothing on: what is sent waits."""
        self._passing.clear()

    def go_on(self) -> None:
        """Pass on again, and what has waited first."""
        self._passing.set()

    def cut(self) -> None:
        """End all connections at once."""
        for stream in self._streams:
            stream.transport.abort()

    async def refuse(self) -> None:
        """Take no more connections, and end those that there are."""
        assert self._server is not None
        self._server.close()
        self.cut()

    async def stop(self) -> None:
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._streams |= {writer, there_writer}
        for source, target in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.get_running_loop().create_task(self._pass(source, target))
            self._tasks.add(task)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(self.piece):
                await self._passing.wait()
                await asyncio.sleep(self.delay_s)
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[Proxy]:
    """A proxy to "host:port" on a free port."""
    proxy = Proxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
