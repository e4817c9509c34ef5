"""A TCP proxy in the loop of a test: a network that is slow, silent, or cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

#: Is told whether bytes go to the server, and what they are; gives what is passed on, and whether the connection ends
#: after it.
Change = Callable[[bool, bytes], tuple[bytes, bool]]


def no_change(to_server: bool, data: bytes) -> tuple[bytes, bool]:
    """A healthy network."""
    return data, False


class AtByte:
    """A change that is made once, to the piece that has one byte of a direction, by its number.

    `act` gets the piece and the byte's position in it. Nobody counts bytes before it was set.
    """

    def __init__(self, to_server: bool, number: int, act: Callable[[bytes, int], tuple[bytes, bool]]) -> None:
        self._to_server, self._left, self._act = to_server, number, act

    def __call__(self, to_server: bool, data: bytes) -> tuple[bytes, bool]:
        if to_server is not self._to_server or self._left < 0:
            return data, False
        position, self._left = self._left, self._left - len(data)
        return self._act(data, position) if self._left < 0 else (data, False)


class Proxy:
    """Passes bytes on between clients and one server.

    Attributes:
        target: The server's "host:port"; another one is for the connections that come.
        connections: How many were made so far.
        piece: Bytes that are passed on at a time.
        delay_s: How much later each piece comes.
        change: Changes what passes.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.change: Change = no_change
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
        host, _, port = self.target.rpartition(":")
        try:
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:  # nobody is there
            writer.close()
            return
        self._streams |= {writer, there_writer}
        for source, target in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.get_running_loop().create_task(self._pass(source, target, target is there_writer))
            self._tasks.add(task)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, to_server: bool) -> None:
        try:
            while data := await source.read(self.piece):
                await self._passing.wait()
                await asyncio.sleep(self.delay_s)
                data, is_last = self.change(to_server, data)
                target.write(data)
                await target.drain()
                if is_last:
                    break
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
