"""Messages of the broker's own: where they go, and when they are safe."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Coroutine
from pathlib import Path

import pytest

from reput import MessageStore
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.errors import (
    MessageIllegalError,
    ReputError,
    StoreError,
    StoreFullError,
    StorePoisonedError,
    WouldWaitError,
)
from reput.formats.hosts import encode_host
from reput.remoting.command import RemotingCommand
from reput.store.puts.put_rows import PutRow, PutRowResult
from tests.support.broker import SYNCED, controller_of, messages_of, serving_broker, with_topic
from tests.support.faulty_files import FaultyFiles, fail_next, no_objection
from tests.support.held_disk import HeldDisk

#: A log file that a few messages fill.
_TINY = {"mapped_file_size_commit_log": 1 << 16}


def _message(body: bytes, topic: str = "orders") -> MessageExtBrokerInner:
    return MessageExtBrokerInner(topic, 0, body, {"KEYS": "k"}, 0, 0, 1_700_000_000_000, encode_host("127.0.0.1:1"))


class Told(list[tuple[int, bool]]):
    """Which rows were put."""

    def __call__(self, number: int, is_put: bool) -> None:
        self.append((number, is_put))


@pytest.mark.parametrize("keys", [{}, SYNCED], ids=["async", "sync"])
async def test_a_message_is_there_for_consumers_who_wait(tmp_path: Path, keys: dict[str, object]) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        client, appends = await served.client(), served.controller._state.appends
        await with_topic(client, "orders")
        pulled = asyncio.create_task(client.pull("orders", hold_ms=60_000))
        await client.round_trip()
        result = await appends.put(_message(b"own"))
        assert result.queue_offset == 0
        (message,) = messages_of(await pulled)
        assert (message.body, message.keys) == (b"own", ("k",))


async def test_a_message_is_safe_when_its_put_returns(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED) as served:
        client, appends = await served.client(), served.controller._state.appends
        await with_topic(client, "orders")
        with disk.held():
            put = asyncio.create_task(appends.put(_message(b"own")))
            await asyncio.to_thread(disk.wait)
            await client.round_trip()
            assert not put.done()
        assert (await put).queue_offset == 0


async def test_messages_go_on_in_the_next_log_file(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **_TINY) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        results = [await state.appends.put(_message(bytes(5000))) for _ in range(40)]
        assert [result.queue_offset for result in results] == list(range(40))
        assert state.store.max_commit_log_offset > 3 * _TINY["mapped_file_size_commit_log"]


async def test_a_message_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        with pytest.raises(MessageIllegalError, match="topic"):
            await served.controller._state.appends.put(_message(b"own", "t" * 300))


async def test_a_sync_that_fails_is_an_error(tmp_path: Path) -> None:
    disk = HeldDisk()

    controller = controller_of(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED)
    await controller.start()
    await controller._state.appends.put(_message(b"before"))  # makes the log's file
    disk.fail()
    with pytest.raises(StorePoisonedError):
        await controller._state.appends.put(_message(b"own"))
    with pytest.raises(StoreError):
        await controller.stop()


async def test_a_broker_whose_last_dispatch_fails_closes_its_store_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = controller_of(tmp_path / "store", **SYNCED)
    await controller.start()
    state = controller._state
    await state.appends.put(_message(b"before"))
    begun, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def dispatch(most_bytes: int) -> None:
        if threading.current_thread() is threading.main_thread():
            raise WouldWaitError("a file is to be made")
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(60)
        raise StoreError("the disk is gone")

    monkeypatch.setattr(state.dispatch._writer, "dispatch", dispatch)
    await state.appends.put(_message(b"own"))
    await begun.wait()
    stop = state.dispatch.stop

    async def stopped() -> None:
        loop.call_soon(goes_on.set)  # once it waits
        await stop()

    monkeypatch.setattr(state.dispatch, "stop", stopped)
    await controller.stop()
    with MessageStore.open(tmp_path / "store", **SYNCED) as store:
        assert not store.recovery.was_killed
        assert [message.body for message in store.get_message("orders", 0, 0).messages()] == [b"before", b"own"]


async def test_rows_of_a_request_are_put_and_answered_at_once_where_nothing_is_waited_for(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **_TINY) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        await state.appends.put(_message(b"before"))  # makes the log's file
        answer = RemotingCommand(0)
        pulled = asyncio.create_task(client.pull("orders", 1, hold_ms=60_000))
        await client.round_trip()
        told, rows = Told(), [_message(b"a").row(), _message(b"b").row()]
        assert state.appends.answer_rows(rows, answer, told) is answer
        assert told == [(0, True), (1, True)]
        assert [message.body for message in messages_of(await pulled)] == [b"a", b"b"]


async def test_rows_of_a_request_wait_for_room_in_their_order(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **_TINY) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        answer, waited = RemotingCommand(0), 0
        for number in range(20):
            rows = [_message(bytes([number, part]) + bytes(2000 + 97 * number)).row() for part in range(3)]
            told = Told()
            given = state.appends.answer_rows(rows, answer, told)
            if isinstance(given, Coroutine):
                waited += 1
                given = await given
            assert given is answer
            assert told == [(0, True), (1, True), (2, True)]
        assert waited
        found = messages_of(await client.pull("orders", maxMsgNums=100))
        while len(found) < 60:
            found += messages_of(await client.pull("orders", len(found), maxMsgNums=100))
        assert [tuple(one.body[:2]) for one in found] == [(i, part) for i in range(20) for part in range(3)]


async def test_rows_behind_one_that_cannot_be_put_are_not_put(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        rows = [_message(b"a").row(), _message(b"b", "t" * 300).row(), _message(b"c").row()]
        await state.appends.put(_message(b"before"))
        told = Told()
        with pytest.raises(MessageIllegalError):
            state.appends.answer_rows(rows, RemotingCommand(0), told)
        assert told == [(0, True), (1, False)]
        assert [one.body for one in messages_of(await client.pull("orders"))] == [b"before", b"a"]


async def test_rows_of_a_request_are_safe_before_their_answer(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        before = state.store.max_commit_log_offset
        rows: list[PutRow] = [_message(b"a").row(), _message(b"b").row()]
        told = Told()
        given = state.appends.answer_rows(rows, RemotingCommand(0), told)
        assert isinstance(given, Coroutine)
        assert state.store.max_commit_log_offset == before  # the request may still be refused
        with disk.held():
            answering = asyncio.create_task(given)
            await asyncio.to_thread(disk.wait)
            await client.round_trip()
            assert not answering.done()
        assert (await answering).code == 0
        assert told == [(0, True), (1, True)]
        assert [one.body for one in messages_of(await client.pull("orders"))] == [b"a", b"b"]


async def test_many_rows_are_put_in_their_order_beyond_the_end_of_a_log_file(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **_TINY) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        for number in range(20):
            rows = [_message(bytes([number, part]) + bytes(5000 >> part)).row() for part in range(8)]
            results = await state.appends.append_rows(rows)
            assert [one.queue_offset for one in _places(results)] == list(range(8 * number, 8 * number + 8))
        assert state.store.max_commit_log_offset > 2 * _TINY["mapped_file_size_commit_log"]
        found = messages_of(await client.pull("orders", hold_ms=60_000))
        while len(found) < 160:
            found += messages_of(await client.pull("orders", len(found), hold_ms=60_000))
        assert [tuple(one.body[:2]) for one in found] == [(i, part) for i in range(20) for part in range(8)]


async def test_of_many_rows_each_that_cannot_be_put_has_its_error(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **_TINY) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        for size in (1, 30_000, 60_000):  # all together, or none of them beside another one, in one log file
            rows = [_message(bytes(size), topic).row() for topic in ("orders", "t" * 300, "orders", "orders")]
            results = await state.appends.append_rows(rows)
            assert isinstance(results.pop(1), MessageIllegalError)
            assert len(_places(results)) == 3
        rows = [_message(b"small").row(), _message(bytes(_TINY["mapped_file_size_commit_log"])).row()]
        results = await state.appends.append_rows(rows)
        assert isinstance(results.pop(), MessageIllegalError)
        assert _places(results)[0].queue_offset == 9


async def test_no_row_is_put_after_one_for_which_no_room_can_be_made(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with serving_broker(tmp_path / "store", files=files, **_TINY) as served:
        state = served.controller._state
        await state.appends.put(_message(bytes(10_000)))
        end = state.store.max_commit_log_offset
        files.judge = fail_next("allocate", errno.ENOSPC, part="/commitlog/", times=99)
        sizes = (10_000, 60_000, 1, 1)
        put, *others = await state.appends.append_rows([_message(bytes(size)).row() for size in sizes])
        assert [type(result) for result in others] == [StoreFullError] * 3
        assert state.store.max_commit_log_offset == _places([put])[0].end_offset > end
        files.judge = no_objection


async def test_rows_that_wait_for_a_thread_which_reserves_room_do_not_stop_the_loop(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **_TINY) as served:
        client, state = await served.client(), served.controller._state
        await state.appends.put(_message(b"before"))
        file = state.store._log.queue.mapped_files[-1]
        file._reserving.acquire()
        putting = asyncio.create_task(state.appends.append_rows([_message(b"a").row(), _message(b"b").row()]))
        await client.round_trip()
        assert not putting.done()
        file._reserving.release()
        assert [one.queue_offset for one in _places(await putting)] == [1, 2]


def _places(results: list[PutRowResult | ReputError]) -> list[PutRowResult]:
    """Results without an error."""
    places = []
    for result in results:
        assert isinstance(result, PutRowResult), result
        places.append(result)
    return places
