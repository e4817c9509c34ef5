"""No frame has the loop for long: what others wait for is counted in CPU time of the loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from pathlib import Path

import pytest

from reput.broker.large_bodies import encode_beside
from reput.broker.pop.query_assignment_processor import QueryAssignmentProcessor
from reput.formats.metadata import MessageRequestModeBody, TopicConfig
from reput.remoting.body import encode_body
from reput.remoting.body_bounds import LARGE_BODY, most_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.service.access.needs import names_in_body
from tests.support.broker import LONG_MS, Served, fill, pull_command, serving_broker, with_topic
from tests.support.loop_gaps import loop_gaps
from tests.support.signed import ALICE_PASSWORD, AUTHORIZATION, make_alice, signed
from tests.support.worst_frames import exchange, known, of_code

#: Seconds of CPU in one turn of the loop.
_MOST_S = 0.05
_KNOWN = known()
_CODES = list(RequestCode)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the product: other tests are patient."""
    monkeypatch.setattr("reput.transport.connection._TURN_S", 0.01)


async def worst_of(served: Served, data: bytes) -> float:
    """The longest turn of the loop while a frame is taken, and its connection closed."""
    other = await served.client()
    with loop_gaps() as gaps:
        await asyncio.to_thread(exchange, served.controller.address, data)
        await other.round_trip()
    return gaps.worst


@pytest.mark.parametrize("name", _KNOWN)
async def test_a_frame_of_many_small_things_has_the_loop_for_a_bounded_time(tmp_path: Path, name: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "t")
        await client.send_message("t")
        assert await worst_of(served, _KNOWN[name]) < _MOST_S


@pytest.mark.slow
@pytest.mark.parametrize("code", _CODES, ids=[code.name for code in _CODES])
async def test_no_frame_of_any_code_has_the_loop_for_long(tmp_path: Path, code: RequestCode) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "t")
        await client.send_message("t")
        found = {name: await worst_of(served, data) for name, data in of_code(code)}
    assert {name: seconds for name, seconds in found.items() if seconds > _MOST_S} == {}


