"""Http2Connection: one connection of HTTP/2, and its server's calls of gRPC (RFC 9113)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Protocol, cast

from reput.events import Event
from reput.formats.hosts import encode_host
from reput.formats.http2 import FIRST_WINDOW, PING, PING_SIZE, ErrorCode
from reput.transport.grpc_call import CallOwner, GrpcCall, GrpcStatus
from reput.transport.http2_bounds import (
    CLOSE_AT,
    CONNECTION_WINDOW,
    PAUSE_AT,
    RESUME_AT,
    SETTINGS_OF_SERVER,
    Nuisances,
)
from reput.transport.http2_frames import Http2Error, frame, goaway, settings, window_update
from reput.transport.http2_receiver import Http2Receiver
from reput.transport.http2_sender import Http2Sender
from reput.transport.peer import end_unacknowledged, peer_of

logger = logging.getLogger("reput.transport")

#: The name of HTTP/2 in a handshake of TLS (ALPN).
HTTP2_NAME = "h2"
#: Bytes of answers that wait for the others of a turn.
_WRITE_AT = 1 << 20


class Http2Owner(Protocol):
    """Owner of the HTTP/2 connections of a server.

    Attributes:
        calls: The owner of their calls.
        read_buffer: Memory for the reads of all connections of its loop: nothing stays in it.
    """

    calls: CallOwner
    read_buffer: memoryview

    def opened(self, connection: Http2Connection) -> None:
        """A connection was made."""

    def closed(self, connection: Http2Connection) -> None:
        """The connection is gone, by either side."""


class Http2Connection(asyncio.BufferedProtocol):
    """One connection.

    Attributes:
        remote: "host:port" of the peer.
        remote_host: (address, port) of the peer as the socket names it; ("", 0) before the beginning.
        host: The peer in 8 or 20 bytes, as records have it.
        is_tls: What comes is encrypted.
        is_open: False once it is closed or about to be.
        is_paused: True while the peer leaves too much unread, the owner holds the connection, or others are to have the
            loop: further calls wait.
        is_choked: True while the peer leaves too much unread.
        last_active: Loop time of the last read or write.
        last_read: Loop time of the last read.
        receiver, sender: What comes, and what goes.
    """

    #: The frames of one read have the loop for so long; the others are for its next turn.
    turn_s = 0.01

    def __init__(self, owner: Http2Owner) -> None:
        self.remote = ""
        self.remote_host: tuple[str, int] = ("", 0)
        self.host = b""
        self.is_tls = self.is_open = self.is_paused = self.is_choked = False
        self.last_active = self.last_read = 0.0
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._rest_since = math.inf
        self._is_unread = self._is_held = self._is_late = False
        self._is_taking = self._is_flushing = self._is_asked = False
        self._turn_end = math.inf
        #: Number of the last call at the last check, and the time of the last check that has seen one.
        self._last_seen, self._busy = 0, 0.0
        self._out: list[bytes] = []
        self._out_bytes = 0
        nuisances = Nuisances(self._loop.time)
        self.receiver = Http2Receiver(self, owner.calls, nuisances)
        self.sender = Http2Sender(self, nuisances)

    def __str__(self) -> str:
        return self.remote

    @property
    def calls(self) -> int:
        """Number of calls that are open."""
        return len(self.receiver.calls)

    @property
    def held_bytes(self) -> int:
        """Memory for what was received and is not taken, and for what was sent and has not left."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return len(self._rest) + self.receiver.held_bytes + self.sender.waiting_bytes + self._out_bytes + unsent

    # -- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is no instance of it
        self._transport = transport
        transport.set_write_buffer_limits(PAUSE_AT, RESUME_AT)
        self.remote_host, self.remote = peer_of(transport)
        self.host = encode_host(self.remote)
        self.is_tls = transport.get_extra_info("ssl_object") is not None
        self.last_active = self.last_read = self._busy = self._loop.time()
        self.is_open = True
        self.write(settings(SETTINGS_OF_SERVER))
        self.write(window_update(0, CONNECTION_WINDOW - FIRST_WINDOW))
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        return self._owner.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: a read has brought `nbytes` bytes."""
        if not self.is_open:
            return
        self.last_active = self.last_read = self._loop.time()
        self._is_asked = False
        data = self._owner.read_buffer[:nbytes]
        self._rest = b"".join((self._rest, data)) if self._rest else bytes(data)
        if not self.is_paused:
            self._take()

    def eof_received(self) -> None:
        """Called by the loop: no answer can be wanted any more."""

    def pause_writing(self) -> None:
        """Called by the loop: the peer does not read, so nothing more is read of it."""
        self._is_unread = True
        self.is_choked = True
        self._pause()

    def resume_writing(self) -> None:
        """Called by the loop: the peer reads again."""
        self._is_unread = False
        self.check_choked()
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop, once."""
        self.is_open = False
        self._transport = None
        self._rest, self._out, self._out_bytes = b"", [], 0
        self.receiver.lost()
        self._owner.closed(self)

    # -- reading

    def _take(self) -> None:
        """Take the frames of a read, and send the answers to its calls in one write."""
        size = len(self._rest)
        self._is_taking = True
        self._turn_end = time.perf_counter() + self.turn_s
        try:
            self._rest = self._rest[self.receiver.take(self._rest) :]
        except Http2Error as error:
            self._fail(error)
        finally:
            self._owner.calls.read(self)
            self._is_taking = False
            self.flush()
        left = len(self._rest)
        if not left and not self.receiver.is_within:
            self._rest_since = math.inf
        elif left < size or self._rest_since == math.inf:  # another frame has begun
            self._rest_since = self.last_read

    def _fail(self, error: Http2Error) -> None:
        logger.warning(Event("connection closed: HTTP/2", client=self.remote, reason=error))
        self._close(error.code, str(error))

    def takes_more(self) -> bool:
        """Whether a further frame of this read may be taken now: not if it is paused, closed, or its turn over."""
        if self.is_open and not self.is_paused and time.perf_counter() > self._turn_end:
            self._is_late = True
            self._pause()
            self._loop.call_soon(self._next_turn)
        return self.is_open and not self.is_paused

    def _next_turn(self) -> None:
        self._is_late = False
        self._resume()

    def hold(self) -> None:
        """Take no calls of this connection until `go_on`."""
        self._is_held = True
        self._pause()

    def go_on(self) -> None:
        """Take calls again."""
        self._is_held = False
        self._resume()

    def _pause(self) -> None:
        self.is_paused = True
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Go on, if nothing else is in the way; frames that came before the pause are first."""
        self.is_paused = self._is_unread or self._is_held or self._is_late
        if self.is_open and not self.is_paused and not self._is_taking:
            self._take()
        if self._transport is not None and self.is_open and not self.is_paused:
            self._transport.resume_reading()

    # -- writing

    def ended(self, call: GrpcCall) -> None:
        """Note that the end of an answer has left."""
        self.receiver.ended(call)

    def write(self, data: bytes) -> None:
        """Send bytes, with all others of this read, or of this turn of the loop."""
        if not self.is_open:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > _WRITE_AT:
            self.flush()
        elif not self._is_taking and not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._is_flushing = False
        self.flush()

    def flush(self) -> None:
        """Hand what waits for others to the socket."""
        out, transport = self._out, self._transport
        if not out or transport is None:
            return
        self._out, self._out_bytes = [], 0
        self.last_active = self._loop.time()
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        size = transport.get_write_buffer_size() + self.sender.waiting_bytes
        if size > CLOSE_AT and self.is_open:
            logger.warning(Event("connection closed: too much left unread", client=self.remote, bytes=size))
            self.abort()

    def check_choked(self) -> None:
        """Look again whether the peer leaves too much unread: in the socket, or for want of windows."""
        waiting = self.sender.waiting_bytes
        if self._is_unread or waiting > PAUSE_AT:
            self.is_choked = True
        elif self.is_choked and waiting <= RESUME_AT:
            self.is_choked = False
            for call in list(self.receiver.calls.values()):
                call.has_room()

    # -- the end

    def check(self, now: float, max_idle_s: float) -> None:
        """End calls whose deadline has passed, and the connection if its peer is gone, or has had no call for so long.

        A peer with calls that says nothing for half of the time is asked whether it is there.
        """
        oldest, receiver = now - max_idle_s, self.receiver
        if receiver.calls or receiver.last != self._last_seen:
            self._last_seen, self._busy = receiver.last, now
        for call in list(receiver.calls.values()):
            if call.deadline <= now:
                receiver.end(call, GrpcStatus.DEADLINE_EXCEEDED, "the deadline has passed")
            elif call.began < oldest and call.is_half:
                receiver.end(call, GrpcStatus.DEADLINE_EXCEEDED, f"the request did not come whole in {max_idle_s:g} s")
        if self._busy < oldest:
            logger.debug(Event("connection closed: idle", client=self.remote, seconds=max_idle_s))
            self.close()
        elif self._rest_since < oldest and not self.is_paused:  # else whole ones wait
            logger.warning(Event("connection closed: a frame did not come whole", client=self.remote))
            self.abort()
        elif not receiver.calls:
            return
        elif (self.last_active if self.is_paused else self.last_read) < oldest:
            logger.warning(Event("connection closed: the peer is silent", client=self.remote, seconds=max_idle_s))
            self.abort()
        elif self.last_read < now - max_idle_s / 2 and not self._is_asked:
            self._is_asked = True
            self.write(frame(PING, 0, 0, bytes(PING_SIZE)))

    def end_unacknowledged(self, seconds: float) -> None:
        """Let the connection end if the peer's machine acknowledges nothing for so long: it may be gone."""
        end_unacknowledged(self._transport, seconds)

    def close(self) -> None:
        """End open calls, and close the connection once all that was written is sent."""
        if self.is_open:
            for call in list(self.receiver.calls.values()):
                self.receiver.end(call, GrpcStatus.UNAVAILABLE, "the server closes the connection")
            self._close(ErrorCode.NO_ERROR, "")

    def _close(self, code: ErrorCode, text: str) -> None:
        self.write(goaway(self.receiver.last, code, text))
        self.is_open = False
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
