"""Both sides of HTTP/2 for tests: an owner of calls, a connection without a socket, and a client's frames by hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reput.formats.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    GOAWAY,
    HEADERS,
    MESSAGE_HEAD,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
)
from reput.transport.grpc_call import CallConnection, GrpcCall, Streamed, Unary
from reput.transport.hpack import HeaderDecoder, encode_field
from reput.transport.http2 import Http2Connection
from reput.transport.http2_frames import frame

SERVICE = "/apache.rocketmq.v2.MessagingService/"
#: The beginning of each client.
HELLO = PREFACE + frame(SETTINGS, 0, 0)


class Frame(NamedTuple):
    """A frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def read_frames(data: bytes) -> list[Frame]:
    """The frames of what was written; nothing may be left."""
    frames, at = [], 0
    while at < len(data):
        high, low, kind, flags, stream = FRAME_HEAD.unpack_from(data, at)
        end = at + FRAME_HEAD_SIZE + (high << 8 | low)
        assert end <= len(data)
        frames.append(Frame(kind, flags, stream, data[at + FRAME_HEAD_SIZE : end]))
        at = end
    return frames


@dataclass
class Answer:
    """The answer to a call: its fields block by block, and all of them."""

    blocks: list[dict[str, str]] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    has_ended: bool = False
    reset: ErrorCode | None = None

    @property
    def status(self) -> int:
        """gRPC's status."""
        return int(self.fields["grpc-status"])

    @property
    def text(self) -> str:
        """Text of a status."""
        return self.fields.get("grpc-message", "")

    @property
    def messages(self) -> list[bytes]:
        """Messages of the answer."""
        messages, at = [], 0
        while at < len(self.data):
            flag, size = MESSAGE_HEAD.unpack_from(self.data, at)
            assert not flag
            messages.append(bytes(self.data[at + MESSAGE_HEAD.size : at + MESSAGE_HEAD.size + size]))
            at += MESSAGE_HEAD.size + size
        return messages


class Calls:
    """Owner of calls.

    Attributes:
        taken: (path, message) of each call that was handed over, None for a stream's beginning.
        reads: Calls of `read`, by the calls that were taken before.
        resets: Paths of the calls that the peer ended.
    """

    most_message = 5 << 20

    def __init__(self, methods: Mapping[str, Callable[..., Any]] | None = None, streams: Iterable[str] = ()) -> None:
        self.taken: list[tuple[str, bytes | None]] = []
        self.reads: list[int] = []
        self.resets: list[str] = []
        self.calls: list[GrpcCall] = []
        self.is_open = False
        self._methods = {f"{SERVICE}{name}": work for name, work in (methods or {}).items()}
        self._streams = {f"{SERVICE}{name}" for name in streams}

    def opened(self, connection: CallConnection) -> None:
        self.is_open = True

    def closed(self, connection: CallConnection) -> None:
        self.is_open = False

    def read(self, connection: CallConnection) -> None:
        self.reads.append(len(self.taken))

    def method(self, path: str) -> Unary | Streamed | None:
        work = self._methods.get(path)
        if work is None:
            return None

        def take(call: GrpcCall, *message: bytes) -> Any:
            self.taken.append((path, message[0] if message else None))
            self.calls.append(call)
            call.on_reset = lambda: self.resets.append(path)
            return work(call, *message)

        return Streamed(take) if path in self._streams else Unary(take)


def echo(call: GrpcCall, message: bytes) -> None:
    """Method that answers at once."""
    call.answer(message)


def nothing(call: GrpcCall, *message: bytes) -> None:
    """Method that keeps its calls."""


async def upper(call: GrpcCall) -> None:
    """Method whose both sides are streams."""
    async for message in call.messages():
        await call.writable()
        call.send(message.upper())
    call.finish()


