"""Http2Receiver: the frames that a client sends over one HTTP/2 connection, and the calls that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reput.formats.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_SIZE,
    HAS_PRIORITY,
    HEADERS,
    MESSAGE_HEAD_SIZE,
    NUMBER_MASK,
    PADDED,
    PREFACE,
    ErrorCode,
)
from reput.transport.grpc_call import CallConnection, CallOwner, GrpcCall, GrpcStatus, Streamed, Unary, timeout_s
from reput.transport.hpack import MOST_HEADERS, HeaderDecoder
from reput.transport.http2_bounds import (
    CALL_SIZE,
    CALL_WINDOW,
    CONNECTION_WINDOW,
    FOR_RESET,
    MOST_CALLS,
    MOST_RECEIVED,
    PAUSE_AT,
    Nuisances,
)
from reput.transport.http2_control import ControlFrames
from reput.transport.http2_frames import (
    Http2Error,
    protocol_error,
    rst_stream,
    size_error,
    window_update,
    without_padding,
)
from reput.transport.http2_request import Request, read_request
from reput.transport.http2_sender import Http2Sender

#: Streams that ended before the peer's end of them: what was on its way still comes. As many are remembered.
_MOST_CUT = 1000
#: Of a path that the owner does not know.
_UNKNOWN = Unary(lambda call, message: None)


class CallLink(CallConnection, Protocol):
    """Connection below the calls.

    Attributes:
        last_read: Loop time of the last read.
    """

    last_read: float

    @property
    def sender(self) -> Http2Sender:
        """Answers, which leave as the peer has room for them."""

    def write(self, data: bytes) -> None:
        """Send a frame with the others of a turn."""

    def takes_more(self) -> bool:
        """Whether a further frame of this read may be taken now."""


class Http2Receiver:
    """Takes frames, and hands calls to their methods.

    Args:
        connection: Of which it is a part.
        owner: Has the methods.
        nuisances: The frames that serve no call.

    Attributes:
        calls: The open ones, by the numbers of their streams.
        last: Number of the last stream that has begun.
        held_bytes: What was received of calls and is not taken, and their metadata.
        is_within: A header block has not come whole.
    """

    def __init__(self, connection: CallLink, owner: CallOwner, nuisances: Nuisances) -> None:
        self.calls: dict[int, GrpcCall] = {}
        self.last = self.held_bytes = 0
        self._connection, self._owner, self._nuisances = connection, owner, nuisances
        self._write: Callable[[bytes], None] = connection.write
        self._decoder = HeaderDecoder()
        self._is_greeted = False
        #: Stream, flags and bytes of a header block that has not come whole.
        self._block: tuple[int, int, bytearray] | None = None
        #: Bytes that may still come; bytes that came, and that the peer was not told of.
        self._window, self._unacknowledged = CONNECTION_WINDOW, 0
        self._most_received = max(MOST_RECEIVED, owner.most_message + CALL_WINDOW)
        self._cut: dict[int, None] = {}
        self._control = ControlFrames(connection, self, nuisances)

    @property
    def is_within(self) -> bool:
        """Whether a header block has not come whole."""
        return self._block is not None

    # -- frames

    def take(self, data: bytes) -> int:
        """Take whole frames as long as the connection takes more; returns how many bytes they had.

        Raises:
            Http2Error: The connection has to end; what came before has been taken.
        """
        at, end = 0, len(data)
        if not self._is_greeted:
            if not data.startswith(PREFACE):
                if PREFACE.startswith(data):
                    return 0
                raise protocol_error("a connection that does not begin as HTTP/2")
            self._is_greeted, at = True, len(PREFACE)
        unpack, takes_more = FRAME_HEAD.unpack_from, self._connection.takes_more
        while end - at >= FRAME_HEAD_SIZE:
            high, low, kind, flags, number = unpack(data, at)
            size = high << 8 | low
            if size > FRAME_SIZE:
                raise size_error("a frame", size)
            begin, following = at + FRAME_HEAD_SIZE, at + FRAME_HEAD_SIZE + size
            if following > end:
                break
            self._take_frame(kind, flags, number & NUMBER_MASK, data[begin:following])
            at = following
            if not takes_more():
                break
        return at

    def _take_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise protocol_error("a header block that does not go on")
        if kind == HEADERS and self._control.has_settings:
            self._take_headers(flags, number, payload)
        elif kind == DATA and self._control.has_settings:
            self._take_data(flags, number, payload)
        elif kind == CONTINUATION:
            self._take_continuation(flags, number, payload)
        else:
            self._control.take(kind, flags, number, payload)

    # -- header blocks

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise protocol_error(f"HEADERS of stream {number}")
        if flags & (PADDED | HAS_PRIORITY):
            if flags & HAS_PRIORITY:
                self._check_priority(number, payload[1 if flags & PADDED else 0 :])
            payload = without_padding(flags, payload, may_have_priority=True)
        if flags & END_HEADERS:
            self._take_block(flags, number, payload)
        else:
            self._block = number, flags, bytearray(payload)

    def _take_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise protocol_error(f"CONTINUATION of stream {number}")
        self._nuisances.add("CONTINUATION")
        _, first_flags, block = self._block
        block += payload
        if len(block) > MOST_HEADERS:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"a header block of more than {MOST_HEADERS} bytes")
        if flags & END_HEADERS:
            self._block = None
            self._take_block(first_flags, number, bytes(block))

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        request = read_request(self._decoder.decode(block))
        call = self.calls.get(number)
        if call is not None:
            self._take_trailers(call, flags, request)
        elif number <= self.last:
            if number not in self._cut:
                raise Http2Error(ErrorCode.STREAM_CLOSED, f"HEADERS of stream {number}, which has ended")
        else:
            self.last = number
            self._begin(number, flags, request)

    def _take_trailers(self, call: GrpcCall, flags: int, request: Request) -> None:
        if call.is_whole:
            self._reset(call, ErrorCode.STREAM_CLOSED)
        elif not flags & END_STREAM or not request.is_trailer:
            self._reset(call, ErrorCode.PROTOCOL_ERROR)
        else:
            self._take_end(call)

    def _begin(self, number: int, flags: int, request: Request) -> None:
        connection = self._connection
        is_choked = connection.sender.waiting_bytes > PAUSE_AT
        if len(self.calls) >= MOST_CALLS or is_choked or self.held_bytes > self._most_received:
            self._nuisances.add("a call that is refused")
            self._cut_off(number, flags, ErrorCode.REFUSED_STREAM)
            return
        if not request.is_request:
            self._nuisances.add("a malformed request")
            self._cut_off(number, flags, ErrorCode.PROTOCOL_ERROR)
            return
        self._nuisances.call_began()
        if request.http_status:
            connection.sender.refuse(number, request.http_status)
            if not flags & END_STREAM:
                self._cut_off(number, flags, ErrorCode.NO_ERROR)
            return
        method = self._owner.method(request.path)
        call = GrpcCall(connection, number, request.path, request.metadata, method or _UNKNOWN)
        call.began = connection.last_read
        call.receive_window, call.send_window = CALL_WINDOW, connection.sender.first_window
        call.header_size = request.size + CALL_SIZE
        if timeout := request.metadata.get("grpc-timeout"):
            call.deadline = call.began + timeout_s(timeout)
        self.calls[number] = call
        self.held_bytes += call.header_size
        if flags & END_STREAM:
            call.is_whole = True
        if method is None:
            call.finish(GrpcStatus.UNIMPLEMENTED, f"Method not found: {request.path[1:]}")
        elif isinstance(method, Streamed):
            call.begin()
        elif call.is_whole:
            call.take_message(b"")

    @staticmethod
    def _check_priority(number: int, payload: bytes) -> None:
        if int.from_bytes(payload[:4]) & NUMBER_MASK == number:
            raise protocol_error(f"stream {number} depends on itself")

    # -- data

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._window -= size
        if self._window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more bytes than the connection's window has")
        self._unacknowledged += size
        if self._unacknowledged >= CONNECTION_WINDOW // 2:
            self._write(window_update(0, self._unacknowledged))
            self._window += self._unacknowledged
            self._unacknowledged = 0
        if flags & PADDED:
            payload = without_padding(flags, payload, may_have_priority=False)
        if not payload and not flags & END_STREAM:
            self._nuisances.add("empty DATA")
        call = self.calls.get(number)
        if call is None:
            self._take_late(flags, number)
        elif call.is_whole:
            self._reset(call, ErrorCode.STREAM_CLOSED)
        elif call.is_over:  # what waits of its answer has not left
            call.is_whole = bool(flags & END_STREAM)
        else:
            self._take_part(call, flags, size, payload)

    def _take_late(self, flags: int, number: int) -> None:
        if not number & 1 or number > self.last:
            raise protocol_error(f"DATA of stream {number}, which has not begun")
        if number not in self._cut:
            self._nuisances.add("DATA of a stream that has ended")
            self._write(rst_stream(number, ErrorCode.STREAM_CLOSED))
        elif flags & END_STREAM:
            del self._cut[number]

    def _take_part(self, call: GrpcCall, flags: int, size: int, payload: bytes) -> None:
        is_stream = isinstance(call.method, Streamed)
        if flags & END_STREAM and call.received is None and not is_stream:  # the whole request in one frame, as most
            call.is_whole = True
            if len(payload) > self._owner.most_message + MESSAGE_HEAD_SIZE:
                self._refuse_size(call)
            else:
                call.take_message(payload)
            return
        call.receive_window -= size
        if call.receive_window < 0:
            self._reset(call, ErrorCode.FLOW_CONTROL_ERROR)
            return
        if call.received is None:
            call.received = bytearray()
        call.received += payload
        self.held_bytes += len(payload)
        call.unacknowledged += size
        if self.held_bytes > self._most_received or _needed(call) > self._owner.most_message + MESSAGE_HEAD_SIZE:
            self._refuse_size(call)
            return
        if flags & END_STREAM:
            self._take_end(call)
            return
        self._acknowledge(call)
        if is_stream and payload:
            call.arrived()

    def _take_end(self, call: GrpcCall) -> None:
        call.is_whole = True
        if call.is_over:
            return
        if isinstance(call.method, Streamed):
            call.arrived()
            return
        data, call.received = bytes(call.received or b""), None
        self.held_bytes -= len(data)
        call.take_message(data)

    def _acknowledge(self, call: GrpcCall) -> None:
        """Let the peer send more of a call, unless its next message is there and nobody has taken it."""
        if call.unacknowledged >= CALL_WINDOW // 2 and not call.is_whole:
            received = call.received or b""
            if len(received) < MESSAGE_HEAD_SIZE or len(received) < _needed(call):
                self._write(window_update(call.number, call.unacknowledged))
                call.receive_window += call.unacknowledged
                call.unacknowledged = 0

    def taken(self, call: GrpcCall, size: int) -> None:
        """Note that a message of a stream was taken, with its head."""
        self.held_bytes -= size
        if _needed(call) > self._owner.most_message + MESSAGE_HEAD_SIZE:
            self._refuse_size(call)
        else:
            self._acknowledge(call)

    def _refuse_size(self, call: GrpcCall) -> None:
        most = self._owner.most_message
        size = max(_needed(call) - MESSAGE_HEAD_SIZE, 0)
        if size > most:
            text = f"gRPC message exceeds maximum size {most}: {size}"
        else:
            text = f"more than {self._most_received} bytes of requests of one connection wait"
        call.finish(GrpcStatus.RESOURCE_EXHAUSTED, text)
        if call.number in self.calls:  # its answers wait for the peer
            self._cancel(call, ErrorCode.CANCEL)

    # -- the end of a stream

    def fail_stream(self, number: int, code: ErrorCode) -> None:
        """End a stream that may be open, and tell the peer."""
        call = self.calls.get(number)
        if call is None:
            self._write(rst_stream(number, code))
        else:
            self._reset(call, code)

    def take_reset(self, number: int) -> bool:
        """Take a reset of the peer's; whether a call was open."""
        self._cut.pop(number, None)
        call = self.calls.get(number)
        if call is None:
            return False
        self._forget(call)
        call.reset()
        return True

    def end(self, call: GrpcCall, status: GrpcStatus, text: str) -> None:
        """End an open call with a status, or by a reset if its answer waits for the peer."""
        if call.waiting or call.is_over:
            self._cancel(call, ErrorCode.CANCEL)
        else:
            self._connection.sender.finish(call, status, text)
            call.reset()

    def lost(self) -> None:
        """Reset all calls: the connection is gone."""
        for call in list(self.calls.values()):
            self._forget(call)
            call.reset()

    def _reset(self, call: GrpcCall, code: ErrorCode) -> None:
        """Reset a call for what the peer has done: as bad as a reset of its own."""
        self._cancel(call, code)
        self._nuisances.add(f"what ends a call with {code.name}", FOR_RESET + 1)

    def _cancel(self, call: GrpcCall, code: ErrorCode) -> None:
        self._forget(call)
        self._cut_off(call.number, END_STREAM if call.is_whole else 0, code)
        call.reset()

    def ended(self, call: GrpcCall) -> None:
        """Note that the end of an answer has left."""
        self._forget(call)
        if not call.is_whole:
            self._cut_off(call.number, 0, ErrorCode.NO_ERROR)
        if isinstance(call.method, Streamed):
            call.arrived()

    def _forget(self, call: GrpcCall) -> None:
        if self.calls.pop(call.number, None) is not None:
            self.held_bytes -= call.header_size + len(call.received or b"")
            self._connection.sender.drop(call)

    def _cut_off(self, number: int, flags: int, code: ErrorCode) -> None:
        self._write(rst_stream(number, code))
        if not flags & END_STREAM:
            self._cut[number] = None
            if len(self._cut) > _MOST_CUT:
                del self._cut[next(iter(self._cut))]


def _needed(call: GrpcCall) -> int:
    """Bytes of the next message, as far as they are known."""
    received = call.received
    if received is None or len(received) < MESSAGE_HEAD_SIZE:
        return MESSAGE_HEAD_SIZE
    return MESSAGE_HEAD_SIZE + int.from_bytes(received[1:MESSAGE_HEAD_SIZE])
