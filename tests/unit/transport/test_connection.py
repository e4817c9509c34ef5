"""Connections: peers that do not read, that are slow, half open or gone; requests in both directions."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import pytest

from reput.errors import RemotingDecodeError, RemotingError, RemotingTimeoutError, WouldWaitError
from reput.events import Event
from reput.formats.remoting import ONE_WAY_FLAG, RESPONSE_FLAG
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.other_protocol import other_protocol
from reput.transport import connection as module
from reput.transport.blocking_client import BlockingConnection
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from tests.support.sockets import serving

LARGE, ECHO, HELD = 10, 11, 12
MIB = 1 << 20


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=request.body)


def unsent(connection: Connection) -> int:
    """Bytes that are written and not sent."""
    transport = connection._transport
    return transport.get_write_buffer_size() if transport is not None else 0


async def test_the_requests_of_a_peer_that_does_not_read_wait_until_it_reads() -> None:
    waiting: list[int] = []

    def large(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        waiting.append(unsent(connection))
        return request.response(body=bytes(MIB))

    async with serving({LARGE: large}) as here:
        peer = await here.peer()
        peer.send(*(RemotingCommand(LARGE, opaque) for opaque in range(100)))
        await peer.writer.drain()
        connection = await here.opened_connections.get()
        found = [(await peer.receive()).opaque for _ in range(100)]
        assert connection.is_open
    assert found == list(range(100))
    assert len(waiting) == 100
    assert max(waiting) <= module._PAUSE_AT + 2 * MIB


async def test_a_peer_that_leaves_too_much_unread_is_closed() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        sent = 0
        while connection.is_open:
            connection.answer(RemotingCommand(LARGE, body=bytes(MIB)))
            sent += 1
            assert unsent(connection) <= module._CLOSE_AT + 2 * MIB
        assert connection.is_paused
        assert await here.closed_connections.get() is connection
        connection.answer(RemotingCommand(LARGE))  # nothing happens
        await peer.ends()
    assert module._CLOSE_AT // MIB <= sent <= module._CLOSE_AT // MIB + 20


async def test_a_peer_that_ends_in_the_middle_of_a_frame_is_closed() -> None:
    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        peer.writer.write(encode_command(RemotingCommand(ECHO, 1, body=bytes(100)))[:-1])
        peer.writer.write_eof()
        assert await peer.ends() == b""
        connection = await here.closed_connections.get()
        assert not connection.is_open
        assert here.server.connections == set()


@pytest.mark.parametrize("pieces", [1, 8])
@pytest.mark.parametrize("begin", [b"GET /metrics HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
async def test_a_client_of_http_gets_an_answer_that_it_reads_and_the_log_names_it(
    begin: bytes, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    other = other_protocol(begin)
    assert other is not None

    async with serving({}) as here:
        peer = await here.peer()
        for at in range(pieces):  # up to the eight bytes that begin a frame
            peer.writer.write(begin[at : at + 1] if at < pieces - 1 else begin[at:])
            await asyncio.sleep(0)
        answer = await peer.ends()
        await here.closed_connections.get()
    assert answer == other.answer
    [line] = [one.msg for one in caplog.records if isinstance(one.msg, Event)]
    assert (line.message, line.fields["reason"]) == ("connection closed: another protocol", other.reason)


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_whole_frame_with_a_header_that_is_none_closes_the_connection_with_one_line(
    is_held: bool, caplog: pytest.LogCaptureFixture
) -> None:
    header = b"GET no JSON"
    frame = struct.pack(">iI", 4 + len(header), len(header)) + header

    def take(connection: Connection, command: RemotingCommand) -> None:
        if is_held:
            connection.hold()
            asyncio.get_running_loop().call_soon(connection.go_on)

    async with serving({ECHO: take}) as here:
        peer = await here.peer()
        peer.writer.write(encode_command(RemotingCommand(ECHO, 1)) + frame)
        await here.closed_connections.get()
    assert [one.msg.message for one in caplog.records] == ["connection closed: no frame"]


async def test_a_server_of_another_protocol_is_named_in_the_error_of_a_call() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    expected = f"^{address}: this is HTTP: neither a broker nor a name server answers there"
    with pytest.raises(RemotingError, match=expected):
        await RemotingClient().call(address, RemotingCommand(28))

    def block() -> None:
        connection = BlockingConnection(address)
        [opaque] = connection.send(RemotingCommand(28))
        with pytest.raises(RemotingError, match=expected):
            connection.answer(opaque, 30)

    await asyncio.to_thread(block)
    server.close()


async def test_a_peer_that_is_gone_fails_the_calls_that_wait() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        calls = [asyncio.ensure_future(connection.call(RemotingCommand(307), 30)) for _ in range(3)]
        for _ in calls:
            await peer.receive()
        peer.writer.transport.abort()
        for one in calls:
            with pytest.raises(RemotingError, match=r"the connection ended before the answer came$"):
                await one
        with pytest.raises(RemotingError, match="the connection is closed"):
            await connection.call(RemotingCommand(307), 30)


async def test_a_server_asks_and_the_answers_come_in_any_order() -> None:
    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        calls = [asyncio.ensure_future(connection.call(RemotingCommand(307, body=b"%d" % i), 30)) for i in range(3)]
        asked = [await peer.receive() for _ in calls]
        assert {one.flag for one in asked} == {0}
        peer.send(RemotingCommand(ECHO, asked[0].opaque))  # both sides count for themselves
        assert (await peer.receive()).flag == RESPONSE_FLAG
        peer.send(*(one.response(body=b"answer " + one.body) for one in reversed(asked)))
        assert [(await one).body for one in calls] == [b"answer 0", b"answer 1", b"answer 2"]


async def test_an_answer_that_comes_too_late_is_dropped() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        with pytest.raises(RemotingError, match=r"no answer to request 307 in 0\.001 s"):
            await connection.call(RemotingCommand(307), 0.001)
        late = await peer.receive()
        again = asyncio.ensure_future(connection.call(RemotingCommand(307), 30))
        second = await peer.receive()
        assert second.opaque != late.opaque
        peer.send(late.response(body=b"late"), second.response(body=b"in time"))
        assert (await again).body == b"in time"


async def test_a_call_that_cannot_be_written_is_not_waited_for() -> None:
    async with serving({}) as here:
        await here.peer()
        connection = await here.opened_connections.get()
        with pytest.raises(RemotingDecodeError):
            await connection.call(RemotingCommand(307, body=bytes(16 * MIB)), 30)
        assert connection._calls == {}
        assert connection.is_open


async def test_a_one_way_request_has_its_flag_and_a_number_of_its_own() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        for _ in range(2):
            connection.send_one_way(RemotingCommand(40))
        assert [((one := await peer.receive()).opaque, one.flag) for _ in range(2)] == [
            (1, ONE_WAY_FLAG),
            (2, ONE_WAY_FLAG),
        ]


async def test_a_connection_knows_its_peer() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection, name = await here.opened_connections.get(), peer.writer.get_extra_info("sockname")
    assert connection.remote_host == name
    assert connection.remote == f"{name[0]}:{name[1]}"


async def test_a_connection_that_is_closed_sends_what_was_written() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        connection.write(bytes(8 * MIB))
        connection.close()
        connection.write(b"not this")
        assert await peer.ends() == bytes(8 * MIB)


async def test_a_connection_that_is_held_takes_the_same_request_again_when_it_goes_on() -> None:
    taken: list[int] = []

    def held_once(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        taken.append(request.opaque)
        if taken.count(request.opaque) == 1 and request.opaque % 2:
            connection.hold()
            raise WouldWaitError("no room", room=1)
        return request.response()

    async with serving({ECHO: held_once}) as here:
        readable = here.readable

        def until_held(connection: Connection) -> None:
            with suppress(WouldWaitError):
                readable(connection)

        here.readable = until_held  # type: ignore[method-assign]
        peer = await here.peer()
        connection = await here.opened_connections.get()
        peer.send(*(RemotingCommand(ECHO, opaque) for opaque in range(4)))
        assert (await peer.receive()).opaque == 0
        assert connection.is_paused
        peer.send(RemotingCommand(ECHO, 4))
        for _ in range(2):
            connection.go_on()
        assert not connection.is_paused
        assert [(await peer.receive()).opaque for _ in range(4)] == [1, 2, 3, 4]
    assert taken == [0, 1, 1, 2, 3, 3, 4]


async def test_a_connection_that_is_held_does_not_go_on_when_its_peer_reads_again() -> None:
    async with serving({ECHO: echo}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        connection.hold()
        connection.pause_writing()
        connection.resume_writing()
        assert connection.is_paused
        connection.pause_writing()
        connection.go_on()
        assert connection.is_paused
        connection.resume_writing()
        assert not connection.is_paused
        peer.send(RemotingCommand(ECHO, 7))
        assert (await peer.receive()).opaque == 7


async def test_a_call_that_is_cancelled_as_its_answer_comes_is_cancelled() -> None:
    async with serving({ECHO: echo}) as here:
        client = RemotingClient()
        connection = await client.connection(here.address)
        call = asyncio.create_task(connection.call(RemotingCommand(ECHO), 60.0))
        await asyncio.sleep(0)
        ((answer, _),) = connection._calls.values()
        answer.set_result(RemotingCommand(0))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        client.close()


async def test_the_requests_of_one_turn_of_the_loop_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def write(connection: Connection, data: bytes) -> None:
        written.append(len(data))
        plain_write(connection, data)

    plain_write = Connection.write

    async with serving({ECHO: echo}) as here:
        client = RemotingClient()
        connection = await client.connection(here.address)
        monkeypatch.setattr(Connection, "write", write)
        calls = [connection.call(RemotingCommand(ECHO, body=b"%d" % i), 60.0) for i in range(3)]
        assert [one.body for one in await asyncio.gather(*calls)] == [b"0", b"1", b"2"]
        client.close()
    assert len(written) == 2  # the requests, and the answers


async def test_a_request_is_sent_before_a_close() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        call = asyncio.ensure_future(connection.call(RemotingCommand(307), 30))
        await asyncio.sleep(0)
        connection.close()
        assert (await peer.receive()).code == 307
        with pytest.raises(RemotingError, match="the connection ended"):
            await call


async def test_calls_expire_each_at_its_own_time() -> None:
    loop = asyncio.get_running_loop()

    async def call(connection: Connection, timeout_s: float) -> None:
        begun = loop.time()
        with pytest.raises(RemotingTimeoutError, match="no answer to request 307"):
            await connection.call(RemotingCommand(307), timeout_s)
        assert loop.time() - begun > timeout_s - 0.005  # timers of uvloop are whole milliseconds

    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        late = asyncio.ensure_future(connection.call(RemotingCommand(ECHO), 30))
        await asyncio.gather(*(call(connection, seconds) for seconds in (0.2, 0.01, 0.1)))
        asked = [await peer.receive() for _ in range(4)]
        peer.send(next(one for one in asked if one.code == ECHO).response(0))
        assert (await late).code == 0


async def test_a_call_whose_time_is_over_before_it_is_sent_expires() -> None:
    """A loop that stood still; uvloop's `call_at` returns no TimerHandle for such a time."""

    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        for timeouts in ((0.0, 30), (-1.0, -2.0), (30, -1.0)):
            calls = [asyncio.ensure_future(connection.call(RemotingCommand(307), one)) for one in timeouts]
            for call, timeout_s in zip(calls, timeouts, strict=True):
                if timeout_s <= 0:
                    with pytest.raises(RemotingTimeoutError, match="no answer to request 307"):
                        await call
                else:
                    assert not call.done()
                    call.cancel()
        peer.close()


