"""Rules of HTTP/2 that a client breaks, and the code that it is told: h2spec's kinds of cases, by sections."""

from __future__ import annotations

import pytest

from reput.formats.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
)  # fmt: skip
from reput.transport.hpack import encode_field
from reput.transport.http2_frames import frame, rst_stream, window_update
from tests.support.http2 import (
    HELLO,
    Calls,
    Client,
    data_frames,
    echo,
    headers,
    message_bytes,
    nothing,
    request,
    request_fields,
)  # fmt: skip

PROTOCOL, FLOW, CLOSED = ErrorCode.PROTOCOL_ERROR, ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.STREAM_CLOSED
SIZE, COMPRESSION, CALM = ErrorCode.FRAME_SIZE_ERROR, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM

#: A call that is open on both sides, one whose request is whole, one that has ended.
OPEN, WHOLE, ENDED = request(1, "Keep", None, ends=False), request(1, "Keep"), request(1, "Echo")
BLOCK = b"".join(encode_field(*each) for each in request_fields("Echo"))


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, SETTING.pack(name, value))


def too_long(kind: int, flags: int, stream: int) -> bytes:
    return FRAME_HEAD.pack(16_385 >> 8, 16_385 & 0xFF, kind, flags, stream) + bytes(16_385)


#: What ends the connection: the frames after the beginning, and the code.
OF_CONNECTION = {
    "4.2 DATA larger than a frame may be": (OPEN + too_long(DATA, 0, 1), SIZE),
    "4.2 HEADERS larger than a frame may be": (too_long(HEADERS, END_HEADERS, 1), SIZE),
    "4.3 a header block that is none": (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), COMPRESSION),
    "4.3 PRIORITY within a header block": (
        frame(HEADERS, 0, 1, BLOCK) + frame(PRIORITY, 0, 1, bytes(5)), PROTOCOL,
    ),
    "4.3 HEADERS of another stream within a header block": (
        frame(HEADERS, 0, 1, BLOCK) + frame(HEADERS, END_HEADERS, 3, BLOCK), PROTOCOL,
    ),
    "5.1 DATA of an idle stream": (data_frames(1, b"x"), PROTOCOL),
    "5.1 RST_STREAM of an idle stream": (rst_stream(1, ErrorCode.CANCEL), PROTOCOL),
    "5.1 WINDOW_UPDATE of an idle stream": (window_update(1, 1), PROTOCOL),
    "5.1 CONTINUATION of an idle stream": (frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL),
    "5.1 CONTINUATION after a whole request": (WHOLE + frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL),
    "5.1 HEADERS of a stream that has ended": (ENDED + frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK), CLOSED),
    "5.1.1 a stream with an even number": (frame(HEADERS, END_HEADERS, 2, BLOCK), PROTOCOL),
    "5.1.1 a stream with a lower number": (request(5, "Echo") + frame(HEADERS, END_HEADERS, 3, BLOCK), CLOSED),
    "5.3.1 HEADERS that depend on themselves": (
        frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"\0\0\0\1\0" + BLOCK), PROTOCOL,
    ),
    "5.5 an unknown frame within a header block": (frame(HEADERS, 0, 1, BLOCK) + frame(0x16, 0, 0, b""), PROTOCOL),
    "6.1 DATA of stream 0": (data_frames(0, b"x"), PROTOCOL),
    "6.1 DATA with more padding than data": (OPEN + frame(DATA, PADDED, 1, b"\x06test"), PROTOCOL),
    "6.1 DATA with padding and no byte": (OPEN + frame(DATA, PADDED, 1), SIZE),
    "6.2 HEADERS of stream 0": (frame(HEADERS, END_HEADERS, 0, BLOCK), PROTOCOL),
    "6.2 HEADERS with more padding than data": (frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + BLOCK[:9]), PROTOCOL),
    "6.2 HEADERS with a priority and no room": (frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"\0\0"), PROTOCOL),
    "6.3 PRIORITY of stream 0": (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    "6.4 RST_STREAM of stream 0": (rst_stream(0, ErrorCode.CANCEL), PROTOCOL),
    "6.4 RST_STREAM of another size": (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
    "6.5 SETTINGS that acknowledge with a payload": (frame(SETTINGS, ACK, 0, bytes(1)), SIZE),
    "6.5 SETTINGS of a stream": (frame(SETTINGS, 0, 1, SETTING.pack(3, 1)), PROTOCOL),
    "6.5 SETTINGS of another size": (frame(SETTINGS, 0, 0, bytes(3)), SIZE),
    "6.5.2 ENABLE_PUSH of 2": (setting(2, 2), PROTOCOL),
    "6.5.2 INITIAL_WINDOW_SIZE that is too large": (setting(4, 1 << 31), FLOW),
    "6.5.2 MAX_FRAME_SIZE that is too small": (setting(5, 16_383), PROTOCOL),
    "6.5.2 MAX_FRAME_SIZE that is too large": (setting(5, 1 << 24), PROTOCOL),
    "6.6 PUSH_PROMISE of a client": (OPEN + frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + BLOCK), PROTOCOL),
    "6.7 PING of a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL),
    "6.7 PING of another size": (frame(PING, 0, 0, bytes(6)), SIZE),
    "6.8 GOAWAY of a stream": (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    "6.9 WINDOW_UPDATE of nothing": (window_update(0, 0), PROTOCOL),
    "6.9 WINDOW_UPDATE of another size": (frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    "6.9.1 a window that is too large": (window_update(0, 0x7FFFFFFF) + window_update(0, 0x7FFFFFFF), FLOW),
    "6.9.2 SETTINGS that make a window too large": (
        OPEN + window_update(1, 0x7FFFFFFF - 65_535) + setting(4, 65_536), FLOW,
    ),
    "6.10 CONTINUATION after a whole block": (OPEN + frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL),
    "6.10 CONTINUATION of another stream": (
        frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3, b""), PROTOCOL,
    ),
    "6.10 DATA within a header block": (frame(HEADERS, 0, 1, BLOCK) + data_frames(1, b"x"), PROTOCOL),
    "HPACK 2.3.3 an index that nothing has": (frame(HEADERS, END_HEADERS, 1, b"\xfe"), COMPRESSION),
    "HPACK 4.2 the table's size after a field": (frame(HEADERS, END_HEADERS, 1, b"\x82\x20"), COMPRESSION),
    "HPACK 5.2 padding of eight bits": (frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x82\x1f\xff"), COMPRESSION),
    "HPACK 5.2 padding of zeros": (frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x81\x00"), COMPRESSION),
    "HPACK 5.2 the symbol for the end": (frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x84\xff\xff\xff\xff"), COMPRESSION),
    "HPACK 6.1 index 0": (frame(HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION),
    "HPACK 6.3 a table that is too large": (frame(HEADERS, END_HEADERS, 1, b"\x3f\xe2\x1f"), COMPRESSION),
}  # fmt: skip


def without(name: str) -> list[tuple[str, str]]:
    return [each for each in request_fields("Keep") if each[0] != name]


def with_fields(*fields: tuple[str, str]) -> bytes:
    return headers(1, [*request_fields("Keep"), *fields], END_HEADERS)


#: What ends the stream: the frames, and the code.
OF_STREAM = {
    "5.1 DATA of a stream whose request is whole": (WHOLE + data_frames(1, b"x"), CLOSED),
    "5.1 HEADERS after a whole request": (WHOLE + frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK), CLOSED),
    "5.1 DATA of a stream that has ended": (ENDED + data_frames(1, b"x"), CLOSED),
    "5.3.1 PRIORITY that depends on itself": (OPEN + frame(PRIORITY, 0, 1, b"\0\0\0\1\0"), PROTOCOL),
    "6.3 PRIORITY of another size": (OPEN + frame(PRIORITY, 0, 1, bytes(4)), SIZE),
    "6.9 WINDOW_UPDATE of nothing": (OPEN + window_update(1, 0), PROTOCOL),
    "6.9.1 a window that is too large": (OPEN + window_update(1, 0x7FFFFFFF), FLOW),
    "8.1 HEADERS that end nothing": (OPEN + headers(1, [("x-end", "1")]), PROTOCOL),
    "8.1 trailers with a field of HTTP/2's": (OPEN + headers(1, [(":path", "/")], END_HEADERS | END_STREAM), PROTOCOL),
    "8.2.1 a name with a capital": (with_fields(("X-Test", "1")), PROTOCOL),
    "8.2.1 a name with a blank": (with_fields(("x test", "1")), PROTOCOL),
    "8.2.1 no name": (with_fields(("", "1")), PROTOCOL),
    "8.2.1 a value of two lines": (with_fields(("x-test", "1\r\nx: 2")), PROTOCOL),
    "8.2.1 a value with a zero": (with_fields(("x-test", "\0")), PROTOCOL),
    "8.2.2 a field of connections": (with_fields(("connection", "keep-alive")), PROTOCOL),
    "8.2.2 te other than trailers": (headers(1, [*without("te"), ("te", "gzip")]), PROTOCOL),
    "8.3 an unknown field of HTTP/2's": (headers(1, [(":test", "1"), *request_fields("Keep")]), PROTOCOL),
    "8.3 a field of answers": (headers(1, [(":status", "200"), *request_fields("Keep")]), PROTOCOL),
    "8.3 a field of HTTP/2's after the others": (
        headers(1, [*without(":path"), (":path", "/x")]), PROTOCOL,
    ),
    "8.3.1 no method": (headers(1, without(":method")), PROTOCOL),
    "8.3.1 no scheme": (headers(1, without(":scheme")), PROTOCOL),
    "8.3.1 no path": (headers(1, without(":path")), PROTOCOL),
    "8.3.1 an empty path": (headers(1, [(":path", ""), *without(":path")]), PROTOCOL),
    "8.3.1 two methods": (headers(1, [(":method", "POST"), *request_fields("Keep")]), PROTOCOL),
}  # fmt: skip

#: What changes nothing.
OF_NOTHING = {
    "4.1 an unknown kind of frame": frame(0x16, 0, 0, b"x" * 8),
    "4.1 unknown flags": frame(PING, 0x16, 0, bytes(8)),
    "4.1 the reserved bit": frame(PING, 0, 1 << 31, bytes(8)),
    "5.1 PRIORITY of an idle stream": frame(PRIORITY, 0, 1, b"\0\0\0\3\x10"),
    "5.1 RST_STREAM of a stream that has ended": request(1, "Echo") + rst_stream(1, ErrorCode.CANCEL),
    "5.1 WINDOW_UPDATE of a stream that has ended": request(1, "Echo") + window_update(1, 100),
    "6.1 DATA of the largest size": OPEN + frame(DATA, 0, 1, b"\0\0\0\xff\xff" + bytes(16_379)),
    "6.2 HEADERS with padding and a priority": frame(
        HEADERS, END_HEADERS | END_STREAM | PADDED | HAS_PRIORITY, 1, b"\2\0\0\0\0\x10" + BLOCK + bytes(2)
    ),
    "6.5 an unknown setting": setting(0xFF, 1),
    "6.7 PING that answers": frame(PING, ACK, 0, bytes(8)),
    "6.9.2 a window below 0": request(1, "Keep") + setting(4, 0),
    "6.10 a block in many pieces": frame(HEADERS, END_STREAM, 1, BLOCK[:9])
    + b"".join(frame(CONTINUATION, 0, 1, BLOCK[at : at + 9]) for at in range(9, len(BLOCK), 9))
    + frame(CONTINUATION, END_HEADERS, 1),
    "7 an unknown code": request(1, "Keep") + frame(RST_STREAM, 0, 1, b"\0\0\0\xff"),
    "HPACK 4.2 two new sizes of the table": frame(
        HEADERS, END_HEADERS | END_STREAM, 1, b"\x20\x3f\xe1\x1f" + BLOCK
    ),
}  # fmt: skip


def client_of() -> Client:
    return Client(Calls({"Echo": echo, "Keep": nothing}))


@pytest.mark.parametrize("name", OF_CONNECTION)
async def test_what_ends_the_connection(name: str) -> None:
    data, code = OF_CONNECTION[name]
    client = client_of()
    client.feed(data + request(99, "Echo"))
    assert client.goaway == code
    assert client.wire.is_closed
    assert 99 not in client.answers  # nothing is taken after it
    client.close()


@pytest.mark.parametrize("name", OF_STREAM)
async def test_what_ends_a_stream(name: str) -> None:
    data, code = OF_STREAM[name]
    client = client_of()
    client.feed(data)
    assert client.answer(1).reset == code
    client.feed(request(99, "Echo", b"x"))
    assert client.answer(99).messages == [b"x"]  # the table of header fields is right, and so are windows
    assert client.connection.calls == 0
    assert client.connection.held_bytes == 0
    client.close()


@pytest.mark.parametrize("name", OF_NOTHING)
async def test_what_changes_nothing(name: str) -> None:
    client = client_of()
    client.feed(OF_NOTHING[name])
    assert client.answer(1).reset is None
    client.feed(frame(PING, 0, 0, b"01234567") + setting(4, 65_535) + request(99, "Echo", b"x"))
    assert client.answer(99).messages == [b"x"]
    assert [each.payload for each in client.frames if each.kind == PING][-1] == b"01234567"
    assert client.goaway is None
    client.close()


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"x", b"PRI * HTTP/2.0\r\n\r\nXM"])
async def test_3_4_another_beginning_ends_the_connection(begin: bytes) -> None:
    client = Client(Calls(), begin)
    assert client.goaway == PROTOCOL
    client.close()


@pytest.mark.parametrize("first", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, ACK, 0), request(1, "Echo")])
async def test_3_4_the_first_frame_is_settings(first: bytes) -> None:
    client = Client(Calls({"Echo": echo}), PREFACE + first)
    assert client.goaway == PROTOCOL
    client.close()


