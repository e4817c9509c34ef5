"""CallServer: the HTTP/2 connections of a server's port."""

from __future__ import annotations

from typing import Protocol

from reput.transport.grpc_call import CallOwner
from reput.transport.http2 import Http2Connection


class Port(Protocol):
    """The port: a `RemotingServer`."""

    read_buffer: memoryview

    def is_full(self, connection: Http2Connection) -> bool:
        """Whether a connection has no place; it is then closed."""

    def one_has_closed(self) -> None:
        """A connection is gone."""


class CallServer:
    """Owner of HTTP/2 connections.

    Args:
        port: Where they come from.
        calls: The owner of their calls.
        max_idle_s: As of `RemotingServer`.

    Attributes:
        connections: Those that are open.
        read_buffer: The port's.
    """

    def __init__(self, port: Port, calls: CallOwner, max_idle_s: float) -> None:
        self.connections: set[Http2Connection] = set()
        self.calls = calls
        self.read_buffer = port.read_buffer
        self._port = port
        self._max_idle_s = max_idle_s

    def opened(self, connection: Http2Connection) -> None:
        """Called by a connection."""
        self._port.is_full(connection)
        self.connections.add(connection)
        connection.end_unacknowledged(self._max_idle_s)
        self.calls.opened(connection)

    def closed(self, connection: Http2Connection) -> None:
        """Called by a connection."""
        self.connections.discard(connection)
        self.calls.closed(connection)
        self._port.one_has_closed()

    def check(self, now: float) -> None:
        """Look after deadlines, and peers that are gone; called each second."""
        for connection in list(self.connections):
            connection.check(now, self._max_idle_s)
