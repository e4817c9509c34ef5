"""Clients of HTTP/2 that mean no good: each attack has its bound, of memory, of answers, or of the time in the loop."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.hpack import FIELD_OVERHEAD
from reput.formats.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTING,
    SETTINGS,
    ErrorCode,
)  # fmt: skip
from reput.transport.grpc_call import GrpcCall, GrpcError
from reput.transport.hpack import MOST_HEADERS, encode_field
from reput.transport.http2_bounds import CLOSE_AT, MOST_CALLS, MOST_RECEIVED
from reput.transport.http2_frames import frame, rst_stream, window_update
from tests.support.async_tests import run
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
    upper,
)  # fmt: skip

CALM = ErrorCode.ENHANCE_YOUR_CALM
KEPT = request(1, "Keep", None, ends=False)
MANY = 5000

#: Frames that cost the server more than the client, each sent many times.
FLOODS = {
    "PING": frame(PING, 0, 0, bytes(8)),
    "PING that answers": frame(PING, ACK, 0, bytes(8)),
    "SETTINGS": frame(SETTINGS, 0, 0),
    "SETTINGS that acknowledge": frame(SETTINGS, ACK, 0),
    "SETTINGS of windows": frame(SETTINGS, 0, 0, SETTING.pack(4, 1) + SETTING.pack(4, 100)),
    "PRIORITY": frame(PRIORITY, 0, 5, bytes(5)),
    "empty DATA": frame(DATA, 0, 1),
    "WINDOW_UPDATE of the connection": window_update(0, 1),
    "WINDOW_UPDATE of a call": window_update(1, 1),
    "unknown frames": frame(0x77, 0, 0, b""),
    "GOAWAY": frame(7, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_floods_of_frames_that_serve_no_call_end_the_connection(name: str) -> None:
    client = Client(Calls({"Keep": nothing}))
    client.feed(KEPT)
    client.read()
    client.feed(FLOODS[name] * MANY)
    assert client.goaway == CALM
    assert len(client.frames) < 1100
    client.close()


def numbers(count: int) -> range:
    return range(1, 2 * count, 2)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_calls_that_are_begun_and_reset_end_the_connection(is_whole: bool) -> None:
    """CVE-2023-44487: they cost the server alone."""
    calls = Calls({"Keep": nothing})
    client = Client(calls)
    client.feed(
        b"".join(
            request(number, "Keep", b"" if is_whole else None, ends=is_whole) + rst_stream(number, ErrorCode.CANCEL)
            for number in numbers(MANY)
        )
    )
    assert client.goaway == CALM
    assert len(calls.taken) <= 1100
    assert client.connection.calls == 0
    client.close()


async def test_calls_that_the_server_has_to_reset_end_the_connection() -> None:
    """CVE-2025-8671: frames that are wrong for their streams make the server reset what the client has begun."""
    client = Client(Calls({"Keep": nothing}))
    wrong = (request(n, "Keep", None, ends=False) + window_update(n, 0) for n in numbers(MANY))
    client.feed(b"".join(wrong))
    assert client.goaway == CALM
    client.close()


async def test_more_calls_than_may_be_open_are_refused_and_a_flood_of_them_ends_the_connection() -> None:
    calls = Calls({"Keep": nothing})
    client = Client(calls)
    client.feed(b"".join(request(number, "Keep") for number in numbers(MOST_CALLS + 10)))
    assert client.connection.calls == len(calls.taken) == MOST_CALLS
    refused = [number for number in numbers(MOST_CALLS + 10) if client.answer(number).reset]
    assert refused == list(numbers(MOST_CALLS + 10))[MOST_CALLS:]
    assert client.answers[refused[0]].reset == ErrorCode.REFUSED_STREAM
    client.feed(b"".join(request(number, "Keep") for number in numbers(MANY) if number > 2 * MOST_CALLS + 20))
    assert client.goaway == CALM
    client.close()


async def test_a_client_that_works_may_ping_and_reset() -> None:
    """What Go's client does: a PING and windows with each call; and one that gives up each tenth receive."""
    calls = Calls({"Echo": echo, "Keep": nothing})
    client = Client(calls)
    for number in numbers(MANY):
        data = frame(PING, 0, 0, bytes(8)) + window_update(0, 100) + frame(PING, ACK, 0, bytes(8))
        if number % 20 == 1:
            data += request(number, "Keep") + rst_stream(number, ErrorCode.CANCEL)
        else:
            data += request(number, "Echo", b"x")
        client.feed(data)
    assert client.goaway is None
    assert len(calls.taken) == MANY
    client.close()


