"""ControlFrames: a client's frames of HTTP/2 that carry nothing of a call: settings, windows, resets, pings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reput.formats.http2 import (
    ACK,
    GOAWAY,
    NUMBER_MASK,
    PING,
    PING_SIZE,
    PRIORITY,
    PRIORITY_SIZE,
    PUSH_PROMISE,
    RST_STREAM,
    RST_STREAM_SIZE,
    SETTINGS,
    WINDOW_UPDATE,
    WINDOW_UPDATE_SIZE,
    ErrorCode,
)
from reput.transport.grpc_call import GrpcCall
from reput.transport.http2_bounds import FOR_RESET, Nuisances
from reput.transport.http2_frames import decode_settings, frame, protocol_error, size_error
from reput.transport.http2_sender import Http2Sender


class ControlLink(Protocol):
    """Connection below the frames."""

    @property
    def sender(self) -> Http2Sender:
        """Answers, which need the peer's windows."""

    def write(self, data: bytes) -> None:
        """Send a frame with the others of a turn."""


class Streams(Protocol):
    """Streams that have begun.

    Attributes:
        calls: The open ones.
        last: Number of the last one.
    """

    calls: dict[int, GrpcCall]
    last: int

    def take_reset(self, number: int) -> bool:
        """Take a reset of the peer's; whether a call was open."""

    def fail_stream(self, number: int, code: ErrorCode) -> None:
        """End a stream that may be open, and tell the peer."""


class ControlFrames:
    """Takes them; each is a nuisance.

    Args:
        connection: Whose peer sends them.
        streams: Those of the connection.
        nuisances: Their count.

    Attributes:
        has_settings: The first frame of all has come.
    """

    def __init__(self, connection: ControlLink, streams: Streams, nuisances: Nuisances) -> None:
        self.has_settings = False
        self._connection, self._streams, self._nuisances = connection, streams, nuisances
        self._kinds: dict[int, Callable[[int, int, bytes], None]] = {
            PRIORITY: self._take_priority,
            RST_STREAM: self._take_reset,
            SETTINGS: self._take_settings,
            PUSH_PROMISE: self._take_push_promise,
            PING: self._take_ping,
            GOAWAY: self._take_goaway,
            WINDOW_UPDATE: self._take_window_update,
        }

    def take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Take one. Raises Http2Error."""
        if not self.has_settings and (kind != SETTINGS or flags & ACK):
            raise protocol_error("no SETTINGS at the beginning")
        if self.has_settings:
            self._nuisances.add(f"a frame of kind {kind}")
        take = self._kinds.get(kind)
        if take is not None:  # else an extension's
            take(flags, number, payload)

    def _take_priority(self, flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise protocol_error("PRIORITY of stream 0")
        if len(payload) != PRIORITY_SIZE:
            self._streams.fail_stream(number, ErrorCode.FRAME_SIZE_ERROR)
        elif int.from_bytes(payload[:4]) & NUMBER_MASK == number:
            self._streams.fail_stream(number, ErrorCode.PROTOCOL_ERROR)

    def _take_reset(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != RST_STREAM_SIZE:
            raise size_error("RST_STREAM", len(payload))
        if not number & 1 or number > self._streams.last:
            raise protocol_error(f"RST_STREAM of stream {number}, which has not begun")
        if self._streams.take_reset(number):  # a call was begun for nothing
            self._nuisances.add("RST_STREAM", FOR_RESET)

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise protocol_error(f"SETTINGS of stream {number}")
        if flags & ACK:
            if payload:
                raise size_error("SETTINGS that acknowledge", len(payload))
            return
        self.has_settings = True
        values = decode_settings(payload)
        self._connection.write(frame(SETTINGS, ACK, 0))
        self._connection.sender.set_settings(values, list(self._streams.calls.values()))

    def _take_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise protocol_error(f"PING of stream {number}")
        if len(payload) != PING_SIZE:
            raise size_error("PING", len(payload))
        if not flags & ACK:
            self._connection.write(frame(PING, ACK, 0, payload))

    def _take_goaway(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise protocol_error(f"GOAWAY of stream {number}")
        # The peer closes the connection once it has its answers.

    def _take_window_update(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != WINDOW_UPDATE_SIZE:
            raise size_error("WINDOW_UPDATE", len(payload))
        step = int.from_bytes(payload) & NUMBER_MASK
        if not number:
            if not step:
                raise protocol_error("WINDOW_UPDATE of 0 bytes")
            self._connection.sender.widen(step)
            return
        if not number & 1 or number > self._streams.last:
            raise protocol_error(f"WINDOW_UPDATE of stream {number}, which has not begun")
        call = self._streams.calls.get(number)
        if not step:
            self._streams.fail_stream(number, ErrorCode.PROTOCOL_ERROR)
        elif call is not None and not self._connection.sender.widen_call(call, step):
            self._streams.fail_stream(number, ErrorCode.FLOW_CONTROL_ERROR)

    def _take_push_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise protocol_error("PUSH_PROMISE of a client")
