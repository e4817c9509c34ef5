"""GrpcCall: one call of gRPC, a stream of an HTTP/2 connection; its methods, and the owner that has them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from reput.errors import RemotingError
from reput.events import Event
from reput.formats.http2 import MESSAGE_HEAD, MESSAGE_HEAD_SIZE

logger = logging.getLogger("reput.transport")

#: Bytes of a call's answers for which the peer's windows have no room: `writable` waits from the first number on, and
#: until they are no more than the second one.
_CHOKED_AT, _WRITABLE_AT = 1 << 20, 256 << 10
#: Seconds of a unit of grpc-timeout, and the most digits before it.
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MOST_DIGITS = 8


class GrpcStatus(IntEnum):
    """Status of gRPC's own, with which a call ends."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(RemotingError):
    """Raised by what takes a call, to end it with a status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


_Work = Coroutine[Any, Any, None] | None


@dataclass(frozen=True, slots=True)
class Unary:
    """Method whose request is one message; `take` answers at once, keeps the call, or returns what will answer."""

    take: Callable[[GrpcCall, bytes], _Work]


@dataclass(frozen=True, slots=True)
class Streamed:
    """Method whose request is a stream of messages (`GrpcCall.messages`); `take` is called at its beginning."""

    take: Callable[[GrpcCall], _Work]


class CallAnswers(Protocol):
    """Way of a call's answers."""

    def answer(self, call: GrpcCall, data: bytes) -> None:
        """Send a message with its head, and the end."""

    def send(self, call: GrpcCall, data: bytes) -> None:
        """Send a message with its head."""

    def finish(self, call: GrpcCall, status: int, text: str) -> None:
        """Send the end, after what waits."""


class CallRequests(Protocol):
    """Way of a call's messages."""

    def taken(self, call: GrpcCall, size: int) -> None:
        """Note that a message of a stream was taken."""


class CallConnection(Protocol):
    """Connection of calls: an `Http2Connection`.

    Attributes:
        remote: "host:port" of the peer.
        remote_host: (address, port) of the peer as the socket names it.
        host: The peer in 8 or 20 bytes, as records have it.
        is_tls: What comes is encrypted.
        is_open: False once it is closed or about to be.
        is_paused: Further calls wait.
        is_choked: The peer leaves too much unread.
    """

    remote: str
    remote_host: tuple[str, int]
    host: bytes
    is_tls: bool
    is_open: bool
    is_paused: bool
    is_choked: bool
    last_active: float

    @property
    def sender(self) -> CallAnswers:
        """Way of the answers of calls."""

    @property
    def receiver(self) -> CallRequests:
        """Way of the messages of calls."""

    @property
    def calls(self) -> int:
        """Number of calls that are open."""

    @property
    def held_bytes(self) -> int:
        """Memory for what was received and is not taken, and for what was sent and has not left."""

    def hold(self) -> None:
        """Take no calls of this connection until `go_on`."""

    def go_on(self) -> None:
        """Take calls again."""

    def close(self) -> None:
        """End open calls, and close the connection once all that was written is sent."""

    def abort(self) -> None:
        """Close it at once."""


class CallOwner(Protocol):
    """Owner of the calls of a server's HTTP/2 connections.

    Attributes:
        most_message: Bytes of a request's message; the call of a larger one ends with RESOURCE_EXHAUSTED.
    """

    most_message: int

    def opened(self, connection: CallConnection) -> None:
        """A connection was made."""

    def method(self, path: str) -> Unary | Streamed | None:
        """The method of a path; None if there is none."""

    def read(self, connection: CallConnection) -> None:
        """The whole calls of one read were taken: what was put off is done now, and leaves with the other answers."""

    def closed(self, connection: CallConnection) -> None:
        """The connection is gone, and its calls were reset."""


