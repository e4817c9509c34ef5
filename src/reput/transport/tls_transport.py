"""TlsTransport: TLS between a socket and a connection of either protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any, Protocol, cast

from reput.events import Event
from reput.transport.tls import why

logger = logging.getLogger("reput.transport")


class Upper(Protocol):
    """Connection above TLS."""

    remote: str

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory for what comes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Note a read of `nbytes` bytes."""

    def abort(self) -> None:
        """End it."""


class TlsTransport(asyncio.Transport):
    """Transport of TLS above a socket: a connection writes to it and is fed by it.

    Args:
        raw: The socket's own.
        context: Of this connection.
    """

    def __init__(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._connection: Upper
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shaken(self, received: bytes | memoryview) -> bool:
        """Go on with the handshake; whether it is done. Raises SSLError if it cannot be."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()  # also what says why it failed
        return True

    @property
    def protocol(self) -> str | None:
        """The protocol that both sides have agreed on (ALPN)."""
        return self._tls.selected_alpn_protocol()

    def begin(self, connection: Upper) -> None:
        """Give a connection what came with the end of the handshake, and what comes later."""
        self._connection = connection
        self._read()

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
