"""Requests over real sockets: what is answered, in which order, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reput.errors import RemotingCommandError, RemotingDecodeError, StoreFullError
from reput.formats.remoting import ONE_WAY_FLAG, RESPONSE_FLAG
from reput.remoting.codes import RequestCode, ResponseCode, SerializeType
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.other_protocol import other_protocol
from reput.transport import requests
from reput.transport.connection import Connection
from tests.support.frames import frame_of, recorded_frames
from tests.support.sockets import serving

ECHO, FAIL, LATER, SILENT, UNKNOWN = 10, 11, 12, 13, 77


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(ext_fields=request.ext_fields, body=request.body)


def failing(error: Exception) -> Callable[[Connection, RemotingCommand], RemotingCommand]:
    def fail(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        raise error

    return fail


def silent(connection: Connection, request: RemotingCommand) -> None:
    return None


async def answer_of(handler: requests.Handler, request: RemotingCommand) -> RemotingCommand:
    """The answer to a request, over a socket."""
    async with serving({request.code: handler}) as here:
        peer = await here.peer()
        peer.send(request)
        return await peer.receive()


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        peer.send(*(RemotingCommand(ECHO, opaque, body=b"%d" % opaque) for opaque in range(500)))
        answers = [await peer.receive() for _ in range(500)]
    assert [(one.opaque, one.body) for one in answers] == [(opaque, b"%d" % opaque) for opaque in range(500)]
    assert {(one.code, one.flag) for one in answers} == {(0, RESPONSE_FLAG)}


async def test_the_requests_of_one_read_are_answered_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = Connection.write
    monkeypatch.setattr(Connection, "write", lambda self, data: (written.append(data), write(self, data))[1])

    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        peer.send(*(RemotingCommand(ECHO, opaque) for opaque in range(20)))
        for _ in range(20):
            await peer.receive()
    assert len(written) == 1


@pytest.mark.parametrize("kind", list(SerializeType))
async def test_an_answer_is_written_in_json_whatever_its_request_was_in(kind: SerializeType) -> None:
    request = RemotingCommand(ECHO, 7, ext_fields={"a": "b"}, body=b"x", serialize_type=kind)
    answer = await answer_of(echo, request)
    assert (answer.serialize_type, answer.opaque) == (SerializeType.JSON, 7)
    assert (answer.ext_fields, answer.body) == ({"a": "b"}, b"x")


async def test_requests_of_real_clients_are_answered_whatever_pieces_they_come_in() -> None:
    frames = [one for one in recorded_frames() if not one.header["flag"]]

    async with serving({}) as here:
        peer = await here.peer()
        for position, byte in enumerate(b"".join(one.frame for one in frames[:20])):
            peer.writer.write(bytes([byte]))
            if position % 100 == 0:
                await peer.writer.drain()
        answers = [await peer.receive() for _ in frames[:20]]
    assert [one.opaque for one in answers] == [one.header["opaque"] for one in frames[:20]]


async def test_one_way_requests_are_never_answered() -> None:
    async def late(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.response()

    handlers: dict[int, requests.Handler] = {ECHO: echo, FAIL: failing(ValueError("x")), LATER: late}

    async with serving(handlers) as here:
        peer = await here.peer()
        peer.send(*(RemotingCommand(code, 1, ONE_WAY_FLAG) for code in (*handlers, UNKNOWN)))
        peer.send(RemotingCommand(ECHO, 2))
        answer = await peer.receive()
        await here.requests.drain(10)
        peer.writer.write_eof()
        assert await peer.ends() == b""
    assert answer.opaque == 2


async def test_an_unknown_code_is_answered_with_3() -> None:
    answer = await answer_of(echo, RemotingCommand(ECHO))
    assert answer.code == ResponseCode.SUCCESS

    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(UNKNOWN, 5), RemotingCommand(ECHO, 6))
        refused, served = [await peer.receive(), await peer.receive()]
    assert (refused.code, refused.remark, refused.opaque) == (3, " request type 77 not supported", 5)
    assert served.opaque == 6


async def test_a_code_of_pop_in_a_binary_header_is_told_whole() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(RequestCode.POP_MESSAGE, serialize_type=SerializeType.ROCKETMQ))
        assert (await peer.receive()).remark == " request type 200050 not supported"


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (ValueError("bad"), 1, "ValueError: bad"),
        (StoreFullError("the disk is full"), 1, "StoreFullError: the disk is full"),
        (RemotingDecodeError("not of the frame"), 1, "RemotingDecodeError: not of the frame"),
        (RemotingCommandError(ResponseCode.TOPIC_NOT_EXIST, "no topic"), 17, "no topic"),
    ],
)
async def test_a_handler_that_fails_is_an_answer_and_the_connection_goes_on(
    error: Exception, code: int, remark: str
) -> None:
    async def fail_later(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        raise error

    async with serving({FAIL: failing(error), LATER: fail_later, ECHO: echo}) as here:
        peer = await here.peer()
        found = []
        for request in (FAIL, LATER, ECHO):
            peer.send(RemotingCommand(request, request))
            found.append(await peer.receive())
        *failed, served = found
    assert [(one.opaque, one.code, one.remark) for one in failed] == [(FAIL, code, remark), (LATER, code, remark)]
    assert (served.code, served.opaque) == (0, ECHO)


async def test_a_coroutine_answers_later_and_holds_nobody_up() -> None:
    gate = asyncio.Event()

    async def late(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        await gate.wait()
        return request.response()

    async with serving({LATER: late, ECHO: echo}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(LATER, 1), RemotingCommand(ECHO, 2))
        found = [(await peer.receive()).opaque]
        gate.set()
        found.append((await peer.receive()).opaque)
    assert found == [2, 1]


async def test_a_request_without_an_answer_yet_is_answered_by_whoever_has_it() -> None:
    held: list[RemotingCommand] = []
    async with serving({SILENT: lambda _, request: held.append(request), ECHO: echo}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(SILENT, 1), RemotingCommand(ECHO, 2))
        assert (await peer.receive()).opaque == 2
        connection = await here.opened_connections.get()
        connection.answer(held[0].response(body=b"now"))
        answer = await peer.receive()
    assert (answer.opaque, answer.body) == (1, b"now")


async def test_more_work_than_fits_is_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_MOST_TASKS", 1)

    gate = asyncio.Event()

    async def late(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        await gate.wait()
        return request.response()

    async with serving({LATER: late}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(LATER, 1), RemotingCommand(LATER, 2, ONE_WAY_FLAG), RemotingCommand(LATER, 3))
        refused = await peer.receive()
        assert (refused.remark or "").startswith("[OVERLOAD]")
        gate.set()
        served = await peer.receive()
        peer.send(RemotingCommand(LATER, 4))
        assert [(one.opaque, one.code) for one in (refused, served, await peer.receive())] == [
            (3, ResponseCode.SYSTEM_BUSY),
            (1, 0),
            (4, 0),
        ]


@pytest.mark.parametrize("kind", list(SerializeType))
async def test_an_answer_that_is_no_frame_is_an_error_for_who_asked(kind: SerializeType) -> None:
    def large(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=bytes(16_777_216))

    answer = await answer_of(large, RemotingCommand(ECHO, 9, serialize_type=kind))
    assert (answer.code, answer.opaque, answer.body) == (ResponseCode.SYSTEM_ERROR, 9, b"")
    assert (answer.remark or "").startswith("the answer is too large: ")


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01", frame_of(b"no JSON"), frame_of(b"{}", kind=9)],
)
async def test_garbage_closes_its_connection_after_the_answers_before_it_and_nobody_elses(garbage: bytes) -> None:
    async with serving({ECHO: echo}) as here:
        good, bad = await here.peer(), await here.peer()
        good.send(RemotingCommand(ECHO, 1))
        assert (await good.receive()).opaque == 1
        bad.send(RemotingCommand(ECHO, 2))
        assert (await bad.receive()).opaque == 2
        bad.writer.write(garbage + encode_command(RemotingCommand(ECHO, 3)))
        other = other_protocol(garbage)
        assert await bad.ends() == (b"" if other is None else other.answer)
        await here.closed_connections.get()
        good.send(RemotingCommand(ECHO, 4))
        assert (await good.receive()).opaque == 4
        assert len(here.server.connections) == 1


async def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(0, 12345, RESPONSE_FLAG), RemotingCommand(ECHO, 1))
        assert (await peer.receive()).opaque == 1


async def test_what_is_not_answered_in_time_is_given_up_when_the_server_ends() -> None:
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def never(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return request.response()

    async with serving({LATER: never}) as here:
        peer = await here.peer()
        peer.send(RemotingCommand(LATER, 1))
        await begun.wait()
        await here.requests.drain(0.01)
        assert given_up.is_set()
        assert not here.requests._tasks
