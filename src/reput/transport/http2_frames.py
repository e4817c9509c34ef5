"""Frames of HTTP/2 as bytes, and Http2Error, which ends a connection (RFC 9113)."""

from __future__ import annotations

from reput.errors import RemotingError
from reput.formats.http2 import (
    FRAME_HEAD,
    FRAME_SIZE,
    GOAWAY,
    GOAWAY_HEAD,
    HAS_PRIORITY,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    PADDED,
    PRIORITY_SIZE,
    RST_STREAM,
    SETTING,
    SETTING_SIZE,
    SETTINGS,
    WINDOW_UPDATE,
    WINDOW_UPDATE_SIZE,
    ErrorCode,
    Setting,
)


class Http2Error(RemotingError):
    """Raised at what a peer may not send; the connection ends with a code."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def protocol_error(why: str) -> Http2Error:
    """The error of frames that may not come so."""
    return Http2Error(ErrorCode.PROTOCOL_ERROR, why)


def size_error(what: str, size: int) -> Http2Error:
    """The error of a frame of another size than its kind has."""
    return Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"{what} of {size} bytes")


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """A frame; its payload has `FRAME_SIZE` bytes at the most."""
    size = len(payload)
    return FRAME_HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """RST_STREAM."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def window_update(stream: int, step: int) -> bytes:
    """WINDOW_UPDATE; of stream 0: the connection's."""
    return frame(WINDOW_UPDATE, 0, stream, step.to_bytes(WINDOW_UPDATE_SIZE))


def goaway(last: int, code: ErrorCode, text: str) -> bytes:
    """GOAWAY, with a text for people."""
    return frame(GOAWAY, 0, 0, GOAWAY_HEAD.pack(last, code) + text[:1000].encode())


def settings(values: dict[Setting, int]) -> bytes:
    """SETTINGS."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*each) for each in values.items()))


def decode_settings(payload: bytes) -> dict[int, int]:
    """The last value of each setting, so that a frame of many costs no more than one of each. Raises Http2Error."""
    if len(payload) % SETTING_SIZE:
        raise size_error("SETTINGS", len(payload))
    values: dict[int, int] = {}
    for name, value in SETTING.iter_unpack(payload):
        if name == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
        if name == Setting.ENABLE_PUSH and value > 1:
            raise protocol_error(f"SETTINGS_ENABLE_PUSH {value}")
        if name == Setting.MAX_FRAME_SIZE and not FRAME_SIZE <= value <= MAX_FRAME_SIZE:
            raise protocol_error(f"SETTINGS_MAX_FRAME_SIZE {value}")
        if Setting.HEADER_TABLE_SIZE <= name <= Setting.MAX_HEADER_LIST_SIZE:  # others mean nothing
            values[name] = value
    return values


def without_padding(flags: int, payload: bytes, *, may_have_priority: bool) -> bytes:
    """The data or the header block of a frame. Raises Http2Error."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise size_error("a frame with padding", 0)
        begin, end = 1, end - payload[0]
    if may_have_priority and flags & HAS_PRIORITY:
        begin += PRIORITY_SIZE
    if begin > end:
        raise protocol_error("more padding than there is room for")
    return payload[begin:end]