async def test_what_a_user_may_do_is_read_beside_the_loop_out_of_a_large_body(tmp_path: Path) -> None:
    """The gate reads each body that names topics or groups, before its processor does."""
    codes = [code for code in RequestCode if names_in_body(code) and most_body(code) > LARGE_BODY]
    assert len(codes) > 5
    async with serving_broker(tmp_path / "store", **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client)
        for code in codes:
            many = [{"topic": f"t{n}", "groupName": f"g{n}", "brokerName": "b"} for n in range(most_body(code) // 60)]
            body = encode_body({"consumerGroup": "g", "acks": many[: len(many) // 2], "mqSet": many[: len(many) // 3]})
            command = signed(RemotingCommand(code, ext_fields={}, body=body), "alice", ALICE_PASSWORD)
            assert LARGE_BODY < len(body) < most_body(code)
            with loop_gaps() as gaps:
                answer = await client.begin_all([command])[0]
            assert (answer.code, gaps.worst < _MOST_S) == (ResponseCode.NO_PERMISSION, True), (code, answer)


async def test_requests_beyond_a_queue_are_refused_before_the_gate_reads_their_bodies(tmp_path: Path) -> None:
    queue = {"adminBrokerThreadPoolQueueCapacity": 10}
    async with serving_broker(tmp_path / "store", **AUTHORIZATION | queue) as served:
        client = await served.client()
        await make_alice(client)
        body = encode_body({"clientID": "c" * (LARGE_BODY + 1)})
        commands = [RemotingCommand(RequestCode.HEART_BEAT, ext_fields={}, body=body) for _ in range(20)]
        with warnings.catch_warnings(record=True) as told:  # of coroutines that were never awaited
            warnings.simplefilter("always")
            begun = client.begin_all([signed(command, "alice", ALICE_PASSWORD) for command in commands])
            codes = [answer.code for answer in await asyncio.gather(*begun)]
        assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert [str(one.message) for one in told] == []


async def test_a_large_table_is_encoded_beside_the_loop(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(2500)]
    codes = (
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_ALL_PRODUCER_INFO,
    )  # fmt: skip
    async with serving_broker(tmp_path / "store") as served:
        state, services = served.controller.state, served.controller._services
        client = await served.client()
        [assignments] = [one for one in services.pop.processors if isinstance(one, QueryAssignmentProcessor)]
        await state.pools.writes.run(state.store.update_topics, [TopicConfig(name) for name in names])
        for name in names:
            state.groups.find_subscription_group_config(name, 0)
            state.offsets.commit_offset(name, "t", 0, 0, 0)
            assignments._modes.set_message_request_mode(MessageRequestModeBody("t", name), 0)
        assert services.timers is not None
        services.timers.metrics.add(dict.fromkeys(names, 1), 0)
        for begin in range(0, 900, 300):
            await client.heartbeat("c", producers=names[begin : begin + 300])
        for code in codes:
            with loop_gaps() as gaps:
                answer = await client.ask(code)
            assert (answer.code, gaps.worst < _MOST_S) == (0, True), (code, gaps.worst)
            assert len(answer.body) > 30_000, code


async def test_tables_are_encoded_one_at_a_time(tmp_path: Path) -> None:
    """Each takes the interpreter from the loop, which gets it back after 5 ms for each thread that works."""
    running, most = 0, 0
    started = threading.Barrier(2)

    def encode(_: object) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        with contextlib.suppress(threading.BrokenBarrierError):
            started.wait(0.2)  # a second one would come meanwhile
        running -= 1
        return b""

    async with serving_broker(tmp_path / "store") as served:
        await (await served.client()).round_trip()  # until its first byte a socket may be of any protocol
        [connection] = served.controller._server.connections
        state = served.controller.state
        await asyncio.gather(*(encode_beside(state.pools, connection, encode, None) for _ in range(3)))
    assert most == 1


async def test_held_pulls_are_answered_some_in_a_turn(tmp_path: Path) -> None:
    pulls = 3000
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "t")
        held = served.controller._services.held_pulls
        begun = asyncio.create_task(
            asyncio.to_thread(
                exchange, served.controller.address, encode_command(pull_command("t", hold_ms=LONG_MS)) * pulls
            )
        )
        with loop_gaps() as gaps:
            while held._count < pulls:
                await asyncio.sleep(0)
            await client.send_message("t", bytes(1000))
            while held._count:
                await asyncio.sleep(0)
        assert await begun
    assert gaps.worst < _MOST_S


async def test_a_client_that_does_not_read_gets_no_answers_of_held_pulls_until_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.broker.pulls.pull_request_hold_service._CHECK_EVERY_S", 0.01)
    async with serving_broker(tmp_path / "store") as served:
        client, sender = await served.client(), await served.client()
        await with_topic(client, "t")
        connection = next(one for one in served.controller._server.connections if one.remote == _name(client))
        held = served.controller._services.held_pulls
        answers = client.begin_all([pull_command("t", hold_ms=LONG_MS) for _ in range(3)])
        await client.round_trip()
        connection.pause_writing()
        await sender.send_message("t")
        await sender.round_trip()
        assert (held._count, len(held._unread)) == (3, 3)
        connection.resume_writing()
        assert {answer.code for answer in await asyncio.gather(*answers)} == {0}
        assert (held._count, len(held._unread)) == (0, 0)


def _name(client: object) -> str:
    host, port = client.writer.get_extra_info("sockname")  # type: ignore[attr-defined]
    return f"{host}:{port}"


@pytest.mark.parametrize(
    ("code", "body", "fields", "remark"),
    [
        (
            RequestCode.HEART_BEAT, bytes((1 << 20) + 1), {},
            "the body has 1048577 bytes: request 34 takes 1048576 at most",
        ),
        (
            RequestCode.UPDATE_BROKER_CONFIG, bytes(40_000), {},
            "the body has 40000 bytes: request 25 takes 32768 at most",
        ),
        (
            RequestCode.HEART_BEAT,
            encode_body({"clientID": "c", "producerDataSet": [{"groupName": str(number)} for number in range(1001)]}),
            {},
            "1001 groups, and 0 of heartbeats before: a connection has 1000 at most",
        ),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            encode_body({"topicConfigList": [{"topicName": f"t{number}"} for number in range(1001)]}),
            {},
            "1001 of one request: 1000 at most",
        ),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            b"",
            {
                "topic": "t", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 8193, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
            },
            "topic t: expected 8192 queues at most",
        ),
        (
            RequestCode.BATCH_ACK_MESSAGE,
            encode_body({"acks": [{"t": "t", "c": "g", "q": 0, "so": 0, "r": "0", "b": "/" * 44}]}),
            {},
            "bitSet of the body is '264 messages'",
        ),
    ],
)  # fmt: skip
async def test_what_is_too_large_is_refused_and_the_connection_lives(
    tmp_path: Path, code: int, body: bytes, fields: dict[str, object], remark: str
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        answer = await client.ask(code, body, **fields)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        await client.round_trip()


async def test_the_acks_of_a_large_batch_are_all_taken(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await fill(client, "t", *["a"] * 3)
        one = {"t": "t", "c": "g", "q": 0, "so": 0, "it": 1000, "rq": 0, "r": "0", "b": "Bw=="}
        acks = [one | {"pt": number} for number in range(250)]
        body = encode_body({"brokerName": "broker-a", "acks": acks})
        assert len(body) > LARGE_BODY
        assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == 0
        assert dict(served.controller._services.pop.stats.put) == {("g", "t", "ACK", "PUT_OK"): 250}
