"""Http2Sender: the answers of one HTTP/2 connection, as far as the peer's windows have room for them."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from reput.formats.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FRAME_SIZE,
    HEADERS,
    MAX_WINDOW,
    ErrorCode,
    Setting,
)
from reput.transport.grpc_call import GrpcCall
from reput.transport.hpack import HeaderEncoder
from reput.transport.http2_bounds import Nuisances
from reput.transport.http2_frames import Http2Error, frame


class AnswerLink(Protocol):
    """Connection below the answers."""

    def write(self, data: bytes) -> None:
        """Send a frame with the others of a turn."""

    def check_choked(self) -> None:
        """Look again whether the peer leaves too much unread."""

    def ended(self, call: GrpcCall) -> None:
        """Note that the end of an answer has left."""


class Http2Sender:
    """Sends messages in DATA frames, each call's in their order, and keeps back what has no room.

    Args:
        connection: Of which it is a part.
        nuisances: Messages pay for them.

    Attributes:
        first_window: Of a call that begins.
        waiting_bytes: What is kept back, of all calls.
    """

    def __init__(self, connection: AnswerLink, nuisances: Nuisances) -> None:
        self.first_window = self._window = FIRST_WINDOW
        self.waiting_bytes = 0
        self._connection, self._nuisances = connection, nuisances
        self._write = connection.write
        self._encoder = HeaderEncoder()
        #: Calls with room in their own windows, which wait for the connection's.
        self._blocked: dict[int, GrpcCall] = {}

    # -- answers

    def answer(self, call: GrpcCall, data: bytes) -> None:
        """Send a message with its head, and the end."""
        self.send(call, data)
        self.finish(call, 0, "")

    def send(self, call: GrpcCall, data: bytes) -> None:
        """Send a message with its head."""
        size = len(data)
        self._nuisances.message_sent(size)
        if not call.is_answering:
            call.is_answering = True
            self._write(frame(HEADERS, END_HEADERS, call.number, self._encoder.begin()))
        if not call.waiting and size <= FRAME_SIZE and size <= call.send_window and size <= self._window:
            call.send_window -= size
            self._window -= size
            self._write(frame(DATA, 0, call.number, data))
            return
        if call.waiting is None:
            call.waiting = deque()
        call.waiting.append(memoryview(data))
        call.waiting_bytes += size
        self.waiting_bytes += size
        self._send_waiting(call)
        self._connection.check_choked()

    def finish(self, call: GrpcCall, status: int, text: str) -> None:
        """Send the end, after what waits."""
        call.end = status, text
        if not call.waiting:
            self._send_end(call)

    def refuse(self, number: int, http_status: int) -> None:
        """Answer what is no call of gRPC with a status of HTTP alone."""
        self._write(frame(HEADERS, END_HEADERS | END_STREAM, number, self._encoder.http_status(http_status)))

    def _send_end(self, call: GrpcCall) -> None:
        assert call.end is not None
        block = b"" if call.is_answering else self._encoder.begin()
        block += self._encoder.end(*call.end)  # after it: the order of the peer's table
        self._write(frame(HEADERS, END_HEADERS | END_STREAM, call.number, block))
        self._connection.ended(call)

    def _send_waiting(self, call: GrpcCall) -> None:
        waiting = call.waiting
        if waiting is None:
            return
        sent = 0
        while waiting:
            data = waiting[0]
            room = min(call.send_window, self._window, FRAME_SIZE)
            if room <= 0:
                break
            part = data[:room]
            size = len(part)
            call.send_window -= size
            self._window -= size
            sent += size
            self._write(frame(DATA, 0, call.number, part))
            if size == len(data):
                waiting.popleft()
            else:
                waiting[0] = data[size:]
        call.waiting_bytes -= sent
        self.waiting_bytes -= sent
        if not waiting:
            self._blocked.pop(call.number, None)
            if call.end is not None:
                self._send_end(call)
        elif call.send_window > 0:
            self._blocked[call.number] = call
        else:
            self._blocked.pop(call.number, None)
        if sent:
            call.has_room()
            self._connection.check_choked()

    def drop(self, call: GrpcCall) -> None:
        """Forget what waits of a call that was reset."""
        if call.waiting_bytes:
            self.waiting_bytes -= call.waiting_bytes
            call.waiting_bytes = 0
            self._blocked.pop(call.number, None)
            self._connection.check_choked()

    # -- the peer's windows

    def widen(self, step: int) -> None:
        """Widen the connection's window. Raises Http2Error if it is too large then."""
        self._window += step
        if self._window > MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {self._window} bytes")
        while self._blocked and self._window > 0:
            self._send_waiting(next(iter(self._blocked.values())))

    def widen_call(self, call: GrpcCall, step: int) -> bool:
        """Widen the window of a call; False if it is too large then."""
        call.send_window += step
        if call.send_window > MAX_WINDOW:
            return False
        if call.waiting:
            self._send_waiting(call)
        return True

    def set_settings(self, values: dict[int, int], calls: list[GrpcCall]) -> None:
        """Take the peer's settings; `calls` are those that are open. Raises Http2Error at a window too large."""
        size = values.get(Setting.HEADER_TABLE_SIZE)
        if size is not None:
            self._encoder.set_table_size(size)
        first = values.get(Setting.INITIAL_WINDOW_SIZE)
        if first is None:
            return
        step, self.first_window = first - self.first_window, first
        for call in calls:
            if not self.widen_call(call, step):
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {call.send_window} bytes")