class Wire(asyncio.Transport):
    """Transport without a socket.

    Attributes:
        written: What a peer would have got; `is_read` is False while it reads nothing.
        writes: Number of writes.
    """

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 4711)})
        self.written = bytearray()
        self.writes = 0
        self.is_closed = False
        self.is_read = True
        self.paused = False
        self._unsent = 0

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.writes += 1
            self.written += data
            self._unsent += 0 if self.is_read else len(data)

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Port:
    """Owner of the only connection."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.read_buffer = memoryview(bytearray(64 << 10))

    def opened(self, connection: Http2Connection) -> None:
        self.calls.opened(connection)

    def closed(self, connection: Http2Connection) -> None:
        self.calls.closed(connection)


class Client:
    """The client of a connection without a socket; frames by hand. The clock ends no turn, if `turn_s` does not say so.

    Attributes:
        frames: What the server has sent.
        answers: By stream.
    """

    def __init__(self, calls: Calls, hello: bytes = HELLO, turn_s: float = math.inf) -> None:
        self.calls = calls
        self.port = Port(calls)
        self.wire = Wire()
        self.connection = Http2Connection(self.port)
        self.connection.turn_s = turn_s
        self.connection.connection_made(self.wire)
        self.frames: list[Frame] = []
        self.answers: dict[int, Answer] = {}
        self._decoder = HeaderDecoder()
        self.next = 1
        self.feed(hello)

    def feed(self, data: bytes, most: int = 64 << 10) -> None:
        """Let the connection read, up to `most` bytes at once; what it does not read is lost."""
        connection, left = self.connection, memoryview(data)
        while len(left) and connection.is_open:
            buffer = connection.get_buffer(-1)
            size = min(len(buffer), len(left), most)
            buffer[:size] = left[:size]
            left = left[size:]
            connection.buffer_updated(size)

    async def feed_all(self, data: bytes, most: int = 64 << 10) -> None:
        """`feed`, as a socket would: it reads when the connection reads."""
        for begin in range(0, len(data), most):
            while self.wire.paused and self.connection.is_open:
                await asyncio.sleep(0)
            self.feed(data[begin : begin + most])
        while self.wire.paused and self.connection.is_open:
            await asyncio.sleep(0)

    def call(self, name: str, message: bytes | None = b"", *, ends: bool = True, **metadata: str) -> int:
        """Call a method; returns the stream's number."""
        number = self.next
        self.next += 2
        self.feed(request(number, name, message, ends=ends, **metadata))
        return number

    def read(self) -> list[Frame]:
        """Frames that came since the last time."""
        self.connection.flush()
        came = read_frames(bytes(self.wire.written))
        self.wire.written.clear()
        self.frames += came
        for each in came:
            self._note(each)
        return came

    def _note(self, each: Frame) -> None:
        if not each.stream:
            return
        answer = self.answers.setdefault(each.stream, Answer())
        if each.kind == HEADERS:
            block = {name: value for name, value, _ in self._decoder.decode(each.payload)}
            answer.blocks.append(block)
            answer.fields.update(block)
        elif each.kind == DATA:
            answer.data += each.payload
        elif each.kind == RST_STREAM:
            answer.reset = ErrorCode(int.from_bytes(each.payload))
        answer.has_ended |= bool(each.flags & END_STREAM) and each.kind in (HEADERS, DATA)

    def answer(self, number: int) -> Answer:
        """The answer to a call, as far as it came."""
        self.read()
        return self.answers.setdefault(number, Answer())

    @property
    def goaway(self) -> ErrorCode | None:
        """The code with which the connection has ended; None if it has not."""
        self.read()
        codes = [ErrorCode(int.from_bytes(each.payload[4:8])) for each in self.frames if each.kind == GOAWAY]
        return codes[-1] if codes else None

    def close(self) -> None:
        """The end of the connection."""
        self.connection.connection_lost(None)


def headers(number: int, fields: Iterable[tuple[str, str]], flags: int = END_HEADERS) -> bytes:
    """HEADERS, no field in the table."""
    return frame(HEADERS, flags, number, b"".join(encode_field(*each) for each in fields))


def request_fields(name: str, **metadata: str) -> list[tuple[str, str]]:
    """Fields of a call; an underscore in a name stands for a hyphen."""
    return [
        (":method", "POST"), (":scheme", "http"), (":path", f"{SERVICE}{name}"), (":authority", "127.0.0.1:8081"),
        ("content-type", "application/grpc"), ("te", "trailers"),
        *((name.replace("_", "-"), value) for name, value in metadata.items()),
    ]  # fmt: skip


def message_bytes(message: bytes) -> bytes:
    """A message with its head."""
    return MESSAGE_HEAD.pack(0, len(message)) + message


def request(number: int, name: str, message: bytes | None = b"", *, ends: bool = True, **metadata: str) -> bytes:
    """Frames of a call; without a message its beginning alone."""
    flags = END_HEADERS | (END_STREAM if message is None and ends else 0)
    begin = headers(number, request_fields(name, **metadata), flags)
    return begin if message is None else begin + data_frames(number, message_bytes(message), ends=ends)


def data_frames(number: int, data: bytes, *, ends: bool = False) -> bytes:
    """DATA, in frames of the largest size."""
    parts = [data[at : at + 16_384] for at in range(0, len(data), 16_384)] or [b""]
    return b"".join(frame(DATA, END_STREAM if ends and part is parts[-1] else 0, number, part) for part in parts)


def settings_ack() -> bytes:
    """SETTINGS that acknowledge the server's."""
    return frame(SETTINGS, ACK, 0)
