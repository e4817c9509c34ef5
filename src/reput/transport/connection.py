"""Connection: one TCP connection of the remoting protocol, of a server or of a client; both sides may send requests."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from itertools import count
from typing import Any, Protocol, cast

from reput.errors import RemotingDecodeError, RemotingError, RemotingTimeoutError
from reput.events import Event
from reput.formats.hosts import encode_host
from reput.formats.java import INT32_MAX
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.command import RemotingCommand, encode_answer, encode_command
from reput.remoting.frame_buffer import FrameBuffer
from reput.transport.peer import end_unacknowledged, peer_of
from reput.transport.tls import NEVER_ANSWERED, to_do, why

logger = logging.getLogger("reput.transport")

#: A peer that does not read: from the first number of unsent bytes on its requests wait, at the second it is closed.
_PAUSE_AT, _RESUME_AT, _CLOSE_AT = 4 << 20, 1 << 20, 64 << 20
#: The requests of one read have the loop for so long; the others are for its next turn.
_TURN_S = 0.01
#: Bytes of requests that wait for the others of a turn of the loop.
_WRITE_AT = 1 << 20


class Owner(Protocol):
    """Owner of a connection, which gets its events; in the loop's thread."""

    def opened(self, connection: Connection) -> None:
        """A connection was made."""

    def readable(self, connection: Connection) -> None:
        """Bytes have come: take whole frames out of `connection.frames`, and answer.

        Frames that are left there, since the connection is paused, are for the next call.

        Raises RemotingDecodeError at bytes that are no frame; the connection is then closed.
        """

    def closed(self, connection: Connection) -> None:
        """The connection is gone, by either side."""