async def test_requests_wait_until_the_server_has_read_those_before_them() -> None:
    """Many large requests at once; what waits for the server is bounded, and the connection stays."""
    read = asyncio.Event()

    async def hold(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        await read.wait()
        return request.response(body=b"%d" % len(request.body))

    async with serving({HELD: hold}) as here:
        client = RemotingClient()
        connection = await client.connection(here.address)
        calls = [asyncio.create_task(connection.call(RemotingCommand(HELD, body=bytes(MIB)), 60)) for _ in range(100)]
        for _ in range(10):
            await asyncio.sleep(0)
            assert unsent(connection) <= module._PAUSE_AT + 2 * MIB
        read.set()
        assert {one.body for one in await asyncio.gather(*calls)} == {b"%d" % MIB}
        client.close()


async def test_a_request_that_cannot_be_sent_in_time_says_so() -> None:
    async with serving({}) as here:
        peer = await here.peer()
        connection = await here.opened_connections.get()
        connection.pause_writing()
        with pytest.raises(RemotingTimeoutError, match=r"request 307 was not sent in 0\.05 s"):
            await connection.call(RemotingCommand(307), 0.05)
        late = asyncio.ensure_future(connection.call(RemotingCommand(307), 30))
        await asyncio.sleep(0)
        connection.resume_writing()
        asked = await peer.receive()
        peer.send(asked.response(0))
        assert (await late).code == 0
        connection.pause_writing()
        gone = asyncio.ensure_future(connection.call(RemotingCommand(307), 30))
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(RemotingError, match="the connection is closed"):
            await gone


async def test_the_requests_of_one_read_leave_the_loop_to_others_when_their_turn_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_TURN_S", 0.0)
    order: list[str] = []

    def take(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        order.append("request")
        asyncio.get_running_loop().call_soon(order.append, "other")
        return request.response()

    async with serving({ECHO: take}) as here:
        peer = await here.peer()
        peer.send(*(RemotingCommand(ECHO, opaque) for opaque in range(20)))
        assert [(await peer.receive()).opaque for _ in range(20)] == list(range(20))
    assert order[:-1] == ["request", "other"] * 19 + ["request"]