async def test_time_pays_for_frames_that_serve_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Calls({"Keep": nothing}))
    nuisances = client.connection.receiver._nuisances
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(nuisances, "_time", lambda: now)
    client.feed(FLOODS["PING"] * 1000)
    now += 30
    client.feed(FLOODS["PING"] * 300)
    assert client.goaway is None
    client.feed(FLOODS["PING"])
    assert client.goaway == CALM
    client.close()


# -- header blocks


async def test_a_header_block_without_end_ends_the_connection() -> None:
    """CVE-2024-27983 and others: CONTINUATION without END_HEADERS."""
    client = Client(Calls({"Keep": nothing}))
    client.feed(frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1) * MANY)
    assert client.goaway == CALM
    client.close()
    client = Client(Calls({"Keep": nothing}))
    client.feed(frame(HEADERS, 0, 1, bytes(16_000)) + frame(CONTINUATION, 0, 1, bytes(1000)))
    assert client.goaway == CALM
    client.close()


async def test_the_fields_of_a_call_are_bounded() -> None:
    def with_value(size: int) -> bytes:
        return headers(1, [*request_fields("Echo"), ("x", "v" * size)]) + data_frames(1, message_bytes(b""), ends=True)

    taken = sum(len(name) + len(value) + FIELD_OVERHEAD for name, value in [*request_fields("Echo"), ("x", "")])
    client = Client(Calls({"Echo": echo}))
    client.feed(with_value(MOST_HEADERS - taken - 10))
    assert client.answer(1).status == 0
    client.close()
    client = Client(Calls({"Echo": echo}))
    client.feed(with_value(MOST_HEADERS - taken + 1))
    assert client.goaway == CALM
    client.close()


async def test_a_small_block_that_means_a_large_list_ends_the_connection() -> None:
    """The HPACK bomb: one large field in the table, and its index many times."""
    client = Client(Calls({"Echo": echo}))
    large = b"\x40" + encode_field("x", "v" * 4000)[1:]
    client.feed(frame(HEADERS, END_HEADERS, 1, large + b"\xbe" * 12_000))
    assert client.goaway == CALM
    client.close()


# -- memory


