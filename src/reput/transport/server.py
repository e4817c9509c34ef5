"""RemotingServer: a port that listens, its connections, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

from reput.errors import RemotingError, ReputError
from reput.events import Event
from reput.formats.hosts import ALL_ADDRESSES, THIS_MACHINE
from reput.transport.call_server import CallServer
from reput.transport.connection import Connection, Owner
from reput.transport.first_byte import FirstByte
from reput.transport.grpc_call import CallOwner
from reput.transport.http2 import HTTP2_NAME, Http2Connection
from reput.transport.server_tls import ServerTls

logger = logging.getLogger("reput.transport")

_MAX_PORT = 65_535
_BACKLOG = 1024
_READ_SIZE = 64 << 10
_CHECK_S = 1.0
_RELOAD_S = 1.0
#: Handshakes at once, and the longest time of one.
_MOST_HANDSHAKES, _HANDSHAKE_S = 1000, 10.0
#: Memory for frames that come and answers that nobody reads, of all connections.
_MOST_HELD_BYTES = 2 << 30
#: What to do if a port cannot be taken, by the system's reason.
_TO_DO = {
    errno.EADDRINUSE: "another process may have the port: choose another one, or 0 for any that is free",
    errno.EADDRNOTAVAIL: "this machine has no such address: give one of its own, or 0.0.0.0 for all",
    errno.EACCES: "this user may not take the port: choose another one, from 1024 on",
}
#: An address to reach a server that listens on all of the machine's.
_REACHED = {ALL_ADDRESSES: THIS_MACHINE, "::": "::1"}


class RemotingServer:
    """Listens on one port; the owner gets each connection.

    Args:
        owner: Takes the frames of all connections.
        max_connections: More are closed at once.
        max_idle_s: A connection without a read or a write for so long is closed (`serverChannelMaxIdleTimeSeconds`). So
            is one with a frame that has not come whole, or whose machine has acknowledged nothing.
        tls: The server's certificate; without one it speaks no TLS.
        calls: Takes the calls of gRPC over HTTP/2 of the same port; without it the server speaks no HTTP/2.
        make_tls: Makes a certificate for clients of HTTP/2 alone, if one of them talks TLS to a server without `tls`;
            called in a thread.

    Attributes:
        connections: Those that are open, of the remoting protocol.
        http2_connections: Those of HTTP/2.
        read_buffer: Memory for reads of HTTP/2, and of what has not said yet what it is.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        max_connections: int = 10_000,
        max_idle_s: float = 120.0,
        tls: ServerTls | None = None,
        calls: CallOwner | None = None,
        make_tls: Callable[[], ServerTls] | None = None,
    ) -> None:
        self.connections: set[Connection] = set()
        self.read_buffer = memoryview(bytearray(_READ_SIZE))
        self.tls = tls
        self.made_tls: ServerTls | None = None
        self._make_tls = make_tls
        self._making: asyncio.Task[None] | None = None
        self._calls = None if calls is None else CallServer(self, calls, max_idle_s)
        if tls is not None and calls is not None:
            tls.name_protocol(HTTP2_NAME)
        self._owner = owner
        self._max_connections = max_connections
        self._max_idle_s = max_idle_s
        self._server: asyncio.Server | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._beginnings: set[FirstByte] = set()
        self._need_tls: list[FirstByte] = []
        self._reloading: asyncio.Task[None] | None = None
        self._all_closed = asyncio.Event()
        self._is_stopped = False

    async def start(self, host: str, port: int) -> int:
        """`bind` and `listen`; returns the port."""
        bound = await self.bind(host, port)
        await self.listen()
        return bound

    async def bind(self, host: str, port: int) -> int:
        """Take a port, on which nobody is served before `listen`; returns it, a free one if 0 was asked for.

        Raises RemotingError if the port is taken, or the address is not this machine's.
        """
        loop = asyncio.get_running_loop()
        if not 0 <= port <= _MAX_PORT:  # uvloop would take another one
            raise RemotingError(f"cannot listen on {host}:{port}: a port is a number from 0 to {_MAX_PORT}")
        try:
            bound = _bound_socket(host, port)
            where: dict[str, Any] = {"host": host, "port": port} if bound is None else {"sock": bound}
            self._server = await loop.create_server(self._protocol, **where, backlog=_BACKLOG, start_serving=False)
        except OSError as error:
            raise not_bound(host, port, error) from None
        except ValueError as error:  # no name
            raise RemotingError(f"cannot listen on {host}:{port}: {error}") from None
        return int(self._server.sockets[0].getsockname()[1])

    def _protocol(self) -> asyncio.BaseProtocol:
        return Connection(self) if self.tls is None and self._calls is None else FirstByte(self)

    async def listen(self) -> None:
        """Serve whoever connects; raises RemotingError if another process has begun to listen on the port."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        try:
            await self._server.start_serving()
        except OSError as error:
            raise not_bound(host, port, error) from None
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(_CHECK_S, self._check)
        if self.tls is not None:
            self._reloading = loop.create_task(_keep_reloading(self.tls))

    async def join(self, connection: Connection) -> Connection:
        """Connect a client of this loop, without the network; returns the client's side."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        await loop.connect_accepted_socket(lambda: Connection(self), theirs)
        await loop.create_unix_connection(lambda: connection, sock=ours)
        return connection

    async def stop(self, timeout_s: float = 1.0) -> None:
        """Close the port and all connections; what was written to them is sent, if they read it in time."""
        self._is_stopped = True
        if self._watch is not None:
            self._watch.cancel()
        for task in (self._reloading, self._making):
            if task is not None:
                task.cancel()
        if self._server is not None:
            self._server.close()
        for beginning in list(self._beginnings):
            beginning.abort()
        for connection in self._all():
            connection.close()
        if self._all():
            self._all_closed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), timeout_s)
        for connection in self._all():
            connection.abort()

    @property
    def http2_connections(self) -> set[Http2Connection]:
        """Connections of HTTP/2 that are open."""
        return set() if self._calls is None else self._calls.connections

    def _all(self) -> list[Connection | Http2Connection]:
        return [*self.connections, *self.http2_connections]

    def _check(self) -> None:
        """Close connections that are idle, or that hold more memory than there is for all."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._max_idle_s
        for beginning in list(self._beginnings):
            if beginning.is_shaking and beginning.since < loop.time() - _HANDSHAKE_S:
                beginning.abort("the handshake is not done in time")
            elif beginning.since < oldest:
                beginning.abort()
        for connection in list(self.connections):
            if connection.last_active < oldest:
                logger.debug(Event("connection closed: idle", client=connection.remote, seconds=self._max_idle_s))
                connection.abort()
            elif connection.frame_since < oldest and not connection.is_paused:  # else whole ones wait
                logger.warning(Event("connection closed: a frame did not come whole", client=connection.remote))
                connection.abort()
        if self._calls is not None:
            self._calls.check(loop.time())
        held = sum(connection.held_bytes for connection in self._all() if connection.is_open)
        if held > _MOST_HELD_BYTES:
            self._close_largest(held)
        self._watch = loop.call_later(_CHECK_S, self._check)

    def _close_largest(self, held: int) -> None:
        """Close the connections that hold most memory, until the others hold no more than there is for all."""
        for connection in sorted(self._all(), key=lambda one: one.held_bytes, reverse=True):
            if held <= _MOST_HELD_BYTES:
                return
            size = connection.held_bytes
            logger.warning(Event("connection closed: it holds most memory", client=connection.remote, bytes=size))
            connection.abort()
            held -= size

    # -- Beginnings, where there is TLS

    def began(self, beginning: FirstByte) -> None:
        """Called by a socket whose first byte has not come yet."""
        self._beginnings.add(beginning)
        if self._count() + len(self._beginnings) > self._max_connections:
            beginning.abort("too many connections")

    def handshakes(self, beginning: FirstByte) -> bool:
        """Called at the first byte of TLS."""
        return sum(one.is_shaking for one in self._beginnings) < _MOST_HANDSHAKES

    def decided(self, beginning: FirstByte) -> None:
        """Called when it is a connection, or has ended."""
        self._beginnings.discard(beginning)

    @property
    def makes_tls(self) -> bool:
        """Whether a certificate is made for clients of HTTP/2."""
        return self._make_tls is not None and self._calls is not None

    def make_tls(self, beginning: FirstByte) -> None:
        """Called by a socket that needs the certificate."""
        self._need_tls.append(beginning)
        if self._making is None and self._make_tls is not None:
            self._making = asyncio.get_running_loop().create_task(self._make(self._make_tls))

    async def _make(self, make: Callable[[], ServerTls]) -> None:
        try:
            self.made_tls = await asyncio.to_thread(make)
            self.made_tls.name_protocol(HTTP2_NAME)
        except (ReputError, OSError) as error:
            logger.error(Event("no certificate can be made for clients of gRPC", error=error))
        finally:
            waiting, self._need_tls, self._making = self._need_tls, [], None
            for beginning in waiting:
                if self.made_tls is None:
                    beginning.abort("the server has no certificate")
                else:
                    beginning.go_on()

    def remoting(self) -> Connection:
        """Called by a socket of the remoting protocol."""
        return Connection(self)

    def http2(self) -> Http2Connection | None:
        """Called by a socket of HTTP/2."""
        return None if self._calls is None else Http2Connection(self._calls)

    # -- Owner of the connections

    def is_full(self, connection: Connection | Http2Connection) -> bool:
        """Whether a connection that was made has no place; it is then closed."""
        if self._is_stopped:  # it was accepted before the port was closed
            connection.abort()
            return True
        count = self._count()
        if count < self._max_connections:
            return False
        logger.warning(Event("connection closed: too many", client=connection.remote, connections=count))
        connection.abort()
        return True

    def _count(self) -> int:
        return len(self.connections) + len(self.http2_connections)

    def opened(self, connection: Connection) -> None:
        """Called by a connection."""
        self.is_full(connection)
        self.connections.add(connection)
        connection.end_unacknowledged(self._max_idle_s)
        self._owner.opened(connection)

    def readable(self, connection: Connection) -> None:
        """Called by a connection."""
        self._owner.readable(connection)

    def closed(self, connection: Connection) -> None:
        """Called by a connection."""
        self.connections.discard(connection)
        self._owner.closed(connection)
        self.one_has_closed()

    def one_has_closed(self) -> None:
        """Let `stop` go on, if no connection is left."""
        if not self._count():
            self._all_closed.set()


async def _keep_reloading(tls: ServerTls) -> None:
    while True:
        await asyncio.sleep(_RELOAD_S)
        await asyncio.to_thread(tls.reload)


def _bound_socket(host: str, port: int) -> socket.socket | None:
    """Socket that has taken a port of a numeric address; None for a name, which the loop looks up.

    uvloop looks up a number, too, in threads. A child that this process forks has none of them, waits for them at its
    end, and dies of SIGSEGV. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except OSError:
        return None
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # by its number asyncio sets TCP_NODELAY
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def not_bound(host: str, port: int, error: OSError) -> RemotingError:
    """The error of a port that cannot be taken, with what to do."""
    to_do = _TO_DO.get(error.errno or 0, "check address and port")
    return RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}; {to_do}")


def reached_at(host: str, port: int) -> str:
    """The address at which a client on this machine reaches a server that listens on `host`."""
    host = _REACHED.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
