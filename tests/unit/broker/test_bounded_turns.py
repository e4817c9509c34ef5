"""No frame has the loop for long: what others wait for is counted in CPU time of the loop's thread."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reput.remoting.command import encode_command
from tests.support.broker import LONG_MS, Served, pull_command, serving_broker, with_topic
from tests.support.loop_gaps import loop_gaps
from tests.support.worst_frames import exchange, known, of_code

#: Seconds of CPU in one turn of the loop.
_MOST_S = 0.05
_KNOWN = known()


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
async def test_no_frame_of_any_code_has_the_loop_for_long(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "t")
        await client.send_message("t")
        found = {
            f"{code} {name}": await worst_of(served, data)
            for code in served.controller._services._requests._handlers
            for name, data in of_code(code)
        }
    assert {name: seconds for name, seconds in found.items() if seconds > _MOST_S} == {}


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
    monkeypatch.setattr("reput.broker.pull_request_hold_service._CHECK_EVERY_S", 0.01)
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
