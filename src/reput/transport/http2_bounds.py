"""Bounds of one HTTP/2 connection: what a peer may have at once, and Nuisances, the frames that serve no call."""

from __future__ import annotations

from collections.abc import Callable

from reput.formats.http2 import FRAME_SIZE, ErrorCode, Setting
from reput.transport.hpack import MOST_HEADERS
from reput.transport.http2_frames import Http2Error

#: Calls that are open.
MOST_CALLS = 1000
#: Memory of a call that is open, beside its fields and what has come of it: with a task 2.7 KB were measured.
CALL_SIZE = 3 << 10
#: Bytes of a call, and of the connection, that may come before they are acknowledged.
CALL_WINDOW, CONNECTION_WINDOW = 1 << 20, 16 << 20
#: Bytes of messages that are not whole or not taken, and of metadata, of all calls; one message may come nevertheless.
MOST_RECEIVED = 32 << 20
#: Bytes of answers that the socket or the peer's windows have no room for: from the first number on no call begins,
#: until they are no more than the second one; at the third one the connection ends.
PAUSE_AT, RESUME_AT, CLOSE_AT = 4 << 20, 1 << 20, 64 << 20

SETTINGS_OF_SERVER = {
    Setting.MAX_CONCURRENT_STREAMS: MOST_CALLS,
    Setting.INITIAL_WINDOW_SIZE: CALL_WINDOW,
    Setting.MAX_FRAME_SIZE: FRAME_SIZE,
    Setting.MAX_HEADER_LIST_SIZE: MOST_HEADERS,
}

#: Nuisances beyond those that calls and time pay for, and how many a second pays for.
_MOST, _A_SECOND = 1000, 10
#: Nuisances that a call, and a message that was sent, pay for; and how many bytes of a message pay for one more: a
#: client acknowledges a call's window and the connection's, and looks with a PING whether it may have larger ones.
_FOR_CALL, _FOR_MESSAGE, _BYTES = 2, 2, 1024
#: What the reset of a call adds: with its frame more than its beginning has paid for.
FOR_RESET = 2


class Nuisances:
    """Count of frames that cost the server more than the peer, and that serve no call.

    Args:
        time: The loop's.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._count = 0
        self._since = time()

    def add(self, what: str, count: int = 1) -> None:
        """Count some. Raises Http2Error ENHANCE_YOUR_CALM if there are too many."""
        self._count += count
        if self._count <= _MOST:
            return
        now = self._time()
        paid = int((now - self._since) * _A_SECOND)
        if paid:
            self._since = now
            self._count = max(0, self._count - paid)
        if self._count > _MOST:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"too many frames beside calls; the last one: {what}")

    def call_began(self) -> None:
        """Note a call."""
        if self._count:
            self._count = max(0, self._count - _FOR_CALL)

    def message_sent(self, size: int) -> None:
        """Note a message that leaves."""
        if self._count:
            self._count = max(0, self._count - _FOR_MESSAGE - size // _BYTES)