class GrpcCall:
    """One call; what is sent after its end is dropped.

    Attributes:
        connection: The connection.
        number: The stream's.
        path: The method's.
        metadata: The request's fields, but for those of HTTP/2's own; the last value of each name.
        deadline: Loop time; infinite without grpc-timeout.
        on_reset: Called once if the peer, the deadline or the connection's end ends the call before its whole answer
            has left.
        is_over: It was finished or reset.

    For the connection alone:
        method: What takes it.
        began: Loop time.
        is_whole: The peer sends nothing more.
        is_answering: The beginning of the answer has left.
        header_size: Of the request's fields, and the memory of the call itself.
        received: What was received and is not taken.
        receive_window, unacknowledged: Bytes that may still come; that came, and will come again once it is said.
        send_window: Bytes that may still go.
        waiting, waiting_bytes: Parts of messages that wait for the peer's windows, and their size.
        end: Status and text after these; None if there is more to come.
    """

    __slots__ = (
        "_arrival", "_room", "_task", "began", "connection", "deadline", "end", "header_size", "is_answering",
        "is_over", "is_whole", "metadata", "method", "number", "on_reset", "path", "receive_window", "received",
        "send_window", "unacknowledged", "waiting", "waiting_bytes",
    )  # fmt: skip

    def __init__(
        self,
        connection: CallConnection,
        number: int,
        path: str,
        metadata: Mapping[str, str],
        method: Unary | Streamed,
    ) -> None:
        self.connection, self.number, self.path, self.metadata, self.method = connection, number, path, metadata, method
        self.deadline = math.inf
        self.on_reset: Callable[[], None] | None = None
        self.is_over = self.is_whole = self.is_answering = False
        self.began = 0.0
        self.header_size = self.unacknowledged = self.receive_window = self.send_window = self.waiting_bytes = 0
        self.received: bytearray | None = None
        self.waiting: deque[memoryview] | None = None
        self.end: tuple[int, str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def __str__(self) -> str:
        return f"{self.path} of {self.connection}"

    # -- answers

    def send(self, message: bytes) -> None:
        """Send one message."""
        if not self.is_over:
            self.connection.sender.send(self, MESSAGE_HEAD.pack(0, len(message)) + message)

    def finish(self, status: int = GrpcStatus.OK, text: str = "") -> None:
        """End the call."""
        if not self.is_over:
            self.is_over = True
            self.connection.sender.finish(self, status, text)

    def answer(self, message: bytes) -> None:
        """Send the only message, and end the call."""
        if not self.is_over:
            self.is_over = True
            self.connection.sender.answer(self, MESSAGE_HEAD.pack(0, len(message)) + message)

    @property
    def is_choked(self) -> bool:
        """Whether the peer leaves too much of the answer unread."""
        return self.waiting_bytes > _CHOKED_AT or self.connection.is_choked

    async def writable(self) -> None:
        """Return when the peer has room for most of what was sent, or the call is over."""
        while self.is_choked and not self.is_over:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def has_room(self) -> None:
        """Let `writable` go on, if there is room; called by the connection."""
        is_free = self.waiting_bytes <= _WRITABLE_AT and not self.connection.is_choked
        if self._room is not None and (self.is_over or is_free):
            room, self._room = self._room, None
            _set(room)

    # -- requests

    @property
    def is_half(self) -> bool:
        """Whether the one message of the request has not come whole."""
        return not self.is_whole and isinstance(self.method, Unary)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of a stream."""
        return self.is_over or self.is_whole

    async def messages(self) -> AsyncIterator[bytes]:
        """The messages of a stream, up to its end or the call's; messages that nobody takes stay with the peer."""
        while True:
            message = None if self.is_over else self._next_message()
            if message is not None:
                yield message
            elif self.has_ended:
                return
            else:
                self._arrival = asyncio.get_running_loop().create_future()
                await self._arrival

    def _next_message(self) -> bytes | None:
        received = self.received
        if not received:
            return None
        flag, size = MESSAGE_HEAD.unpack_from(received) if len(received) >= MESSAGE_HEAD_SIZE else (0, 0)
        end = MESSAGE_HEAD_SIZE + size
        if flag:
            self.refuse_flag(flag)
            return None
        if end > len(received):
            if self.is_whole:
                self.finish(GrpcStatus.INTERNAL, "the stream ends within a message")
            return None
        message = bytes(received[MESSAGE_HEAD_SIZE:end])
        del received[:end]
        self.connection.receiver.taken(self, end)
        return message

    def arrived(self) -> None:
        """Note that more of a stream has come, or its end; called by the connection."""
        if self._arrival is not None:
            arrival, self._arrival = self._arrival, None
            _set(arrival)

    def take_message(self, data: bytes) -> None:
        """Take the whole request of a unary method."""
        if len(data) < MESSAGE_HEAD_SIZE:
            self.finish(GrpcStatus.INTERNAL, "the request has no message")
            return
        flag, size = MESSAGE_HEAD.unpack_from(data)
        if flag:
            self.refuse_flag(flag)
        elif size != len(data) - MESSAGE_HEAD_SIZE:
            self.finish(GrpcStatus.INTERNAL, f"one message of {size} bytes expected, {len(data)} bytes came")
        else:
            self.begin(data[MESSAGE_HEAD_SIZE:])

    def refuse_flag(self, flag: int) -> None:
        """End the call of a message that is compressed: no client of RocketMQ's compresses."""
        if flag == 1:
            encoding = self.metadata.get("grpc-encoding", "identity")
            self.finish(GrpcStatus.UNIMPLEMENTED, f"compressed messages are not supported (grpc-encoding {encoding})")
        else:
            self.finish(GrpcStatus.INTERNAL, f"a message that begins with {flag}: expected 0")

    # -- work

    def begin(self, message: bytes = b"") -> None:
        """Hand the call to its method."""
        method = self.method
        try:
            work = method.take(self, message) if isinstance(method, Unary) else method.take(self)
        except Exception as error:
            self._failed(error)
            return
        if work is not None:
            self._task = asyncio.get_running_loop().create_task(work)
            self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
        else:
            self.finish(GrpcStatus.INTERNAL, "the call has no answer")

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, GrpcError):
            self.finish(error.status, error.text)
            return
        logger.error(Event("a call failed", client=self.connection.remote, path=self.path), exc_info=error)
        self.finish(GrpcStatus.INTERNAL, f"{type(error).__name__}: {error}")

    def reset(self) -> None:
        """End the call without an answer; called by the connection, which tells the peer."""
        on_reset, self.on_reset, self.is_over = self.on_reset, None, True
        self.received = self.waiting = None
        self.waiting_bytes = 0
        self.arrived()
        self.has_room()
        if self._task is not None:
            self._task.cancel()
        if on_reset is not None:
            try:
                on_reset()
            except Exception as error:
                logger.error(Event("a reset failed", client=self.connection.remote, path=self.path), exc_info=error)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def timeout_s(text: str | None) -> float:
    """Seconds of a grpc-timeout; infinite if there is none, or if it is none."""
    if not text or len(text) - 1 > _MOST_DIGITS:
        return math.inf
    digits, unit = text[:-1], _UNITS_S.get(text[-1])
    return int(digits) * unit if unit and digits.isascii() and digits.isdigit() else math.inf
