"""FirstByte and TlsTransport: TLS beside the plain protocol on one port, by a connection's first byte."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any, Protocol, cast

from reput.config.tls import TlsMode
from reput.events import Event
from reput.formats.remoting import LENGTH_SIZE
from reput.remoting.other_protocol import TLS_HANDSHAKE, grpc_over_tls, other_protocol
from reput.transport.connection import Connection
from reput.transport.server_tls import ServerTls
from reput.transport.tls import why

logger = logging.getLogger("reput.transport")

_READ_SIZE = 64 << 10


class Beginnings(Protocol):
    """Counter of connections of which nothing or too little has come yet."""

    def began(self, beginning: FirstByte) -> None:
        """A socket was accepted."""

    def handshakes(self, beginning: FirstByte) -> bool:
        """A handshake has begun; whether it may go on."""

    def decided(self, beginning: FirstByte) -> None:
        """It has become a connection, or has ended."""


class FirstByte(asyncio.BufferedProtocol):
    """A socket until its first byte says which protocol it speaks, and the lower side of TLS from there on.

    Args:
        owner: Counts it, and may end it.
        tls: The server's certificate.
        connection: What becomes of the socket.

    Attributes:
        remote: "host:port" of the peer.
        since: Loop time of its beginning, and of its first byte once that has come.
        is_shaking: The handshake has begun, and is not done.
    """

    def __init__(self, owner: Beginnings, tls: ServerTls, connection: Connection) -> None:
        self.remote = ""
        self.since = 0.0
        self.is_shaking = False
        self._owner = owner
        self._tls = tls
        self._connection = connection
        self._raw: asyncio.Transport | None = None
        self._upper: TlsTransport | None = None
        self._buffer = memoryview(bytearray(_READ_SIZE))

    # -- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._raw = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername") or ("", 0)
        self.remote = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self.since = asyncio.get_running_loop().time()
        self._owner.began(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop."""
        received = self._buffer[:nbytes]
        if self._upper is not None and not self.is_shaking:
            self._upper.received(received)
        elif self._raw is not None and not self._raw.is_closing():
            self._shake(self._raw, received)

    def pause_writing(self) -> None:
        """Called by the loop."""
        if self._upper is not None and not self.is_shaking:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Called by the loop."""
        if self._upper is not None and not self.is_shaking:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop, once."""
        self._raw = None
        if self._upper is None or self.is_shaking:
            self._owner.decided(self)
        else:
            self._connection.connection_lost(exc)

    # -- the beginning

    def _shake(self, raw: asyncio.Transport, received: memoryview) -> None:
        if self._upper is None:
            if received[0] != TLS_HANDSHAKE:
                self._take_plain(raw, received)
                return
            self.since = asyncio.get_running_loop().time()
            if reason := grpc_over_tls(received):
                logger.warning(Event("a peer speaks another protocol", client=self.remote, reason=reason))
            if not self._owner.handshakes(self):
                self.abort("too many handshakes at once")
                return
            self.is_shaking = True
            self._upper = TlsTransport(raw, self._tls.context, self._connection)
        try:
            self.is_shaking = not self._upper.shaken(received)
        except (ssl.SSLError, ssl.CertificateError) as error:
            self.abort(why(error))
            return
        if not self.is_shaking:
            self._owner.decided(self)
            self._connection.connection_made(self._upper)
            self._upper.received(received[:0])  # what came with the end of the handshake

    def _take_plain(self, raw: asyncio.Transport, received: memoryview) -> None:
        if self._tls.mode is TlsMode.ENFORCING:
            reason = "it does not speak TLS, and tls.server.mode=enforcing"
            if len(received) >= LENGTH_SIZE and (other := other_protocol(received)):
                reason = f"{reason}; {other.reason}"
            self.abort(reason)
            return
        self._owner.decided(self)
        connection = self._connection
        raw.set_protocol(connection)
        connection.connection_made(raw)
        _give(connection, received)

    def abort(self, reason: str = "") -> None:
        """End it at once; without a reason, silently."""
        if reason:
            logger.warning(Event("connection closed: no TLS", client=self.remote, reason=reason))
        if self._raw is not None:
            self._raw.abort()


class TlsTransport(asyncio.Transport):
    """Transport of TLS above a socket: a connection writes to it and is fed by it.

    Args:
        raw: The socket's own.
        context: Of this connection.
        connection: Gets what was received.
    """

    def __init__(self, raw: asyncio.Transport, context: ssl.SSLContext, connection: Connection) -> None:
        self._raw = raw
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shaken(self, received: memoryview) -> bool:
        """Go on with the handshake; whether it is done. Raises SSLError if it cannot be."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()  # also what says why it failed
        return True

    def received(self, received: memoryview) -> None:
        """Give the connection what was encrypted in these bytes of the socket."""
        self._incoming.write(received)
        self._read()

    def _read(self) -> None:
        """Fill the connection's buffers as long as it reads."""
        connection = self._connection
        while self._raw.is_reading() and not self._raw.is_closing():
            buffer = connection.get_buffer(-1)
            size, error = self._fill(buffer)
            if size:
                connection.buffer_updated(size)
            if error is not None:
                if not isinstance(error, (ssl.SSLWantReadError, ssl.SSLZeroReturnError)):
                    logger.warning(Event("connection closed: no TLS", client=connection.remote, reason=why(error)))
                    connection.abort()
                elif isinstance(error, ssl.SSLZeroReturnError):  # the peer has closed it
                    self.close()
                return

    def _fill(self, buffer: memoryview) -> tuple[int, ssl.SSLError | None]:
        """Decrypt into a buffer; returns how many bytes, and why there are no more."""
        size = 0
        try:
            while size < len(buffer):
                count = cast("int", self._tls.read(len(buffer) - size, buffer[size:]))  # typed as if it had no buffer
                if not count:
                    return size, ssl.SSLZeroReturnError()
                size += count
        except ssl.SSLError as error:
            return size, error
        finally:
            self._flush()  # an answer of TLS's own
        return size, None

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    # -- asyncio's transport

    def write(self, data: Any) -> None:
        """Encrypt and send."""
        view = memoryview(data)
        sent = 0
        try:
            while sent < len(view):
                sent += self._tls.write(view[sent:])
        except ssl.SSLError:  # it is over already
            self._raw.abort()
        self._flush()

    def close(self) -> None:
        """Say that it ends, and close the socket once all that was written is sent."""
        with contextlib.suppress(ssl.SSLError):  # the peer's own end may come or not
            self._tls.unwrap()
        self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close the socket at once."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        """Read no more of the socket; what was decrypted is with the connection."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read again; what waits here is first."""
        self._raw.resume_reading()
        asyncio.get_running_loop().call_soon(self._read)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The TLS session as `ssl_object`; all else is the socket's."""
        return self._tls if name == "ssl_object" else self._raw.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the socket's buffer."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that are not sent."""
        return self._raw.get_write_buffer_size()


def _give(connection: Connection, received: memoryview) -> None:
    """Hand over bytes as a loop would that has read them."""
    while len(received) and connection.is_open:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(received))
        buffer[:size] = received[:size]
        received = received[size:]
        connection.buffer_updated(size)
