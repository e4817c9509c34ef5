"""Answers under SYNC_FLUSH, on a disk that is slow or fails."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from reput import MessageStore
from reput.broker import services
from reput.errors import StoreError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    SYNCED,
    Served,
    batch_command,
    controller_of,
    messages_of,
    pull_command,
    send_command,
    serving_broker,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.held_disk import HeldDisk


async def test_a_send_is_answered_after_the_sync_that_covers_it(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED) as served:
        client, other = await served.client(), await served.client()
        assert (await client.send_message("orders", b"0")).code == 0
        with disk.held():
            begun = client.begin_all([send_command("orders", b"%d" % number) for number in range(1, 4)])
            begun += other.begin_all([batch_command("orders", [b"4", b"5"])])
            await asyncio.to_thread(disk.wait)
            client.begin_all([send_command("orders", b"6", one_way=True)])
            for one in (client, other):
                await one.round_trip()
            assert not any(one.done() for one in begun)
            assert (await client.pull("orders", 1)).code == ResponseCode.PULL_NOT_FOUND
        answers = await asyncio.gather(*begun)
        assert [answer.code for answer in answers] == [0] * 4
        pulled = messages_of(await client.pull("orders", hold_ms=60_000))
        while len(pulled) < 7:
            pulled += messages_of(await client.pull("orders", len(pulled), hold_ms=60_000))
        assert {message.body for message in pulled} == {b"%d" % number for number in range(7)}


async def test_a_message_that_does_not_wait_is_answered_before_the_sync(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED) as served:
        client = await served.client()
        await client.send_message("orders", b"0")
        with disk.held():
            answer = await client.send_message("orders", b"1", properties={"WAIT": "false"})
            assert answer.code == 0
            assert (await client.pull("orders", 1)).code == ResponseCode.PULL_NOT_FOUND
        (message,) = messages_of(await client.pull("orders", 1, hold_ms=60_000))
        assert message.body == b"1"


async def test_a_slow_sync_is_answered_flush_disk_timeout_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = HeldDisk()

    keys = SYNCED | {"syncFlushTimeout": 20}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
        client = await served.client()
        await client.send_message("orders", b"0")
        await client.pull("orders", hold_ms=60_000)  # on a busy machine that sync is late, too
        with disk.held():
            answer = await client.send_message("orders", b"1")
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert "a sync is late sends=1 timeout_ms=20" in caplog.messages
            assert answer.ext_fields is not None
            assert answer.ext_fields["queueOffset"] == "1"
        # A second answer would have an opaque that nobody waits for, which ends the client's reading.
        (message,) = messages_of(await client.pull("orders", 1, hold_ms=60_000))
        assert message.body == b"1"


async def test_after_a_failed_sync_nothing_is_acknowledged_and_nothing_more_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = HeldDisk()

    controller = controller_of(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED)
    await controller.start()
    served = Served(controller)
    client = await served.client()
    await client.send_message("orders", b"0")
    disk.fail()
    answer = await client.send_message("orders", b"1")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [one.levelname for one in caplog.records if one.name == "reput.broker"] == ["ERROR"]
    assert answer.remark is not None
    assert "may be lost: close the store" in answer.remark
    assert answer.ext_fields is None
    answer = await client.send_message("orders", b"2")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark is not None
    assert answer.remark.startswith("service not available now. ")
    (message,) = messages_of(await client.pull("orders"))
    assert message.body == b"0"
    assert (await client.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)).code == 0
    await served.leave_all()
    with pytest.raises(StoreError):
        await controller.stop()


async def test_answers_that_wait_are_sent_before_a_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HeldDisk()
    monkeypatch.setattr(services, "_DRAIN_S", 60)

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED) as served:
        client = await served.client()
        await client.send_message("orders", b"0")
        with disk.held():
            (begun,) = client.begin_all([send_command("orders", b"1")])
            await asyncio.to_thread(disk.wait)
            stopping = asyncio.create_task(served.stop())
            (held,) = client.begin_all([pull_command("orders", 2, hold_ms=60_000)])
            assert (await client.ask(RequestCode.GET_MIN_OFFSET, topic="orders", queueId=0)).code == 0
        assert (await begun).code == 0
        await stopping
        assert held.done()


# -- under pressure

BUSY = "[OVERLOAD]system busy, start flow control for a while"


def codes(begun: Sequence[asyncio.Future[RemotingCommand]]) -> Counter[int]:
    """How often each code was answered."""
    return Counter(one.result().code for one in begun if one.done())


async def test_sends_beyond_the_bound_are_refused_as_busy_and_memory_stays_flat(tmp_path: Path) -> None:
    disk, bound, at_once = HeldDisk(), 400, 300

    tracemalloc.start()
    try:
        keys = SYNCED | {"sendThreadPoolQueueCapacity": bound, "syncFlushTimeout": 60_000}
        async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
            client = await served.client()
            await client.send_message("orders", b"first")
            with disk.held():
                held = client.begin_all([send_command("orders", b"held") for _ in range(bound // 2)])
                await asyncio.to_thread(disk.wait)
                await client.round_trip()
                assert not codes(held)
                sizes = []
                for turn in range(10):
                    begun = client.begin_all(
                        [send_command("orders", b"refused", one_way=number % 2 == 0) for number in range(at_once)]
                    )
                    answers = await asyncio.gather(*begun[1::2])
                    assert {(one.code, one.remark) for one in answers} == {(ResponseCode.SYSTEM_BUSY, BUSY)}
                    if turn in (2, 9):
                        sizes.append(traced_bytes())
                assert sizes[1] < sizes[0] + 50_000
                assert not codes(held)
            assert {answer.code for answer in await asyncio.gather(*held)} == {0}
            assert (await client.send_message("orders", b"last")).code == 0
            assert client.requests.empty()
            await served.stop()
    finally:
        tracemalloc.stop()
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        assert store.max_offset("orders", 0) == bound // 2 + 2


def traced_bytes() -> int:
    """Memory that code of reput's has allocated, and not given back."""
    gc.collect()
    traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/reput/*")])
    return sum(one.size for one in traces.statistics("filename"))


async def test_a_client_that_fills_its_share_leaves_room_for_others(tmp_path: Path) -> None:
    disk = HeldDisk()

    keys = SYNCED | {"sendThreadPoolQueueCapacity": 12}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
        greedy, modest = await served.client(), await served.client()
        await greedy.send_message("orders", b"0")
        with disk.held():
            begun = []
            for _ in range(20):
                begun += greedy.begin_all([send_command("orders")])
                await greedy.round_trip()
            assert codes(begun) == {ResponseCode.SYSTEM_BUSY: 14}
            others = modest.begin_all([send_command("orders")])
            await modest.round_trip()
            assert not codes(others)
        assert (await others[0]).code == 0
        await asyncio.gather(*begun)
        assert codes(begun) == {ResponseCode.SYSTEM_BUSY: 14, 0: 6}


async def test_only_a_request_that_is_refused_is_logged_as_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = HeldDisk()

    def refusals() -> list[str]:
        return [str(record.msg) for record in caplog.records if "refused as busy" in str(record.msg)]

    keys = SYNCED | {"sendThreadPoolQueueCapacity": 2}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
        client = await served.client()
        await client.send_message("orders", b"0")
        with disk.held():
            held = client.begin_all([send_command("orders", b"1")])
            await client.round_trip()
            await client.heartbeat("c")
            assert refusals() == []
            assert (await client.send_message("orders", b"2")).code == ResponseCode.SYSTEM_BUSY
            assert len(refusals()) == 1
            assert "of=sends waiting=1" in refusals()[0]
        assert (await held[0]).code == 0


async def test_a_disk_that_stands_still_is_given_no_more_after_flush_disk_timeout(tmp_path: Path) -> None:
    disk = HeldDisk()

    keys = SYNCED | {"sendThreadPoolQueueCapacity": 2, "syncFlushTimeout": 20}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
        client = await served.client()
        await client.send_message("orders", b"0")
        await client.pull("orders", hold_ms=60_000)  # on a busy machine that sync is late, too
        with disk.held():
            assert (await client.send_message("orders", b"1")).code == ResponseCode.FLUSH_DISK_TIMEOUT
            answer = await client.send_message("orders", b"2")
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, BUSY)
        (message,) = messages_of(await client.pull("orders", 1, hold_ms=60_000))
        assert message.body == b"1"
        assert (await client.send_message("orders", b"3")).code in (0, ResponseCode.FLUSH_DISK_TIMEOUT)
