"""BlockingClient: requests to other servers without an event loop, for a thread that only asks and waits."""

from __future__ import annotations

import select
import socket
import ssl
import time
from itertools import count

from reput.errors import ConfigError, RemotingDecodeError, RemotingError, RemotingTimeoutError
from reput.formats.java import INT32_MAX
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from reput.remoting.frame_buffer import FrameBuffer
from reput.transport.client import connect_error, host_and_port
from reput.transport.tls import NEVER_ANSWERED, ClientTls, to_do, why

_CONNECT_S = 3.0
#: What a poll tells if the peer has closed; Linux tells it before all is read.
_CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)


class BlockingClient:
    """Calls servers by "host:port", a connection for each; for one thread.

    Its coroutines wait inside of themselves and never give up the thread, so `reput.client.instance.mq_client_api` can
    be run over it without a loop.

    Args:
        tls: How to talk TLS, and with which files; None for the plain protocol.
    """

    def __init__(self, tls: ClientTls | None = None) -> None:
        self._tls = tls
        self._connections: dict[str, BlockingConnection] = {}

    def open(self, address: str) -> BlockingConnection:
        """The connection to an address, another one if the server has closed it.

        Raises RemotingError if there can be none.
        """
        if address in self._connections and not self._connections[address].is_open:
            self.drop(address)
        if address not in self._connections:
            self._connections[address] = BlockingConnection(address, self._tls)
        return self._connections[address]

    def drop(self, address: str) -> None:
        """Close the connection to an address, if there is one; the next call makes another."""
        if address in self._connections:
            self._connections.pop(address).close()

    async def call(self, address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        """Send a request, and return its answer; errors as of `BlockingConnection`, after which it is another one."""
        try:
            connection = self.open(address)
            [opaque] = connection.send(command, timeout_s=timeout_s)
            return connection.answer(opaque, timeout_s)
        except RemotingError:
            self.drop(address)
            raise

    async def send_one_way(self, address: str, command: RemotingCommand) -> None:
        """Send a request that nobody answers; errors as of `call`."""
        command.flag = ONE_WAY_FLAG
        try:
            self.open(address).send(command)
        except RemotingError:
            self.drop(address)
            raise

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._connections):
            self.drop(address)


class BlockingConnection:
    """One TCP connection of the remoting protocol. Requests may be sent ahead of the answers.

    Args:
        address: "host:port" of the server.
        tls: How to talk TLS; None for the plain protocol.

    Raises:
        RemotingError: The server cannot be reached.
    """

    def __init__(self, address: str, tls: ClientTls | None = None) -> None:
        self.address = address
        self._frames = FrameBuffer()
        self._opaques = count(1)
        self._early: dict[int, RemotingCommand] = {}
        self._is_answered = False
        host, port = host_and_port(address)
        try:
            context = None if tls is None else tls.context()
            self._socket = socket.create_connection((host, port), _CONNECT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except (ConfigError, OSError, OverflowError, ValueError) as error:  # ssl.SSLError is an OSError
            raise connect_error(address, error, _CONNECT_S) from None

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed it, as far as this machine knows."""
        poll = select.poll()
        poll.register(self._socket, _CLOSED)
        return not poll.poll(0)

    def close(self) -> None:
        """Close it. Closing again does nothing."""
        self._socket.close()

    def send(self, *commands: RemotingCommand, timeout_s: float = _CONNECT_S) -> list[int]:
        """Send requests in one write; returns the numbers that `answer` wants.

        Raises RemotingError if the connection ended, or did not take them in time.
        """
        for command in commands:
            command.opaque = next(self._opaques) & INT32_MAX
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(b"".join(map(encode_command, commands)))
        except OSError as error:
            raise RemotingError(f"{self.address}: {error.strerror or error}") from None
        return [command.opaque for command in commands]

    def answer(self, opaque: int, timeout_s: float) -> RemotingCommand:
        """The answer to a request; others that come before it are kept for their own call.

        Raises RemotingTimeoutError if it does not come in time, RemotingError if the connection ends.
        """
        until = time.monotonic() + timeout_s
        while opaque not in self._early:
            self._receive(until)
        return self._early.pop(opaque)

    def answers(self, timeout_s: float) -> list[RemotingCommand]:
        """All answers that have come, to whichever requests; waits for the first. Errors as of `answer`."""
        until = time.monotonic() + timeout_s
        while not self._early:
            self._receive(until)
        answers = list(self._early.values())
        self._early.clear()
        return answers

    def _receive(self, until: float) -> None:
        """Keep the answers that the next read brings."""
        try:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            size = self._socket.recv_into(self._frames.room())
        except (TimeoutError, ssl.SSLWantReadError):
            raise RemotingTimeoutError(f"{self.address}: no answer in time") from None
        except (ConnectionResetError, ssl.SSLEOFError):
            size = 0
        except ssl.SSLError as error:
            raise RemotingError(f"{self.address}: no TLS: {why(error)}{to_do(error)}") from None
        except OSError as error:
            raise RemotingError(f"{self.address}: {error.strerror or error}") from None
        if not size:
            hint = "" if self._is_answered or isinstance(self._socket, ssl.SSLSocket) else NEVER_ANSWERED
            raise RemotingError(f"{self.address}: the connection ended before the answer came{hint}")
        self._frames.received(size)
        try:
            for frame in self._frames.frames():
                command = decode_command(frame)
                if command.is_response:  # what a broker asks of members of a group is not for this client
                    self._early[command.opaque] = command
                    self._is_answered = True
        except RemotingDecodeError as error:
            raise RemotingDecodeError(f"{self.address}: {error}") from None
