"""Calls over a connection of HTTP/2: how they come, how they are answered, and how they end."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    Setting,
)  # fmt: skip
from reput.transport.grpc_call import GrpcCall, GrpcError, timeout_s
from reput.transport.hpack import encode_field
from reput.transport.http2_bounds import CALL_WINDOW
from reput.transport.http2_frames import frame, rst_stream, window_update
from tests.support.async_tests import run
from tests.support.http2 import (
    HELLO,
    SERVICE,
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


@contextmanager
def client_of(calls: Calls, hello: bytes = HELLO, turn_s: float = math.inf) -> Iterator[Client]:
    client = Client(calls, hello, turn_s)
    try:
        yield client
    finally:
        client.close()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_calls_of_one_read_are_answered_in_one_write() -> None:
    calls = Calls({"Echo": echo})
    with client_of(calls) as client:
        client.read()
        writes = client.wire.writes
        client.feed(b"".join(request(number, "Echo", b"%d" % number) for number in (1, 3, 5)))
        assert client.wire.writes == writes + 1
        for number in (1, 3, 5):
            answer = client.answer(number)
            assert answer.messages == [b"%d" % number]
            assert (answer.status, answer.has_ended, answer.reset) == (0, True, None)
            assert answer.fields[":status"] == "200"
            assert answer.fields["content-type"] == "application/grpc"
        assert calls.reads[-1] == 3
        assert client.connection.calls == 0


async def test_what_is_put_off_until_the_end_of_a_read_leaves_with_it() -> None:
    class PuttingOff(Calls):
        def read(self, connection: object) -> None:
            for call in self.calls:
                call.answer(b"together")
            self.calls.clear()

    with client_of(PuttingOff({"Send": nothing})) as client:
        client.read()
        writes = client.wire.writes
        client.feed(request(1, "Send") + request(3, "Send"))
        assert client.wire.writes == writes + 1
        assert client.answer(1).messages == client.answer(3).messages == [b"together"]


async def test_metadata_and_deadline_come_with_a_call() -> None:
    calls = Calls({"Keep": nothing})
    with client_of(calls) as client:
        now = asyncio.get_running_loop().time()
        client.call("Keep", x_mq_client_id="me", grpc_timeout="1500m")
        (call,) = calls.calls
        assert call.metadata["x-mq-client-id"] == "me"
        assert ":path" not in call.metadata
        assert call.path == f"{SERVICE}Keep"
        assert now + 1.5 <= call.deadline <= now + 1.6
        assert call.connection.remote == "10.0.0.1:4711"
        assert call.connection.remote_host == ("10.0.0.1", 4711)
        assert not call.connection.is_tls


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9), ("99999999S", 99_999_999),
        ("", math.inf), (None, math.inf), ("S", math.inf), ("1", math.inf), ("-1S", math.inf), ("1s", math.inf),
        ("100000000S", math.inf), ("1.5S", math.inf), ("²S", math.inf),
    ],
)  # fmt: skip
async def test_a_timeout_is_a_number_and_a_unit(text: str | None, seconds: float) -> None:
    assert timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("first", ["Empty", "Echo"])
async def test_an_answer_without_messages_leaves_the_fields_of_later_ones_right(first: str) -> None:
    """Its beginning and its end are one block."""
    with client_of(Calls({"Empty": lambda call, message: call.finish(), "Echo": echo})) as client:
        for name in (first, "Empty", "Echo", "Empty"):
            answer = client.answer(client.call(name, b"x"))
            begin, end = {":status": "200", "content-type": "application/grpc"}, {"grpc-status": "0"}
            assert answer.blocks == ([begin, end] if name == "Echo" else [begin | end])


async def test_a_late_answer_leaves_in_the_turn_in_which_it_is_given() -> None:
    calls = Calls({"Keep": nothing})
    with client_of(calls) as client:
        first, second = client.call("Keep"), client.call("Keep")
        client.read()
        writes = client.wire.writes
        for call in calls.calls:
            call.answer(b"late")
        assert client.wire.writes == writes
        await turns(1)
        assert client.wire.writes == writes + 1
        assert client.answer(first).messages == client.answer(second).messages == [b"late"]


async def test_a_coroutine_answers_as_a_task() -> None:
    async def later(call: GrpcCall, message: bytes) -> None:
        await asyncio.sleep(0)
        call.answer(message * 2)

    with client_of(Calls({"Later": later})) as client:
        number = client.call("Later", b"x")
        await turns()
        assert client.answer(number).messages == [b"xx"]


async def test_errors_become_statuses_and_only_unexpected_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(call: GrpcCall, message: bytes) -> None:
        raise GrpcError(3, "nicht möglich: 100%")

    def fail(call: GrpcCall, message: bytes) -> None:
        raise ValueError("odd")

    async def fail_later(call: GrpcCall, message: bytes) -> None:
        raise ValueError("late")

    async def forget(call: GrpcCall, message: bytes) -> None:
        return

    methods = {"Refuse": refuse, "Fail": fail, "FailLater": fail_later, "Forget": forget}
    with client_of(Calls(methods)) as client, caplog.at_level(logging.ERROR):
        numbers = {name: client.call(name) for name in (*methods, "Nothing")}
        await turns()
        told = {name: (client.answer(number).status, client.answer(number).text) for name, number in numbers.items()}
        assert told == {
            "Refuse": (3, "nicht m%C3%B6glich: 100%25"),
            "Fail": (13, "ValueError: odd"),
            "FailLater": (13, "ValueError: late"),
            "Forget": (13, "the call has no answer"),
            "Nothing": (12, f"Method not found: {SERVICE[1:]}Nothing"),
        }
        assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 13), (b"\0\0\0", 13), (b"\0\0\0\0\1", 13), (message_bytes(b"a") + message_bytes(b"b"), 13),
        (b"\1\0\0\0\1x", 12), (b"\2\0\0\0\1x", 13),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_split", [False, True])
async def test_a_unary_request_is_one_plain_message(data: bytes, status: int, is_split: bool) -> None:
    calls = Calls({"Echo": echo})
    with client_of(calls) as client:
        client.feed(request(1, "Echo", None, ends=False))
        if is_split:
            client.feed(frame(DATA, 0, 1, data) + frame(DATA, END_STREAM, 1))
        else:
            client.feed(frame(DATA, END_STREAM, 1, data))
        assert client.answer(1).status == status
        assert calls.taken == []


async def test_a_stream_gives_its_messages_in_order_and_both_sides_end() -> None:
    with client_of(Calls({"Upper": upper}, {"Upper"})) as client:
        number = client.call("Upper", None, ends=False)
        client.feed(data_frames(number, message_bytes(b"a") + message_bytes(b"b")[:3]))
        await turns()
        assert client.answer(number).messages == [b"A"]
        client.feed(data_frames(number, message_bytes(b"b")[3:] + message_bytes(b""), ends=True))
        await turns()
        answer = client.answer(number)
        assert (answer.messages, answer.status, answer.has_ended) == ([b"A", b"B", b""], 0, True)
        assert client.connection.held_bytes == 0


async def test_a_stream_that_ends_within_a_message_fails() -> None:
    with client_of(Calls({"Upper": upper}, {"Upper"})) as client:
        number = client.call("Upper", None, ends=False)
        client.feed(data_frames(number, message_bytes(b"abc")[:-1], ends=True))
        await turns()
        assert client.answer(number).status == 13


async def test_messages_that_nobody_takes_stay_with_the_peer() -> None:
    taken: list[bytes] = []
    go_on = asyncio.Event()

    async def slow(call: GrpcCall) -> None:
        async for message in call.messages():
            taken.append(message)
            await go_on.wait()
        call.finish()

    with client_of(Calls({"Slow": slow}, {"Slow"})) as client:
        number = client.call("Slow", None, ends=False)
        piece = data_frames(number, message_bytes(bytes(100_000)))
        for _ in range(9):
            client.feed(piece)
            await turns()
        assert len(taken) == 1
        steps = [each for each in client.read() if each.kind == WINDOW_UPDATE and each.stream == number]
        assert steps == []
        go_on.set()
        await turns(30)
        assert len(taken) == 9
        steps = [each for each in client.read() if each.kind == WINDOW_UPDATE and each.stream == number]
        assert sum(int.from_bytes(each.payload) for each in steps) > CALL_WINDOW // 2
        client.feed(data_frames(number, b"", ends=True))
        await turns()
        assert client.answer(number).status == 0


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_message_larger_than_the_window_comes_whole(is_stream: bool) -> None:
    size = 3 * CALL_WINDOW

    async def count(call: GrpcCall) -> None:
        async for message in call.messages():
            call.send(b"%d" % len(message))
        call.finish()

    methods = {"Count": count if is_stream else lambda call, message: call.answer(b"%d" % len(message))}
    with client_of(Calls(methods, {"Count"} if is_stream else ())) as client:
        number = client.call("Count", None, ends=False)
        window, sent, data = CALL_WINDOW, 0, message_bytes(bytes(size))
        while sent < len(data):
            assert window > 0
            part = data[sent : sent + min(window, 16_384)]
            sent, window = sent + len(part), window - len(part)
            client.feed(frame(DATA, END_STREAM if sent == len(data) else 0, number, part))
            await turns(2)
            for each in client.read():
                if each.kind == WINDOW_UPDATE and each.stream == number:
                    window += int.from_bytes(each.payload)
        await turns()
        assert client.answer(number).messages == [b"%d" % size]


async def test_a_message_that_is_too_large_is_refused_by_its_length_alone() -> None:
    calls = Calls({"Echo": echo})
    with client_of(calls) as client:
        client.feed(request(1, "Echo", None, ends=False) + data_frames(1, b"\0\x00\x50\x00\x01" + bytes(100)))
        answer = client.answer(1)
        assert (answer.status, answer.reset) == (8, ErrorCode.NO_ERROR)
        client.feed(data_frames(1, bytes(100_000)))  # what was on its way
        client.feed(request(3, "Echo", b"x"))
        assert client.answer(3).messages == [b"x"]
        assert client.connection.held_bytes == 0


# -- windows of the peer


def settings_of(**values: int) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(Setting[name], value) for name, value in values.items()))


async def test_an_answer_waits_for_the_windows_of_call_and_connection() -> None:
    hello = HELLO + settings_of(INITIAL_WINDOW_SIZE=10)
    with client_of(Calls({"Echo": echo}), hello) as client:
        number = client.call("Echo", bytes(100_000))
        assert len(client.answer(number).data) == 10
        client.feed(window_update(number, 20))
        assert len(client.answer(number).data) == 30
        client.feed(settings_of(INITIAL_WINDOW_SIZE=5))
        client.feed(window_update(number, 5))
        assert len(client.answer(number).data) == 30
        client.feed(settings_of(INITIAL_WINDOW_SIZE=1 << 20))
        assert len(client.answer(number).data) == 65_535
        assert not client.answer(number).has_ended
        client.feed(window_update(0, 1 << 20))
        answer = client.answer(number)
        assert (answer.messages, answer.status, answer.has_ended) == ([bytes(100_000)], 0, True)
        assert client.connection.held_bytes == 0


async def test_the_windows_of_many_calls_are_filled_whatever_their_order() -> None:
    with client_of(Calls({"Echo": echo}), HELLO + settings_of(INITIAL_WINDOW_SIZE=30_000)) as client:
        numbers = [client.call("Echo", bytes(50_000)) for _ in range(5)]
        for number in reversed(numbers):
            client.feed(window_update(number, 30_000))
        for _ in range(10):
            client.feed(window_update(0, 30_000))
        assert [client.answer(number).messages for number in numbers] == [[bytes(50_000)]] * 5


async def test_a_writer_waits_until_the_peer_has_room() -> None:
    sent = 0

    async def many(call: GrpcCall, message: bytes) -> None:
        nonlocal sent
        for _ in range(20):
            await call.writable()
            call.send(bytes(500_000))
            sent += 1
        call.finish()

    with client_of(Calls({"Many": many})) as client:
        number = client.call("Many")
        await turns(20)
        assert sent == 3
        while not client.answer(number).has_ended:
            assert client.connection.held_bytes < 3 << 20
            client.feed(window_update(0, 100_000) + window_update(number, 100_000))
            await turns()
        assert sent == 20


async def test_a_peer_that_does_not_read_is_not_read_and_writers_wait() -> None:
    calls = Calls({"Echo": echo, "Keep": nothing})
    with client_of(calls) as client:
        client.call("Keep")
        client.connection.pause_writing()
        (call,) = calls.calls
        assert client.wire.paused
        assert call.is_choked
        waiting = asyncio.create_task(call.writable())
        client.feed(request(3, "Echo"))  # it had been read already
        await turns()
        assert not waiting.done()
        assert len(calls.taken) == 1
        client.connection.resume_writing()
        await waiting
        assert not client.wire.paused
        assert len(calls.taken) == 2


async def test_calls_wait_while_their_owner_holds_the_connection() -> None:
    calls = Calls({"Hold": lambda call, message: call.connection.hold(), "Echo": echo})
    with client_of(calls) as client:
        client.feed(request(1, "Hold") + request(3, "Echo", b"a") + request(5, "Echo", b"b"))
        assert len(calls.taken) == 1
        assert client.wire.paused
        client.connection.go_on()
        assert client.answer(3).messages + client.answer(5).messages == [b"a", b"b"]
        assert not client.wire.paused


# -- ends


async def test_a_reset_ends_a_call_and_its_task() -> None:
    ended = asyncio.Event()

    async def wait(call: GrpcCall, message: bytes) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    calls = Calls({"Wait": wait, "Keep": nothing})
    with client_of(calls) as client:
        waiting, kept = client.call("Wait"), client.call("Keep")
        await turns()
        client.feed(rst_stream(waiting, ErrorCode.CANCEL) + rst_stream(kept, ErrorCode.CANCEL))
        await turns()
        assert ended.is_set()
        assert calls.resets == [f"{SERVICE}Wait", f"{SERVICE}Keep"]
        assert [call.is_over for call in calls.calls] == [True, True]
        client.read()
        for call in calls.calls:
            call.answer(b"late")
        await turns()
        assert client.read() == []
        assert client.connection.calls == 0


async def test_a_call_ends_at_its_deadline() -> None:
    calls = Calls({"Keep": nothing})
    with client_of(calls) as client:
        number = client.call("Keep", grpc_timeout="10S")
        now = asyncio.get_running_loop().time()
        client.connection.check(now + 9, 120)
        assert not client.answer(number).has_ended
        client.connection.check(now + 11, 120)
        assert client.answer(number).status == 4
        assert calls.resets == [f"{SERVICE}Keep"]


async def test_a_request_that_does_not_come_whole_ends() -> None:
    with client_of(Calls({"Echo": echo, "Upper": upper}, {"Upper"})) as client:
        half, stream = client.call("Echo", b"abc", ends=False), client.call("Upper", None, ends=False)
        now = asyncio.get_running_loop().time()
        client.connection.last_read = now + 119
        client.connection.check(now + 121, 120)
        assert client.answer(half).status == 4
        assert not client.answer(stream).has_ended
    await turns()


async def test_a_connection_ends_without_calls_and_one_with_calls_is_asked_first() -> None:
    calls = Calls({"Keep": nothing})
    now = asyncio.get_running_loop().time()
    with client_of(calls) as client:
        client.connection.check(now + 119, 120)
        assert client.connection.is_open
        client.connection.check(now + 121, 120)
        assert client.goaway == ErrorCode.NO_ERROR
        assert client.wire.is_closed
    with client_of(calls) as client:
        client.call("Keep")
        for later in (50, 61, 62):
            client.connection.check(now + later, 120)
        assert [each.kind for each in client.read() if each.kind == PING] == [PING]
        client.feed(frame(PING, ACK, 0, bytes(8)))
        client.connection.check(now + 119, 120)
        assert client.connection.is_open
        client.connection.check(now + 300, 120)
        assert client.wire.is_closed
    assert calls.resets == [f"{SERVICE}Keep"]


async def test_a_frame_or_block_that_does_not_come_whole_ends_the_connection() -> None:
    now = asyncio.get_running_loop().time()
    for begin in (request(1, "Echo", b"abc")[:-1], headers(1, request_fields("Echo"), 0)):
        with client_of(Calls({"Echo": echo, "Keep": nothing})) as client:
            client.feed(begin)
            client.connection.last_read = now + 119
            client.connection.check(now + 121, 120)
            assert client.wire.is_closed


async def test_open_calls_end_when_the_server_closes_and_are_reset_when_the_connection_is_lost() -> None:
    calls = Calls({"Keep": nothing, "Upper": upper}, {"Upper"})
    with client_of(calls) as client:
        number = client.call("Keep")
        client.connection.close()
        assert client.answer(number).status == 14
        assert client.goaway == ErrorCode.NO_ERROR
        assert client.wire.is_closed
    calls.resets.clear()
    with client_of(calls) as client:
        client.call("Keep")
        client.call("Upper", None, ends=False)
    assert calls.resets == [f"{SERVICE}Keep", f"{SERVICE}Upper"]
    assert not calls.is_open
    await turns()


# -- frames in any pieces


def recorded() -> bytes:
    """What a client might send: each kind of frame, blocks in pieces, padding, one stream in both directions."""
    fields = b"".join(encode_field(*each) for each in request_fields("Echo", x_mq_client_id="c"))
    first = b"\x40" + encode_field("x-first", "1")[1:]
    return (
        HELLO
        + frame(SETTINGS, ACK, 0)
        + request(1, "Upper", None, ends=False)
        + frame(HEADERS, 0, 3, fields[:20]) + frame(CONTINUATION, 0, 3, fields[20:50])
        + frame(CONTINUATION, END_HEADERS, 3, fields[50:] + first)
        + frame(PING, 0, 0, b"pingpong")
        + data_frames(1, message_bytes(b"one")[:2])
        + frame(DATA, END_STREAM | PADDED, 3, b"\3" + message_bytes(b"padded") + bytes(3))
        + frame(HEADERS, END_HEADERS, 5, fields + b"\xbe")
        + data_frames(1, message_bytes(b"one")[2:] + message_bytes(b"two"))
        + data_frames(5, message_bytes(b"x" * 40_000), ends=True)
        + window_update(0, 100_000)
        + window_update(1, 5)
        + request(7, "Keep")
        + rst_stream(7, ErrorCode.CANCEL)
        + frame(77, 0, 0, b"unknown")
        + headers(1, [("x-end", "1")], END_HEADERS | END_STREAM)
        + request(9, "Nothing")
    )  # fmt: skip


async def outcome(pieces: list[bytes]) -> tuple[object, ...]:
    calls = Calls({"Echo": echo, "Upper": upper, "Keep": nothing}, {"Upper"})
    with client_of(calls, b"") as client:
        for piece in pieces:
            client.feed(piece)
            await turns(3)
        await turns()
        client.read()
        kept = {
            number: (one.fields, bytes(one.data), one.has_ended, one.reset) for number, one in client.answers.items()
        }
        others = sorted(each for each in client.frames if not each.stream)
        return calls.taken, calls.resets, kept, others, client.goaway


def outcome_of(pieces: list[bytes]) -> tuple[object, ...]:
    """In a loop of its own: hypothesis runs no coroutine functions."""
    return run(outcome(pieces))


@given(st.lists(st.integers(0, len(recorded())), max_size=60))
def test_pieces_of_any_size_give_the_same_calls_and_answers(cuts: list[int]) -> None:
    data = recorded()
    ends = sorted({*cuts, len(data)} - {0})
    pieces = [data[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    whole, split = outcome_of([data]), outcome_of(pieces)
    assert split == whole
    assert whole[4] is None
    assert whole[0][-1] == (f"{SERVICE}Keep", b"")  # type: ignore[index]


async def test_bytes_one_by_one_give_the_same_calls_and_answers() -> None:
    data = recorded()
    assert await outcome([data[at : at + 1] for at in range(len(data))]) == await outcome([data])


async def test_frames_of_a_read_that_take_long_leave_the_loop_to_others() -> None:
    def busy(call: GrpcCall, message: bytes) -> None:
        until = asyncio.get_running_loop().time() + 0.003
        while asyncio.get_running_loop().time() < until:
            pass
        call.answer(message)

    calls = Calls({"Busy": busy})
    with client_of(calls, turn_s=0.01) as client:
        client.feed(b"".join(request(number, "Busy", b"x") for number in range(1, 40, 2)))
        assert 0 < len(calls.taken) < 6
        assert client.wire.paused
        while client.wire.paused:
            await asyncio.sleep(0)
        assert len(calls.taken) == 20
        assert all(client.answer(number).messages == [b"x"] for number in range(1, 40, 2))


async def test_goaway_of_the_peer_ends_nothing() -> None:
    with client_of(Calls({"Keep": nothing})) as client:
        client.call("Keep")
        client.feed(frame(GOAWAY, 0, 0, bytes(8)))
        assert client.connection.is_open
        assert client.connection.calls == 1


async def test_a_reset_of_a_call_whose_answer_waits_forgets_the_answer() -> None:
    with client_of(Calls({"Echo": echo})) as client:
        number = client.call("Echo", bytes(100_000))
        assert client.connection.held_bytes > 30_000
        client.feed(rst_stream(number, ErrorCode.CANCEL))
        assert client.connection.held_bytes == 0
        client.read()
        client.feed(window_update(0, 1 << 20))
        assert [each for each in client.read() if each.kind == DATA or each.kind == RST_STREAM] == []
