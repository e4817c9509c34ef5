"""HTTP/2: the numbers of frames, settings and errors (RFC 9113), and of gRPC's messages in its streams."""

from __future__ import annotations

import struct
from enum import IntEnum

#: First bytes of a client.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Head of a frame: its size in two parts (uint16, uint8), kind, flags, stream.
FRAME_HEAD = struct.Struct(">HBBBI")
FRAME_HEAD_SIZE = FRAME_HEAD.size
#: The largest payload of a frame, if no SETTINGS frame says another one, and the largest that one may say.
FRAME_SIZE, MAX_FRAME_SIZE = 1 << 14, (1 << 24) - 1
#: Bits of a stream's number, and of a step of a window; the highest one has no meaning.
NUMBER_MASK = 0x7FFFFFFF

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
#: Flags: of DATA and HEADERS, of HEADERS and CONTINUATION, of DATA and HEADERS, of HEADERS; of SETTINGS and PING.
END_STREAM, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x4, 0x8, 0x20
ACK = 0x1
#: Bytes of the payloads that have one size alone; of PRIORITY also the bytes that `HAS_PRIORITY` puts before a block.
PRIORITY_SIZE, RST_STREAM_SIZE, SETTING_SIZE, PING_SIZE, WINDOW_UPDATE_SIZE = 5, 4, 6, 8, 4
SETTING = struct.Struct(">HI")
#: Payload of GOAWAY: the last stream that was taken, and the code; a text follows.
GOAWAY_HEAD = struct.Struct(">II")

#: A window at its beginning, and the largest one.
FIRST_WINDOW, MAX_WINDOW = 65_535, 0x7FFFFFFF


class Setting(IntEnum):
    """Number of a setting."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Reason why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


#: Before each message of gRPC: whether it is compressed (uint8), and its size.
MESSAGE_HEAD = struct.Struct(">BI")
MESSAGE_HEAD_SIZE = MESSAGE_HEAD.size
