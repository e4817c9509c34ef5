"""An event loop whose waits take no time, and whose connections lead to servers in it: minutes in a moment."""

from __future__ import annotations

import asyncio
import errno
import random
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

#: Bytes of a connection take so many seconds, at least and at most.
LATENCY_S = 0.0005, 0.02


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock goes on by waits alone. No thread and no socket may have a part in what runs in it.

    Attributes:
        net: Where `create_connection` leads to.
    """

    def __init__(self, chance: random.Random) -> None:
        self._now_s = 1000.0
        self.net = VirtualNet(self, chance)
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        self._now_s += seconds

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.net.connect(protocol_factory, f"{host}:{port}")


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "every task waits for ever"
        self._loop.wait(max(timeout, 0.0))
        return []


class VirtualNet:
    """Servers by "host:port", and the connections to them.

    Attributes:
        silent: Addresses that answer no connect, as a machine that is gone; others without a server refuse it.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._servers: dict[str, Callable[[], asyncio.BufferedProtocol]] = {}
        self._sides: dict[str, list[_Side]] = {}
        self._clients = 0
        self._client_of: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.silent: set[str] = set()

    def listen(self, address: str, protocol_factory: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._servers[address] = protocol_factory

    def shut(self, address: str) -> None:
        """Take no more connections at an address, and end those that there are."""
        self._servers.pop(address, None)
        self.cut(address)

    def cut(self, address: str) -> None:
        """End all connections to an address at once, with what is on its way."""
        for side in self._sides.pop(address, []):
            side.abort()

    async def connect(self, protocol_factory: Callable[[], Any], address: str) -> tuple[asyncio.Transport, Any]:
        await asyncio.sleep(self.latency_s())
        while address in self.silent:
            await asyncio.sleep(1.0)
        if address not in self._servers:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        host, _, port = address.rpartition(":")
        self._clients += 1
        ours = _Side(self, protocol_factory(), (host, int(port)))
        theirs = _Side(self, self._servers[address](), ("10.9.9.9", 1024 + self._clients))
        ours.other, theirs.other = theirs, ours
        self._sides.setdefault(address, []).append(theirs)
        self._client_of[theirs.protocol] = ours.protocol._owner
        theirs.protocol.connection_made(theirs)
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    def client_of(self, connection: Any) -> Any:
        """Client at the other end of a server's connection."""
        return self._client_of[connection]

    def latency_s(self) -> float:
        return self._chance.uniform(*LATENCY_S)


class _Side(asyncio.Transport):
    """One side of a connection: what it writes comes to the other one, in order, after a while."""

    other: _Side

    def __init__(self, net: VirtualNet, protocol: asyncio.BufferedProtocol, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.protocol = protocol
        self._net = net
        self._loop = asyncio.get_running_loop()
        self._coming: deque[bytes | None] = deque()  # None: the other side has closed
        self._last_at = 0.0
        self._due = 0
        self._is_closing = self._is_lost = self._is_paused = False

    def write(self, data: Any) -> None:
        if not self._is_closing and data:
            self.other.come(bytes(data))

    def come(self, data: bytes | None) -> None:
        self._coming.append(data)
        self._last_at = max(self._last_at, self._loop.time() + self._net.latency_s())
        self._loop.call_at(self._last_at, self._next)

    def _next(self) -> None:
        self._due += 1
        self._take()

    def _take(self) -> None:
        while self._due and self._coming and not self._is_paused and not self._is_lost:
            self._due -= 1
            data = self._coming.popleft()
            if data is None:
                self.close()
                return
            while data and not self._is_lost:
                room = cast("memoryview", self.protocol.get_buffer(len(data)))
                part = data[: len(room)]
                room[: len(part)] = part
                del room  # a buffer that is lent cannot grow
                data = data[len(part) :]
                self.protocol.buffer_updated(len(part))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.other.come(None)
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        for side in (self, self.other):
            side._is_closing = True
            side._coming.clear()
            self._loop.call_soon(side._lose)

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._take)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass
