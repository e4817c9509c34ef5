"""FirstByte: the remoting protocol, HTTP/2 and TLS on one port, told apart by a connection's first bytes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Protocol, cast

from reput.config.tls import TlsMode
from reput.events import Event
from reput.formats.remoting import LENGTH_SIZE
from reput.remoting.other_protocol import HTTP2, TLS_HANDSHAKE, grpc_over_tls, offers_http2, other_protocol
from reput.transport.connection import Connection
from reput.transport.http2 import HTTP2_NAME, Http2Connection
from reput.transport.peer import peer_of
from reput.transport.server_tls import ServerTls
from reput.transport.tls import why
from reput.transport.tls_transport import TlsTransport

logger = logging.getLogger("reput.transport")


class Beginnings(Protocol):
    """Counter of connections of which nothing or too little has come yet, and maker of what becomes of them.

    Attributes:
        read_buffer: Memory for the reads of all of them: nothing stays in it.
        tls: The server's certificate.
        made_tls: The certificate for HTTP/2 alone of a server without another one; None before somebody needs it.
    """

    read_buffer: memoryview
    tls: ServerTls | None
    made_tls: ServerTls | None

    def began(self, beginning: FirstByte) -> None:
        """A socket was accepted."""

    def handshakes(self, beginning: FirstByte) -> bool:
        """A handshake has begun; whether it may go on."""

    def decided(self, beginning: FirstByte) -> None:
        """It has become a connection, or has ended."""

    @property
    def makes_tls(self) -> bool:
        """Whether a server without a certificate makes one for HTTP/2."""

    def make_tls(self, beginning: FirstByte) -> None:
        """Make it beside the loop; `go_on` of the socket follows, or `abort`."""

    def remoting(self) -> Connection:
        """A connection of the remoting protocol."""

    def http2(self) -> Http2Connection | None:
        """A connection of HTTP/2; None if the server speaks none."""


class FirstByte(asyncio.BufferedProtocol):
    """A socket until its first bytes say which protocol it speaks, and the lower side of TLS from there on.

    Args:
        owner: Counts it, may end it, and makes the connection that it becomes.

    Attributes:
        remote: "host:port" of the peer.
        since: Loop time of its beginning, and of its first byte once that of TLS has come.
        is_shaking: The handshake has begun, and is not done.
    """

    def __init__(self, owner: Beginnings) -> None:
        self.remote = ""
        self.since = 0.0
        self.is_shaking = False
        self._owner = owner
        self._connection: Connection | Http2Connection | None = None
        self._raw: asyncio.Transport | None = None
        self._upper: TlsTransport | None = None
        #: What has come, as long as it says too little.
        self._begin = b""

    # -- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._raw = cast("asyncio.Transport", transport)
        _, self.remote = peer_of(self._raw)
        self.since = asyncio.get_running_loop().time()
        self._owner.began(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        return self._owner.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop."""
        received = self._owner.read_buffer[:nbytes]
        if self._upper is not None and not self.is_shaking:
            self._upper.received(received)
        elif self._raw is not None and not self._raw.is_closing():
            self._take(self._raw, received)

    def pause_writing(self) -> None:
        """Called by the loop."""
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Called by the loop."""
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop, once."""
        self._raw = None
        if self._connection is None:
            self._owner.decided(self)
        else:
            self._connection.connection_lost(exc)

    # -- the beginning

    def _take(self, raw: asyncio.Transport, received: bytes | memoryview) -> None:
        if self._upper is not None:
            self._shake(self._upper, received)
            return
        begin = self._begin + bytes(received)
        if begin[0] == TLS_HANDSHAKE and (self._owner.tls or self._owner.makes_tls):
            self._take_hello(raw, begin)
        elif HTTP2.startswith(begin[: len(HTTP2)]):
            if len(begin) < len(HTTP2):
                self._begin = begin
            else:
                self._take_plain(raw, begin, self._owner.http2())
        else:
            self._take_plain(raw, begin, None)

    def _take_hello(self, raw: asyncio.Transport, begin: bytes) -> None:
        """Begin the handshake; of a server without a certificate, if the client names HTTP/2."""
        owner = self._owner
        tls = owner.tls or owner.made_tls
        if owner.tls is None:
            names_http2 = offers_http2(begin)
            if names_http2 is None:
                self._begin = begin
                return
            if not names_http2:
                self._take_plain(raw, begin, None)  # which tells that there is no certificate
                return
        if tls is None:
            self._begin = begin
            raw.pause_reading()
            owner.make_tls(self)
            return
        self.since = asyncio.get_running_loop().time()
        if tls.protocol is None and (reason := grpc_over_tls(begin)):
            logger.warning(Event("a peer speaks another protocol", client=self.remote, reason=reason))
        if not owner.handshakes(self):
            self.abort("too many handshakes at once")
            return
        self.is_shaking, self._begin = True, b""
        self._upper = TlsTransport(raw, tls.context)
        self._shake(self._upper, begin)

    def go_on(self) -> None:
        """Take what has come again: the server has a certificate now."""
        if self._raw is not None and not self._raw.is_closing():
            begin, self._begin = self._begin, b""
            self._raw.resume_reading()
            self._take(self._raw, begin)

    def _shake(self, upper: TlsTransport, received: bytes | memoryview) -> None:
        try:
            self.is_shaking = not upper.shaken(received)
        except (ssl.SSLError, ssl.CertificateError) as error:
            self.abort(why(error))
            return
        if self.is_shaking:
            return
        connection = self._owner.http2() if upper.protocol == HTTP2_NAME else None
        if connection is None and self._owner.tls is None:
            self.abort("the server has no tls.server.certPath, and the client has not named HTTP/2")
            return
        self._owner.decided(self)
        self._connection = connection or self._owner.remoting()
        self._connection.connection_made(upper)
        upper.begin(self._connection)

    def _take_plain(self, raw: asyncio.Transport, begin: bytes, connection: Http2Connection | None) -> None:
        if self._owner.tls is not None and self._owner.tls.mode is TlsMode.ENFORCING:
            reason = "it does not speak TLS, and tls.server.mode=enforcing"
            if connection is None and len(begin) >= LENGTH_SIZE and (other := other_protocol(begin)):
                reason = f"{reason}; {other.reason}"
            self.abort(reason)
            return
        self._owner.decided(self)
        made = connection or self._owner.remoting()
        raw.set_protocol(made)
        made.connection_made(raw)
        _give(made, begin)

    def abort(self, reason: str = "") -> None:
        """End it at once; without a reason, silently."""
        if reason:
            logger.warning(Event("connection closed: no TLS", client=self.remote, reason=reason))
        if self._raw is not None:
            self._raw.abort()


def _give(connection: Connection | Http2Connection, begin: bytes) -> None:
    """Hand over bytes as a loop would that has read them."""
    received = memoryview(begin)
    while len(received) and connection.is_open:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(received))
        buffer[:size] = received[:size]
        received = received[size:]
        connection.buffer_updated(size)