class Connection(asyncio.BufferedProtocol):
    """One connection.

    Attributes:
        protocol: "remoting".
        is_proven: False: each request says and proves whose it is.
        frames: What was received.
        remote: "host:port" of the peer.
        remote_host: (address, port) of the peer as the socket names it; ("", 0) once it is gone.
        host: The peer in 8 or 20 bytes, as records have it.
        last_active: Loop time of the last read or write.
        frame_since: Loop time since which a frame has not come whole; infinite if none has begun.
        is_open: False once it is closed or about to be.
        is_paused: True while the peer leaves too much unread, the owner holds the connection, or others are to have the
            loop: its requests wait.
        is_choked: True while the peer leaves too much unread.
        may_want_tls: True for a plain connection to a server: if it ends before the first answer, that may be why.
    """

    protocol, is_proven = "remoting", False

    def __init__(self, owner: Owner) -> None:
        self.frames = FrameBuffer()
        self.remote = ""
        self.remote_host: tuple[str, int] = ("", 0)
        self.host = b""
        self.last_active = 0.0
        self.frame_since = math.inf
        self.is_open = False
        self.is_paused = False
        self.may_want_tls = False
        self.is_choked = self._is_held = self._is_late = self._is_answered = False
        self._turn_end = math.inf
        self._failure: str | None = None
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._opaques = count(1)
        #: By opaque: the answer, and the loop time until which it may come.
        self._calls: dict[int, tuple[asyncio.Future[RemotingCommand], float]] = {}
        self._expiry: asyncio.Handle | None = None
        self._expiry_time = math.inf
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def __str__(self) -> str:
        return self.remote

    # -- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is no instance of it
        self._transport = transport
        transport.set_write_buffer_limits(_PAUSE_AT, _RESUME_AT)
        self.remote_host, self.remote = peer_of(transport)
        self.host = encode_host(self.remote)
        self.last_active = self._loop.time()
        self.is_open = True
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        return self.frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: a read has brought `nbytes` bytes."""
        self.last_active = self._loop.time()
        self.frames.received(nbytes)
        if self.is_open:
            self._read()

    def _read(self) -> None:
        size = len(self.frames)
        self._turn_end = time.perf_counter() + _TURN_S
        try:
            self._owner.readable(self)
        except RemotingDecodeError as error:
            self._refuse(error)
        left = len(self.frames)
        if not left:
            self.frame_since = math.inf
        elif left < size or self.frame_since == math.inf:  # another frame has begun
            self.frame_since = self._loop.time()

    def _refuse(self, error: RemotingDecodeError) -> None:
        """Close it at bytes that are no frame, and tell a peer of another protocol what may show in its error."""
        self._failure = str(error)
        if error.answer is None:
            logger.warning(Event("connection closed: no frame", client=self.remote, error=error))
        else:
            logger.warning(Event("connection closed: another protocol", client=self.remote, reason=error))
        if error.answer:
            self.write(error.answer)
            self.close()
        else:
            self.abort()

    def pause_writing(self) -> None:
        """Called by the loop: the peer does not read, so nothing more is read of it."""
        self.is_choked = True
        self._writable.clear()
        self._pause()

    def resume_writing(self) -> None:
        """Called by the loop: the peer reads again."""
        self.is_choked = False
        self._writable.set()
        self._resume()

    def hold(self) -> None:
        """Take no requests of this connection until `go_on`."""
        self._is_held = True
        self._pause()

    def go_on(self) -> None:
        """Take requests again."""
        self._is_held = False
        self._resume()

    def takes_more(self) -> bool:
        """Whether a further request of this read may be taken now: not if it is paused, closed, or its turn over."""
        if not self.is_paused and time.perf_counter() > self._turn_end:
            self._is_late = True
            self._pause()
            self._loop.call_soon(self._next_turn)
        return self.is_open and not self.is_paused

    def _next_turn(self) -> None:
        self._is_late = False
        self._resume()

    def _pause(self) -> None:
        self.is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Go on, if nothing else is in the way; requests that came before the pause are first."""
        self.is_paused = self.is_choked or self._is_held or self._is_late
        if self.is_open and not self.is_paused:
            self._read()
        if self._transport is not None and self.is_open and not self.is_paused:
            self._transport.resume_reading()

    def end_unacknowledged(self, seconds: float) -> None:
        """Let the connection end if the peer's machine acknowledges nothing for so long: it may be gone."""
        end_unacknowledged(self._transport, seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop, once."""
        self.is_open = False
        self._transport = None
        self._writable.set()
        if self._expiry is not None:
            self._expiry.cancel()
        calls, self._calls = self._calls, {}
        for answer, _ in calls.values():
            if not answer.done():
                answer.set_exception(RemotingError(f"{self.remote}: {self._end(exc)}"))
        self._owner.closed(self)

    def _end(self, error: Exception | None) -> str:
        """Reason why a call has no answer."""
        if self._failure is not None:
            return self._failure
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return f"no TLS: {why(error)}{to_do(error)}"
        hint = NEVER_ANSWERED if self.may_want_tls and not self._is_answered else ""
        return f"the connection ended before the answer came{hint}"

    @property
    def held_bytes(self) -> int:
        """Memory for what was received and is not taken, and for what was written and is not sent."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self.frames.held_bytes + unsent

    # -- sending

    def write(self, data: Any) -> None:
        """Send bytes; nothing happens if the connection is closed."""
        transport = self._transport
        if transport is None or not self.is_open:
            return
        self.last_active = self._loop.time()
        transport.write(data)
        if transport.get_write_buffer_size() > _CLOSE_AT:
            size = transport.get_write_buffer_size()
            logger.warning(Event("connection closed: too much left unread", client=self.remote, bytes=size))
            self.abort()

    async def writable(self) -> None:
        """Return when the peer has read most of what was written, or is gone."""
        while not self._writable.is_set():  # who else has waited may have written meanwhile
            await self._writable.wait()

    def answer(self, answer: RemotingCommand | bytes) -> None:
        """Send an answer to a request, or the frames of several."""
        self.write(encode_answer(answer))

    def send_one_way(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers."""
        command.flag = ONE_WAY_FLAG
        command.opaque = self._next_opaque()
        self.write(encode_command(command))

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request, once the peer has read most of those before it, and wait for its answer.

        Raises RemotingTimeoutError if no answer comes in time, and RemotingError if the connection ends.
        """
        until = self._loop.time() + timeout_s
        if not self._writable.is_set():
            try:
                async with asyncio.timeout_at(until):
                    await self.writable()
            except TimeoutError:
                reason = f"{self.remote}: request {command.code} was not sent in {timeout_s:.3g} s"
                raise RemotingTimeoutError(reason) from None
        if not self.is_open:
            raise RemotingError(f"{self.remote}: the connection is closed")
        command.opaque = opaque = self._next_opaque()
        answer: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._calls[opaque] = answer, until
        self._expire_at(until)
        try:
            self._send_soon(command)
            return await answer
        except TimeoutError:
            raise RemotingTimeoutError(
                f"{self.remote}: no answer to request {command.code} in {timeout_s:.3g} s"
            ) from None
        finally:
            self._calls.pop(opaque, None)

    def _expire_at(self, until: float) -> None:
        """Look for calls without an answer at a time: one timer for all, as a timer takes as long as a call."""
        if until < self._expiry_time:
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry_time = until
            self._expiry = self._loop.call_at(until, self._expire)  # of uvloop no TimerHandle, where the time is over

    def _expire(self) -> None:
        now = max(self._loop.time(), self._expiry_time)
        self._expiry, self._expiry_time = None, math.inf
        waiting = [(answer, until) for answer, until in self._calls.values() if not answer.done()]
        for answer, until in waiting:
            if until <= now:
                answer.set_exception(TimeoutError())
        if left := [until for _, until in waiting if until > now]:
            self._expire_at(min(left))

    def _send_soon(self, command: RemotingCommand) -> None:
        """Send a request, together with all others of this turn of the loop: a write takes longer than a request."""
        frame = encode_command(command)
        if not self._unsent:
            self._loop.call_soon(self._send_unsent)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes >= _WRITE_AT:
            self._send_unsent()

    def _send_unsent(self) -> None:
        if self._unsent:
            frames, self._unsent, self._unsent_bytes = self._unsent, [], 0
            self.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def answered(self, command: RemotingCommand) -> None:
        """Hand an answer to the call that waits for it; one that came too late is dropped."""
        self._is_answered = True
        answer, _ = self._calls.get(command.opaque, (None, 0.0))
        if answer is not None and not answer.done():
            answer.set_result(command)

    def _next_opaque(self) -> int:
        return next(self._opaques) & INT32_MAX

    # -- the end

    def close(self) -> None:
        """Close it once all that was written is sent."""
        self._send_unsent()
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
