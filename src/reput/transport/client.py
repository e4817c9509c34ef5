"""RemotingClient: requests to other servers, a connection for each address."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from copy import copy

from reput.errors import ConfigError, RemotingError, RemotingTimeoutError
from reput.formats.hosts import is_address
from reput.remoting.command import RemotingCommand
from reput.transport.connection import Connection
from reput.transport.requests import Requests
from reput.transport.tls import ClientTls, why
from reput.transport.tls import to_do as tls_to_do

_CONNECT_S = 3.0


class RemotingClient:
    """Calls servers by "host:port"; connections are made when needed, and made again when they have ended.

    Args:
        requests: Handlers of what the servers ask in return.
        tls: How to talk TLS, and with which files; None for the plain protocol.
        own_servers: By address, how a server of this process is reached without the network (`RemotingServer.join`).

    Attributes:
        connections: By address, the last one, open or not.
        on_connect: Called with the address of each server to which a connection is made: it knows nothing of it yet.
    """

    def __init__(
        self,
        requests: Requests | None = None,
        *,
        tls: ClientTls | None = None,
        own_servers: Mapping[str, Callable[[Connection], Awaitable[Connection]]] | None = None,
    ) -> None:
        self._tls = tls
        self._own_servers = own_servers or {}
        self._requests = requests or Requests({})
        self.connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Lock] = {}
        self._failures: dict[str, RemotingError] = {}  # by address: of the last try to connect
        self.on_connect: Callable[[str], None] = lambda address: None

    async def call(self, address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        """Send a request, and return its answer.

        Raises RemotingError if the server cannot be reached, or does not answer in time.
        """
        connection = self.connections.get(address)
        if connection is None or not connection.is_open:
            loop = asyncio.get_running_loop()
            until = loop.time() + timeout_s
            try:
                async with asyncio.timeout_at(until):
                    connection = await self.connection(address)
            except TimeoutError:
                raise RemotingTimeoutError(f"{address}: no connection in {timeout_s:g} s") from None
            timeout_s = until - loop.time()
        return await connection.call(command, timeout_s)

    async def send_one_way(self, address: str, command: RemotingCommand) -> None:
        """Send a request that nobody answers, once the server reads; errors as of `call`."""
        connection = await self.connection(address)
        await connection.writable()
        connection.send_one_way(command)

    async def connection(self, address: str) -> Connection:
        """The connection to an address; errors as of `call`.

        Who waits while another one tries to connect gets the error of that try, and does not try after it: of a hundred
        who ask for a server that is silent, the last one would wait for a hundred tries.
        """
        connection = self.connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        before = self._failures.get(address)
        async with self._connecting.setdefault(address, asyncio.Lock()):
            connection = self.connections.get(address)
            if connection is None or not connection.is_open:
                failure = self._failures.get(address)
                if failure is not None and failure is not before:
                    raise copy(failure)
                try:
                    connection = self.connections[address] = await self._connect(address)
                except RemotingError as error:
                    self._failures[address] = copy(error)  # without its frames
                    raise
                self._failures.pop(address, None)
                self.on_connect(address)
            return connection

    async def _connect(self, address: str) -> Connection:
        if address in self._own_servers:
            return await self._own_servers[address](Connection(self))
        host, port = host_and_port(address)
        loop = asyncio.get_running_loop()
        try:
            context = None if self._tls is None else await asyncio.to_thread(self._tls.context)
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(lambda: Connection(self), host, port, ssl=context)
        except (ConfigError, ssl.SSLError, OSError, OverflowError, ValueError) as error:
            raise connect_error(address, error, _CONNECT_S) from None
        connection.may_want_tls = self._tls is None
        return connection

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    # -- Owner of the connections

    def opened(self, connection: Connection) -> None:
        """Called by a connection."""

    def readable(self, connection: Connection) -> None:
        """Called by a connection."""
        self._requests.take_all(connection)

    def closed(self, connection: Connection) -> None:
        """Called by a connection."""


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of "host:port"; raises RemotingError if it is none."""
    if not is_address(address):
        raise RemotingError(f"address {address!r}: expected HOST:PORT, as in 127.0.0.1:10911")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


#: What was to be at an address where nobody listens, and what to do.
_TO_DO = "expected a broker or a name server there; start it, or correct the address"


def connect_error(address: str, error: Exception, timeout_s: float, to_do: str = _TO_DO) -> RemotingError:
    """The error of a connection that failed; `to_do`: what was to be at the address, and what to do.

    It is `retriable` if the server may be there later: not for a lack of TLS, or of a file of it.
    """
    if isinstance(error, TimeoutError):
        return RemotingTimeoutError(f"{address}: no connection in {timeout_s:g} s: {to_do}")
    if isinstance(error, ssl.SSLError):
        return RemotingError(f"{address}: no TLS: {why(error)}{tls_to_do(error)}")
    if isinstance(error, ConnectionError) and not error.errno:  # asyncio: the handshake of TLS was cut short
        return RemotingError(f"{address}: no TLS: the connection was closed; the server may talk no TLS")
    if isinstance(error, OSError):
        # asyncio says "Connect call failed ('127.0.0.1', 1)" instead of the system's words.
        reason = "Connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or error
        away = RemotingError(f"{address}: {reason}: {to_do}")
        away.retriable = not isinstance(error, FileNotFoundError | PermissionError)
        return away
    return RemotingError(f"{address}: {error}")  # no port, no file of TLS