async def test_settings_and_pings_are_acknowledged() -> None:
    client = client_of()
    acknowledged = [each for each in client.read() if each.kind == SETTINGS and each.flags & ACK]
    assert len(acknowledged) == 1
    client.feed(frame(PING, 0, 0, b"abcdefgh"))
    assert [each.payload for each in client.read()] == [b"abcdefgh"]
    client.close()


async def test_an_ended_stream_takes_what_was_on_its_way() -> None:
    """The server has ended it, and the client did not know yet."""
    client = client_of()
    client.feed(request(1, "Nothing", None, ends=False))
    assert (client.answer(1).status, client.answer(1).reset) == (12, ErrorCode.NO_ERROR)
    client.read()
    client.feed(
        data_frames(1, message_bytes(b"x"))
        + window_update(1, 5)
        + headers(1, [("x-end", "1")], END_HEADERS | END_STREAM)
    )
    assert client.read() == []
    assert client.goaway is None
    client.close()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(":method", "GET"), *without(":method")], "405"),
        (without("content-type"), "415"),
        ([*without("content-type"), ("content-type", "application/grpcx")], "415"),
        ([*without("content-type"), ("content-type", "application/json")], "415"),
    ],
)
async def test_what_is_no_call_of_grpc_is_answered_as_http(fields: list[tuple[str, str]], status: str) -> None:
    client = client_of()
    client.feed(headers(1, fields, END_HEADERS | END_STREAM) + headers(3, fields) + request(5, "Echo", b"x"))
    for number, reset in ((1, None), (3, ErrorCode.NO_ERROR)):
        answer = client.answer(number)
        assert (answer.fields, answer.has_ended, answer.reset) == ({":status": status}, True, reset)
    assert client.answer(5).messages == [b"x"]
    client.close()


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;x=1"])
async def test_types_of_grpc(kind: str) -> None:
    client = client_of()
    fields = [*without("content-type"), ("content-type", kind)]
    client.feed(
        headers(1, [(n, v.replace("Keep", "Echo")) for n, v in fields]) + data_frames(1, message_bytes(b"x"), ends=True)
    )
    assert client.answer(1).messages == [b"x"]
    client.close()


def test_the_beginning_is_what_clients_send() -> None:
    assert HELLO.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