async def test_messages_that_never_come_whole_hold_no_more_than_the_connection_may() -> None:
    calls = Calls({"Echo": echo})
    client = Client(calls)
    tracemalloc.start()
    try:
        begin = message_bytes(bytes(1_000_000))[:16_000]
        for number in numbers(60):
            client.feed(request(number, "Echo", None, ends=False))
            for _ in range(60):
                client.feed(frame(DATA, 0, number, begin if _ == 0 else bytes(16_000)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    client.read()
    assert client.connection.held_bytes <= MOST_RECEIVED + (1 << 20)
    assert held < MOST_RECEIVED * 1.3
    refused = [each for each in client.answers.values() if each.fields.get("grpc-status") == "8"]
    assert refused
    assert client.goaway is None
    client.close()


async def test_a_length_is_not_believed() -> None:
    calls = Calls({"Echo": echo})
    client = Client(calls)
    tracemalloc.start()
    try:
        for number in numbers(900):
            client.feed(request(number, "Echo", None, ends=False) + data_frames(number, b"\0\x00\x4f\xff\xff"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert client.connection.calls == 900
    assert held < 6 << 20
    client.close()


async def test_metadata_of_open_calls_counts() -> None:
    client = Client(Calls({"Keep": nothing}))
    for number in numbers(MOST_CALLS):
        client.feed(headers(number, [*request_fields("Keep"), ("x", "v" * 15_000)], END_HEADERS))
    assert client.connection.held_bytes > MOST_CALLS * 15_000
    client.close()
    assert client.connection.held_bytes == 0


async def test_the_memory_of_open_calls_counts() -> None:
    client = Client(Calls({"Keep": nothing}))
    for number in numbers(MOST_CALLS):
        client.feed(headers(number, request_fields("Keep"), END_HEADERS))
    assert client.connection.held_bytes > MOST_CALLS * 3000
    client.close()
    assert client.connection.held_bytes == 0


async def test_messages_of_a_stream_that_nobody_takes_are_bounded_by_its_window() -> None:
    client = Client(Calls({"Keep": nothing}, {"Keep"}))
    client.feed(request(1, "Keep", None, ends=False))
    client.feed(data_frames(1, message_bytes(b"") * 209_716))  # one byte more than the window
    assert client.answer(1).reset == ErrorCode.FLOW_CONTROL_ERROR
    assert client.connection.held_bytes == 0
    client.close()


async def test_the_window_of_the_connection_is_a_bound() -> None:
    client = Client(Calls({"Keep": nothing}))
    client.feed(KEPT)
    receiver = client.connection.receiver
    receiver._window = 99  # as if the peer had not waited for windows
    client.feed(data_frames(1, bytes(100)))
    assert client.goaway == ErrorCode.FLOW_CONTROL_ERROR
    client.close()


async def test_a_client_without_windows_begins_no_further_calls() -> None:
    """Answers wait for the peer's windows: from 4 MiB on calls are refused, so a slow reader holds no more."""
    calls = Calls({"Many": lambda call, message: call.answer(bytes(1 << 20))})
    client = Client(calls, HELLO + frame(SETTINGS, 0, 0, SETTING.pack(4, 0)))
    for number in numbers(100):
        client.feed(request(number, "Many"))
    assert len(calls.taken) == 4
    assert client.answer(9).reset == ErrorCode.REFUSED_STREAM
    assert client.connection.held_bytes < 6 << 20
    client.close()


async def test_an_owner_that_does_not_wait_for_the_peer_cannot_fill_the_memory() -> None:
    def flood(call: GrpcCall, message: bytes) -> None:
        for _ in range(100):
            call.send(bytes(1 << 20))

    client = Client(Calls({"Flood": flood}), HELLO + frame(SETTINGS, 0, 0, SETTING.pack(4, 0)))
    client.feed(request(1, "Flood"))
    assert client.wire.is_closed
    client.close()
    client = Client(Calls({"Flood": flood}), HELLO + frame(SETTINGS, 0, 0, SETTING.pack(4, 0x7FFFFFFF)))
    client.feed(window_update(0, 0x7FFF0000))
    client.wire.is_read = False
    client.feed(request(1, "Flood"))
    assert client.wire.is_closed
    assert client.wire.get_write_buffer_size() < CLOSE_AT + (4 << 20)
    client.close()


async def test_windows_of_single_bytes_end_the_connection() -> None:
    """CVE-2019-9511: an answer that is taken byte by byte."""
    client = Client(Calls({"Echo": echo}), HELLO + frame(SETTINGS, 0, 0, SETTING.pack(4, 0)))
    client.feed(request(1, "Echo", bytes(100_000)))
    client.feed(window_update(1, 1) * MANY)
    assert client.goaway == CALM
    assert len(client.answers[1].data) < 1100
    client.close()


# -- time in the loop


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No pass of Python's collector, which goes over all that the tests of this process have made."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def longest_turn(client: Client, data: bytes) -> float:
    """The longest time that the loop was not given to others, while a socket's worth of bytes after the other came."""
    longest = 0.0
    for begin in range(0, len(data), 64 << 10):
        while client.wire.paused and client.connection.is_open:
            since = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - since)
        since = time.thread_time()
        client.feed(data[begin : begin + (64 << 10)])
        longest = max(longest, time.thread_time() - since)
    while client.wire.paused and client.connection.is_open:
        since = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - since)
    return longest


def blocks_of_indexes() -> bytes:
    """Calls of the smallest blocks: all fields in the table."""
    fields = request_fields("Echo")
    first = b"".join(b"\x40" + encode_field(*each)[1:] for each in fields)
    again = bytes(0x80 | 62 + at for at in reversed(range(len(fields))))
    blocks = [first, *[again] * 6000]
    return b"".join(
        frame(HEADERS, END_HEADERS, n, block) + data_frames(n, message_bytes(b""), ends=True)
        for n, block in zip(numbers(6001), blocks, strict=True)
    )


def settings_with_many_values() -> bytes:
    return b"".join(request(n, "Keep") for n in numbers(900)) + frame(SETTINGS, 0, 0, SETTING.pack(4, 9) * 2700) * 100


def huffman_blocks() -> bytes:
    """Blocks as large as they may be, of texts in Huffman's code."""
    value = b"\x00\x01x\xff\x81\x01" + b"\xf8" * 256  # & 256 times
    return b"".join(frame(HEADERS, END_HEADERS, n, value * 55) for n in numbers(400))


@pytest.mark.parametrize("make", [blocks_of_indexes, settings_with_many_values, huffman_blocks])
async def test_no_read_keeps_the_loop_for_long(make: Callable[[], bytes], no_collection: None) -> None:
    async def longest() -> float:
        client = Client(Calls({"Echo": echo, "Keep": nothing}), turn_s=0.01)
        longest = await longest_turn(client, data)
        client.close()
        return longest

    data = make()
    assert min([await longest() for _ in range(3)]) < 0.05  # a machine that is busy counts its other work, now and then


async def test_windows_for_many_calls_keep_the_loop_for_no_longer(no_collection: None) -> None:
    """A thousand calls wait for the connection's window, which gets a byte after the other."""

    async def longest() -> float:
        calls = Calls({"Keep": nothing})
        client = Client(calls, turn_s=0.01)
        await client.feed_all(b"".join(request(n, "Keep") for n in numbers(900)))
        for call in calls.calls:
            call.send(bytes(4000))
        longest = await longest_turn(client, window_update(0, 1) * 900)
        client.close()
        return longest

    assert min([await longest() for _ in range(3)]) < 0.05


async def test_the_streams_of_one_connection_end_with_it() -> None:
    calls = Calls({"Upper": upper}, {"Upper"})
    client = Client(calls)
    client.feed(b"".join(request(n, "Upper", None, ends=False) for n in numbers(500)))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) > 500
    client.feed(b"".join(frame(RST_STREAM, 0, n, bytes(4)) for n in numbers(100)))
    client.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    assert len(calls.resets) == 500


async def test_a_stream_may_be_ended_twice_by_headers_and_data() -> None:
    client = Client(Calls({"Keep": nothing}))
    client.feed(request(1, "Keep") + frame(DATA, END_STREAM, 1) + frame(DATA, END_STREAM, 1))
    assert client.answer(1).reset == ErrorCode.STREAM_CLOSED
    assert client.connection.calls == 0
    client.close()


# -- frames of any kind, in any order


#: More than the connection's window has at its beginning.
LARGE = bytes(70_000)


def any_frames() -> st.SearchStrategy[bytes]:
    streams = st.sampled_from([0, 1, 3, 5, 7, 2])
    flags = st.sampled_from([0, END_STREAM, END_HEADERS, END_STREAM | END_HEADERS, 0x8, 0x20, 0xFF])
    whole = st.builds(
        lambda number, name, message, ends: request(number, name, LARGE if message == b"large" else message, ends=ends),
        streams, st.sampled_from(["Echo", "Keep", "Upper", "Nothing", "Boom"]),
        st.none() | st.binary(max_size=20) | st.just(b"large"), st.booleans(),
    )  # fmt: skip
    settings = [SETTING.pack(4, 0), SETTING.pack(4, 99_999)]
    payloads = st.sampled_from([b"", bytes(4), b"\0\0\0\1", b"\0\1\0\0", bytes(5), *settings])
    known = st.builds(
        lambda kind, number, payload: frame(kind, 0, number, payload), st.integers(0, 10), streams, payloads
    )
    odd = st.builds(frame, st.integers(0, 11), flags, streams, st.binary(max_size=30))
    return whole | known | odd


async def invariants_of(data: bytes) -> None:
    def boom(call: GrpcCall, message: bytes) -> None:
        raise GrpcError(3, "no")

    client = Client(Calls({"Echo": echo, "Keep": nothing, "Upper": upper, "Boom": boom}, {"Upper"}))
    connection = client.connection
    for begin in range(0, len(data), 1000):
        client.feed(data[begin : begin + 1000])
        await asyncio.sleep(0)
        calls = connection.receiver.calls.values()
        assert connection.receiver.held_bytes == sum(call.header_size + len(call.received or b"") for call in calls)
        assert connection.sender.waiting_bytes == sum(call.waiting_bytes for call in calls)
        for call in calls:
            assert call.waiting_bytes == sum(map(len, call.waiting or ()))
    client.read()
    for number, answer in client.answers.items():
        assert number not in connection.receiver.calls or not answer.has_ended or answer.reset is None
    client.close()
    await asyncio.sleep(0)
    assert connection.held_bytes == connection.receiver.held_bytes == 0
    await asyncio.sleep(0)


def check(data: bytes) -> None:
    """In a loop of its own: hypothesis runs no coroutine functions."""
    run(invariants_of(data))


@given(st.lists(any_frames(), max_size=25))
def test_whatever_frames_come_what_is_held_is_counted_and_the_end_forgets_it(frames: list[bytes]) -> None:
    check(b"".join(frames))
