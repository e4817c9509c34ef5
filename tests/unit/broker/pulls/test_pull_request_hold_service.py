"""Pulls that wait for a message, over sockets."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reput.broker.pulls import pull_request_hold_service
from reput.formats.message import Message
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.store.dispatch.arrivals import Arrivals
from tests.support.broker import (
    LONG_MS,
    SYNCED,
    batch_command,
    fill,
    messages_of,
    pull_command,
    send_command,
    serving_broker,
    with_topic,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.held_disk import HeldDisk


def loop_ahead(ms: int) -> SimpleNamespace:
    """The loop as the service of held pulls needs it, at a later time."""
    loop = asyncio.get_running_loop()
    return SimpleNamespace(time=lambda: loop.time() + ms / 1000, call_later=loop.call_later, call_soon=loop.call_soon)


@pytest.mark.parametrize("first", [0, 1])
async def test_a_held_pull_is_answered_when_a_message_comes(tmp_path: Path, first: int) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, other = await served.client(), await served.client()
        await with_topic(client, "orders", 2)
        if first:
            await fill(client, "orders", "a")
        held = client.begin_all([pull_command("orders", first, hold_ms=LONG_MS) for _ in range(2)])
        elsewhere = client.begin_all([pull_command("orders", 0, queueId=1, hold_ms=LONG_MS)])[0]
        await client.round_trip()
        assert not any(one.done() for one in held)
        await other.send_message("orders", b"new")
        for one in held:
            assert [message.body for message in messages_of(await one)] == [b"new"]
        await client.round_trip()
        assert not elsewhere.done()


async def test_a_held_pull_sees_no_message_before_it_is_synced(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED) as served:
        client = await served.client()
        await fill(client, "orders", "a")  # the log has its file
        (held,) = client.begin_all([pull_command("orders", 1, hold_ms=LONG_MS)])
        with disk.held():
            (sent,) = client.begin_all([send_command("orders", b"new")])
            await asyncio.to_thread(disk.wait)
            await client.round_trip()
            assert not held.done()
            assert not sent.done()
        assert [message.body for message in messages_of(await held)] == [b"new"]
        assert (await sent).code == 0


async def test_messages_with_other_tags_leave_a_pull_waiting_and_move_its_next_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_request_hold_service, "_CHECK_EVERY_S", 0.01)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        (held,) = client.begin_all([pull_command("orders", tags="wanted", hold_ms=2 * LONG_MS)])
        (short,) = client.begin_all([pull_command("orders", tags="wanted", hold_ms=LONG_MS)])
        await fill(client, "orders", "a", "b")
        await client.round_trip()
        assert not held.done()
        assert not short.done()
        monkeypatch.setattr(served.controller._services.held_pulls, "_loop", loop_ahead(LONG_MS))
        answer = await short
        assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert answer.ext_fields is not None
        assert answer.ext_fields["nextBeginOffset"] == "2"
        await client.send_message("orders", b"2", properties={"TAGS": "wanted"})
        assert [message.body for message in messages_of(await held)] == [b"2"]


async def test_a_message_with_another_tag_costs_a_held_pull_no_look_into_the_store(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        held, equal_hash = client.begin_all(
            [pull_command("orders", tags=tags, hold_ms=LONG_MS) for tags in ("wanted", "other || Aa")]
        )
        await client.round_trip()
        stats = served.controller._state.store._stats
        before = stats.get_miss_times
        await client.send_message("orders", properties={"TAGS": "a"})
        await client.round_trip()
        assert (stats.get_miss_times, held.done(), equal_hash.done()) == (before, False, False)
        await client.send_message("orders", properties={"TAGS": "BB"})
        assert (await equal_hash).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (stats.get_miss_times, held.done()) == (before + 1, False)


async def test_a_message_costs_the_same_however_many_pulls_wait_for_other_queues(tmp_path: Path) -> None:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    costs = []
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 500)
        held_pulls = served.controller._services.held_pulls
        arrivals = Arrivals(1, [("orders", 0)], [1], np.zeros(1, np.int32), np.zeros(1, np.int32))
        for queues in (range(1, 2), range(2, 500)):
            held = client.begin_all([pull_command("orders", queueId=n, hold_ms=LONG_MS) for n in queues])
            await client.round_trip()
            calls = 0
            gc.disable()  # who is told of a collection is called, too
            sys.setprofile(count)
            held_pulls.messages_arrived(arrivals)
            sys.setprofile(None)
            gc.enable()
            costs.append(calls)
            assert not any(one.done() for one in held)
    assert costs[0] == costs[1]


async def test_a_wanted_message_wakes_a_pull_however_many_others_come_before_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        (held,) = client.begin_all([pull_command("orders", tags="wanted", hold_ms=LONG_MS)])
        await client.round_trip()
        wanted = send_command("orders", properties={"TAGS": "wanted"})
        await asyncio.gather(*client.begin_all([batch_command("orders", [b"x"] * 900), wanted]))
        answer = await held
        assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (20, "800")


@pytest.mark.parametrize("keys", [{}, {"longPollingEnable": "false", "shortPollingTimeMills": 20}])
async def test_a_held_pull_is_answered_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    monkeypatch.setattr(pull_request_hold_service, "_CHECK_EVERY_S", 0.01)

    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await fill(client, "orders", "a")
        patient = client.begin_all([pull_command("orders", 1, hold_ms=LONG_MS)])[0]
        answer = await client.pull("orders", 1, hold_ms=LONG_MS if keys else 20)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert answer.ext_fields is not None
        assert (answer.ext_fields["nextBeginOffset"], answer.ext_fields["maxOffset"]) == ("1", "1")
        if keys:
            assert (await patient).code == ResponseCode.PULL_NOT_FOUND
        else:
            assert not patient.done()


async def test_pulls_of_a_closed_connection_are_forgotten(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        gone, stays = await served.client(), await served.client()
        await with_topic(stays, "orders")
        gone.begin_all([pull_command("orders", hold_ms=LONG_MS) for _ in range(3)])
        await gone.round_trip()
        (held,) = stays.begin_all([pull_command("orders", hold_ms=LONG_MS)])
        await stays.round_trip()
        pulls = served.controller._services.held_pulls
        assert (pulls._count, len(pulls._held_of)) == (4, 2)
        gone._answers.clear()
        await gone.leave()
        while pulls._count > 1:
            await stays.round_trip()
        await stays.send_message("orders", b"new")
        assert [message.body for message in messages_of(await held)] == [b"new"]
        assert (pulls._count, pulls._held_of, pulls._held) == (0, {}, {})


@pytest.mark.parametrize(("most", "of_connection", "kept"), [(3, 9, 3), (9, 2, 4)])
async def test_more_pulls_than_the_limits_allow_are_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, of_connection: int, kept: int
) -> None:
    monkeypatch.setattr(pull_request_hold_service, "_MOST_HELD", most)
    monkeypatch.setattr(pull_request_hold_service, "_MOST_HELD_OF_CONNECTION", of_connection)

    async with serving_broker(tmp_path / "store") as served:
        clients = [await served.client(), await served.client()]
        await with_topic(clients[0], "orders")
        begun: list[asyncio.Future[RemotingCommand]] = []
        for client in clients:
            begun += client.begin_all([pull_command("orders", hold_ms=LONG_MS) for _ in range(4)])
            await client.round_trip()
        assert len([one for one in begun if not one.done()]) == kept
        assert all(one.result().code == ResponseCode.PULL_NOT_FOUND for one in begun if one.done())


async def test_a_held_pull_of_a_topic_that_is_deleted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_request_hold_service, "_CHECK_EVERY_S", 0.01)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        (held,) = client.begin_all([pull_command("orders", hold_ms=LONG_MS)])
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")).code == 0
        monkeypatch.setattr(served.controller._services.held_pulls, "_loop", loop_ahead(LONG_MS))
        assert (await held).code == ResponseCode.TOPIC_NOT_EXIST


async def test_held_pulls_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        (held,) = client.begin_all([pull_command("orders", hold_ms=LONG_MS)])
        await client.round_trip()
        await served.stop()
        assert (await held).code == ResponseCode.PULL_NOT_FOUND


async def test_a_held_pull_that_fails_is_answered_and_so_are_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"max_message_size": 20 << 20, "mapped_file_size_commit_log": 32 << 20}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        failing, held = client.begin_all([pull_command("orders", queueId=n, hold_ms=LONG_MS) for n in range(2)])
        await client.round_trip()
        large = Message("orders", bytes(17 << 20))  # larger than an answer
        await asyncio.to_thread(served.controller._state.store.put_message, large)
        await client.send_message("orders", b"new", queueId=1)
        assert (await failing).code == ResponseCode.SYSTEM_ERROR
        assert [message.body for message in messages_of(await held)] == [b"new"]
        await client.round_trip()
        assert served.controller._state.send_path.writer.dispatch_failure is None
    assert "group=g topic=orders queue=0 offset=0" in caplog.text
