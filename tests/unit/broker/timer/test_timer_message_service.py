"""Messages with a time in a broker: never early, never lost, and none that was recalled."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from reput import Message, MessageStore
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.clock import BrokerClock
from reput.broker.timer import open_slot, timer_enqueue, timer_message_service
from reput.broker.timer.open_slot import OpenSlot
from reput.broker.timer.timer_enqueue import Enqueued, TimerEnqueue
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.errors import ReputError, StoreError, StoreFullError
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import TimerMetrics, decode_metadata
from reput.formats.properties import OF_BROKERS
from reput.formats.timer_checkpoint import decode_timer_checkpoint
from reput.formats.timer_log import TIMER_TOPIC, UNIT_SIZE, Magic
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.recall_handle import RecallHandle, encode_recall_handle
from reput.store.puts.put_rows import PutRow, PutRowResult
from reput.store.timer.timer_message_store import TimerEntries, TimerMessageStore
from tests.support.broker import (
    LONG_MS,
    SMALL,
    SYNCED,
    Client,
    Served,
    messages_of,
    send_command,
    serving_broker,
    with_topic,
)

#: Slots of a tenth of a second.
FAST = {"timer_precision_ms": 100, "timer_flush_interval_ms": 50, "recall_message_enable": True}


def now_ms() -> int:
    return int(time.time() * 1000)


async def send_timed(client: Client, body: bytes = b"x", **properties: object) -> RemotingCommand:
    texts = {name.upper(): str(value) for name, value in properties.items()}
    return await client.send_message("orders", body, properties=texts)


async def received(client: Client, count: int, topic: str = "orders", offset: int = 0) -> list[MessageExt]:
    """So many messages of a topic; waits until they are there."""
    found: list[MessageExt] = []
    while len(found) < count:
        found += messages_of(await client.pull(topic, offset + len(found), hold_ms=LONG_MS))
    return found


def waiting(served: Served) -> list[MessageExt]:
    """All messages that have waited, or do."""
    found: list[MessageExt] = []
    while some := served.controller._state.store.get_message(TIMER_TOPIC, 0, len(found)).messages():
        found += some
    return found


@pytest.mark.parametrize("later_ms", [0, 8_000, 100_000])
async def test_the_slot_of_a_message_follows_from_its_record_whenever_it_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_ms: int
) -> None:
    """So a slave that becomes master, and gives it a slot then, knows whether its master has put it back."""
    window_s, path = 20, tmp_path / "store"
    out_ms = (now_ms() + 25_000) // 1000 * 1000
    with MessageStore.open(path, **SMALL) as store:
        properties = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "orders", "REAL_QID": "0"}
        store.put_message(Message(TIMER_TOPIC, b"x", properties=properties))
        store.wait_dispatched()
        stored_ms = store.get_message(TIMER_TOPIC, 0, 0, 1).messages()[0].store_timestamp
    slot_ms = stored_ms // 1000 * 1000 + window_s // 2 * 1000  # beyond the window, but not by a third of it
    given: asyncio.Queue[TimerEntries] = asyncio.Queue()
    loop, enqueue = asyncio.get_running_loop(), TimerMessageStore.enqueue

    def seen(timers: TimerMessageStore, entries: TimerEntries, write_time: int) -> None:
        loop.call_soon_threadsafe(given.put_nowait, entries)
        enqueue(timers, entries, write_time)

    monkeypatch.setattr(TimerMessageStore, "enqueue", seen)
    monkeypatch.setattr(BrokerClock, "now_ms", lambda state: now_ms() + later_ms)
    async with serving_broker(path, timer_roll_window_slot=window_s):
        entries = await given.get()
    assert (entries.times.tolist(), entries.magics.tolist()) == ([slot_ms], [Magic.DEFAULT | Magic.ROLL])


async def test_messages_get_their_slots_in_the_loop_but_for_those_that_need_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread for each pass would take a tenth of what a popped message takes."""
    in_loop, by_thread, enqueue = list[int](), list[int](), TimerMessageStore.enqueue

    def seen(timers: TimerMessageStore, entries: TimerEntries, write_time: int) -> None:
        enqueue(timers, entries, write_time)
        (in_loop if threading.current_thread() is threading.main_thread() else by_thread).append(len(entries.times))

    monkeypatch.setattr(TimerMessageStore, "enqueue", seen)
    async with serving_broker(tmp_path / "store", **FAST, mapped_file_size_timer_log=10 * UNIT_SIZE) as served:
        client = await served.client()
        await with_topic(client, "orders")
        timers = served.controller._state.timers
        assert timers is not None
        for number in range(40):
            assert (await send_timed(client, timer_delay_sec=1000)).code == 0
            while timers.queue_offset <= number:
                await asyncio.sleep(0)
        assert timers.total == 40
    assert sum(in_loop) + sum(by_thread) == 40
    assert len(by_thread) == len(list((tmp_path / "store/timerlog").iterdir()))


async def test_between_two_passes_over_messages_without_slots_the_loop_does_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start, or when a slave takes over, these may be millions."""
    path, turn_of_pass, turns, enqueue = tmp_path / "store", list[int](), [0], TimerMessageStore.enqueue
    properties = {"TIMER_OUT_MS": str(now_ms() + 1_000_000), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    with MessageStore.open(path, **SMALL) as store:
        store.put_messages([Message(TIMER_TOPIC, b"x", properties=properties) for _ in range(1500)])

    def seen(timers: TimerMessageStore, entries: TimerEntries, write_time: int) -> None:
        turn_of_pass.append(turns[0])
        enqueue(timers, entries, write_time)

    def turn() -> None:
        turns[0] += 1
        asyncio.get_running_loop().call_soon(turn)

    monkeypatch.setattr(TimerMessageStore, "enqueue", seen)
    turn()
    async with serving_broker(path) as served:
        timers = served.controller._state.timers
        assert timers is not None
        while timers.queue_offset < 1500:
            await asyncio.sleep(0)
        assert timers.total == 1500
    in_loop = turn_of_pass[2:]  # the first one needed a file
    assert len(in_loop) > 3
    assert len(set(in_loop)) == len(in_loop)


@pytest.mark.parametrize("keys", [{}, SYNCED], ids=["async", "sync"])
async def test_messages_come_at_their_times_as_they_were_sent(tmp_path: Path, keys: dict[str, Any]) -> None:
    async with serving_broker(tmp_path / "store", **FAST | keys) as served:
        client = await served.client()
        await with_topic(client, "orders", 3)
        began = now_ms()
        times = {b"by time": began + 850, b"by ms": began + 130, b"by s": began + 1000}
        command = await client.send_message(
            "orders", b"by time", queueId=2, flag=7,
            properties={"TIMER_DELIVER_MS": str(began + 850), "KEYS": "k", "TAGS": "t", "UNIQ_KEY": "u"},
        )  # fmt: skip
        assert (command.code, (command.ext_fields or {})["queueId"]) == (0, "2")
        assert (await send_timed(client, b"by ms", timer_delay_ms=130)).code == 0
        assert (await send_timed(client, b"by s", timer_delay_sec=1)).code == 0
        (one,) = messages_of(await client.pull("orders", queueId=2, hold_ms=LONG_MS))
        found = [one, *await received(client, 2)]
        assert [message.body for message in found] == [b"by time", b"by ms", b"by s"]
        for message in found:
            assert message.store_timestamp >= times[message.body]
        assert (one.flag, one.tags, one.keys, one.unique_key) == (7, "t", ("k",), "u")
        sent = waiting(served)[0]
        out_ms = (began + 849) // 100 * 100
        assert sent.properties.items() >= {"TIMER_OUT_MS": str(out_ms), "REAL_QID": "2"}.items()
        assert one.properties.items() >= sent.properties.items()
        assert one.properties.keys() - sent.properties.keys() == {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
        assert one.born_timestamp == sent.born_timestamp


async def test_a_slot_that_is_due_and_not_read_from_the_disk_yet_is_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, opens, open_slot_of = asyncio.Event(), asyncio.Event(), TimerMessageService._open

    async def held(service: TimerMessageService, time_ms: int) -> OpenSlot:
        opens.set()
        await may_open.wait()
        return await open_slot_of(service, time_ms)

    monkeypatch.setattr(TimerMessageService, "_open", held)

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, timers = await served.client(), served.controller._services.timers
        assert timers is not None
        await with_topic(client, "orders")
        assert (await send_timed(client, b"due", timer_delay_ms=300)).code == 0
        await opens.wait()
        due_ms = int(waiting(served)[0].properties["TIMER_OUT_MS"])
        assert due_ms == timers.delivered_until()  # a check point is not judged before acks that are due come
        may_open.set()
        await received(client, 1)
        while timers.delivered_until() <= due_ms + 100:
            await asyncio.sleep(0)


async def test_messages_that_were_taken_from_a_slot_and_not_put_yet_are_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_put, puts, put = asyncio.Event(), asyncio.Event(), TimerMessageService._put

    async def held(service: TimerMessageService, *given: Any) -> int | None:
        puts.set()
        await may_put.wait()
        return await put(service, *given)

    monkeypatch.setattr(TimerMessageService, "_put", held)

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, timers = await served.client(), served.controller._services.timers
        assert timers is not None
        await with_topic(client, "orders")
        due_ms = now_ms() + 2000
        assert (await send_timed(client, b"due", timer_deliver_ms=due_ms)).code == 0
        await puts.wait()
        assert timers.delivered_until() == due_ms
        may_put.set()
        await received(client, 1)


async def test_messages_of_the_next_slot_are_not_delivered_while_a_slot_is_made_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_safe, safe = asyncio.Event(), Appends.safe

    async def held(appends: Appends, end_offset: int, **more: Any) -> None:
        await are_safe.wait()
        await safe(appends, end_offset, **more)

    monkeypatch.setattr(Appends, "safe", held)

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, state = await served.client(), served.controller._state
        timers = served.controller._services.timers
        assert timers is not None
        await with_topic(client, "orders")
        assert (await send_timed(client, b"due", timer_delay_ms=2000)).code == 0
        await received(client, 1)
        state.clock.put_forward(5000)
        slot_ends_ms = int(waiting(served)[0].properties["TIMER_OUT_MS"]) + 100
        assert timers.delivered_until() == slot_ends_ms
        are_safe.set()
        while timers.delivered_until() == slot_ends_ms:
            await asyncio.sleep(0)


async def test_a_slot_waits_for_messages_that_were_put_before_it_and_are_not_dispatched_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_ms, is_held, may_enqueue = [0], [False], asyncio.Event()
    turn, enqueue, pass_ = TimerMessageService._turn, TimerMessageService._enqueue, LoopDispatch._pass

    async def noted(service: TimerMessageService) -> int:
        began = now_ms()
        due_ms = await turn(service)
        begun_ms[0] = began
        return due_ms

    async def held_enqueue(service: TimerMessageService, end: int) -> None:
        await may_enqueue.wait()
        await enqueue(service, end)

    def held_pass(dispatch: LoopDispatch) -> None:
        if is_held[0]:
            dispatch._next = None
        else:
            pass_(dispatch)

    monkeypatch.setattr(TimerMessageService, "_turn", noted)
    monkeypatch.setattr(TimerMessageService, "_enqueue", held_enqueue)
    monkeypatch.setattr(LoopDispatch, "_pass", held_pass)
    may_enqueue.set()

    began_ms = now_ms()
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, state = await served.client(), served.controller._state
        timers = served.controller._services.timers
        assert timers is not None
        await with_topic(client, "orders")
        later_ms = now_ms() + 4000
        assert (await send_timed(client, b"later", timer_deliver_ms=later_ms)).code == 0
        while state.timers is None or state.timers.queue_offset < 1:
            await asyncio.sleep(0.001)
        is_held[0] = True
        sooner_ms = now_ms() + 1000
        assert (await send_timed(client, b"sooner", timer_deliver_ms=sooner_ms)).code == 0
        while begun_ms[0] <= later_ms:  # a turn has begun after both were due, and is over
            assert timers.delivered_until() < sooner_ms
            await asyncio.sleep(0.001)
        may_enqueue.clear()
        is_held[0] = False
        state.dispatch.soon()
        while state.store.max_offset(TIMER_TOPIC, 0) < 2:
            await asyncio.sleep(0.001)
        assert began_ms <= timers.delivered_until() < sooner_ms
        may_enqueue.set()
        assert [one.body for one in await received(client, 2)] == [b"sooner", b"later"]


async def test_many_messages_come_in_the_order_of_their_times_and_none_is_early(tmp_path: Path) -> None:
    count = 300  # more than are put at once

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        began = now_ms() + 4000
        dues = [began + number * 7919 % count for number in range(count)]
        commands = [send_command("orders", b"%d" % due, properties={"TIMER_DELIVER_MS": str(due)}) for due in dues]
        assert [(await answer).code for answer in client.begin_all(commands)] == [0] * count
        found = await received(client, count)
        assert sorted(int(one.body) for one in found) == list(range(began, began + count))
        assert all(one.store_timestamp >= int(one.body) for one in found)
        slots = [(int(one.body) - 1) // 100 for one in found]
        assert slots == sorted(slots)


@pytest.mark.parametrize(
    ("properties", "keys", "code", "remark"),
    [
        ({"timer_delay_ms": "x"}, {}, 13, "timer message illegal, the delay time should not be bigger than the max"),
        ({"timer_delay_sec": 259_202}, {}, 13, "max delay 259200000ms; or if set del msg"),
        ({"timer_delay_ms": 0, "timer_del_uniqkey": "orders+u"}, {}, 13, "timer message illegal"),
        ({"timer_delay_sec": 5}, {"timer_wheel_enable": False}, 1, "not enabled, timerWheelEnable is false"),
    ],
)
async def test_a_message_that_cannot_wait_is_refused(
    tmp_path: Path, properties: dict[str, Any], keys: dict[str, Any], code: int, remark: str
) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await with_topic(client, "orders")
        answer = await send_timed(client, b"never", **properties)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert served.controller._state.store.max_commit_log_offset == 0


async def test_a_crowded_slot_takes_no_more(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", timer_congest_num_each_slot=3) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 60_000
        answers = []
        while len(answers) < 100:
            answers.append(await send_timed(client, b"x", timer_deliver_ms=due))
            await asyncio.sleep(0.001)
            if answers[-1].code:
                break
        assert answers[-1].code == ResponseCode.SYSTEM_ERROR
        assert "max num limit is 6" in (answers[-1].remark or "")
        assert (await send_timed(client, b"x", timer_deliver_ms=due + 5000)).code == 0


async def test_a_time_that_has_passed_is_no_reason_to_wait(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        answer = await send_timed(client, b"now", timer_deliver_ms=5)
        assert "recallHandle" not in (answer.ext_fields or {})
        (one,) = await received(client, 1)
        assert (one.body, "TIMER_OUT_MS" in one.properties) == (b"now", False)


async def test_a_far_message_is_put_back_on_its_way_and_comes_at_its_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **FAST, timer_roll_window_slot=4) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 2000
        answer = await send_timed(client, b"far", timer_deliver_ms=due)
        deleted = await send_timed(client, b"deleted", timer_deliver_ms=due)
        handle = (deleted.ext_fields or {})["recallHandle"]
        assert (await client.ask(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=handle)).code == 0
        assert answer.code == 0
        (one,) = await received(client, 1)
        assert one.body == b"far"
        assert one.store_timestamp - due >= 0
        assert int(one.properties["TIMER_ROLL_TIMES"]) >= 1
        assert (await client.pull("orders", 1)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_recalled_message_does_not_come_and_others_do(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **FAST | SYNCED) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 60_000
        for number in range(20):
            answer = await send_timed(client, b"%d" % number, timer_deliver_ms=due, uniq_key=f"u{number}")
            if number % 2:
                handle = (answer.ext_fields or {})["recallHandle"]
                recalled = await client.ask(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=handle)
                assert (recalled.code, (recalled.ext_fields or {})["msgId"]) == (0, f"u{number}")
        served.controller.state.clock.put_forward(60_000)
        found = await received(client, 10)
        assert {int(one.body) for one in found} == set(range(0, 20, 2))
        metrics = decode_metadata(TimerMetrics, (await client.ask(RequestCode.GET_TIMER_METRICS)).body)
        assert metrics.timing_count["orders"].count == 0


@pytest.mark.parametrize(
    ("fields", "keys", "code", "remark"),
    [
        ({}, {"recall_message_enable": False}, 16, "recall failed, operation is forbidden"),
        ({"topic": "none"}, {}, 17, "recall failed, the topic[none] not exist"),
        ({"recallHandle": "x"}, {}, 604, "recall handle is invalid"),
        ({"topic": "bills"}, {}, 604, "recall failed, topic not match"),
        ({"name": "other"}, {}, 604, "recall failed, broker service not available"),
        ({"time": "5"}, {}, 604, "recall failed, timestamp invalid"),
        ({}, {"broker_permission": 4, "allow_recall_when_broker_not_writeable": False}, 14, "broker service not"),
        ({}, {"timer_wheel_enable": False}, 1, "recall failed, execute error"),
    ],
)
async def test_a_recall_that_cannot_be_is_refused(
    tmp_path: Path, fields: dict[str, str], keys: dict[str, Any], code: int, remark: str
) -> None:
    async with serving_broker(tmp_path / "store", **FAST | keys) as served:
        client = await served.client()
        for topic in ("orders", "bills"):
            await with_topic(client, topic)
        name, text = fields.get("name", "broker-a"), fields.get("time", str(now_ms() + 60_000))
        handle = encode_recall_handle(RecallHandle("orders", name, text, "u"))
        asked = {"topic": "orders", "recallHandle": handle} | {
            key: value for key, value in fields.items() if key in ("topic", "recallHandle")
        }
        answer = await client.ask(RequestCode.RECALL_MESSAGE, **asked)
        assert answer.code == code
        assert remark in (answer.remark or "")


async def test_a_restart_delivers_what_waited_and_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async with serving_broker(path, **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 300
        await send_timed(client, b"first", timer_deliver_ms=due)
        await send_timed(client, b"same slot", timer_deliver_ms=due + 1)
        await send_timed(client, b"second", timer_deliver_ms=due + 900)
        await received(client, 1)
    for _ in range(2):
        async with serving_broker(path, **FAST) as served:
            client = await served.client()
            assert [one.body for one in await received(client, 3)] == [b"first", b"same slot", b"second"]
            answer = await client.ask(RequestCode.GET_TIMER_CHECK_POINT)
            assert decode_timer_checkpoint(answer.body).last_timer_queue_offset == 3
    async with serving_broker(path, **FAST) as served:
        client = await served.client()
        assert (await client.pull("orders", 3)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_killed_broker_delivers_what_waited_and_gives_no_second_unit(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"

    async with serving_broker(path, **FAST | {"timer_flush_interval_ms": 100_000}) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 60_000
        await asyncio.gather(*(send_timed(client, b"%d" % one, timer_deliver_ms=due) for one in range(40)))
        timers = served.controller._state.timers
        assert timers is not None
        while timers.queue_offset < 40:
            await asyncio.sleep(0.001)
        shutil.copytree(path, copy)
    async with serving_broker(copy, **FAST) as served:
        client = await served.client()
        served.controller.state.clock.put_forward(60_000)
        assert [int(one.body) for one in await received(client, 40)] == list(range(40))
        assert all(one.store_timestamp >= due for one in await received(client, 40))
        assert (await client.pull("orders", 40)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_full_disk_delays_what_is_due_and_repeats_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_message_service, "_RETRY_S", 0.01)
    append_rows, faults = Appends.append_rows, [StoreFullError("full")] * 2

    async def failing(self: Appends, rows: Sequence[PutRow]) -> list[PutRowResult | ReputError]:
        bodies = [bytes(row.body) for row in rows]
        put = bodies.index(b"5") if b"5" in bodies and faults else len(rows)
        results = await append_rows(self, rows[:put])
        return results if put == len(rows) else [*results, *[faults.pop()] * (len(rows) - put)]

    monkeypatch.setattr(Appends, "append_rows", failing)

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 300
        await asyncio.gather(*(send_timed(client, b"%d" % one, timer_deliver_ms=due) for one in range(10)))
        assert [int(one.body) for one in await received(client, 10)] == list(range(10))
        assert not faults
        assert (await client.pull("orders", 10)).code == ResponseCode.PULL_NOT_FOUND


async def test_messages_that_a_full_disk_gave_no_slot_at_first_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_message_service, "_RETRY_S", 0.01)
    enqueue, faults = TimerMessageStore.enqueue, [StoreFullError("full")] * 2

    def failing(timers: TimerMessageStore, entries: TimerEntries, write_time: int) -> None:
        if faults:
            raise faults.pop()
        enqueue(timers, entries, write_time)

    monkeypatch.setattr(TimerMessageStore, "enqueue", failing)

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, timers = await served.client(), served.controller._state.timers
        await with_topic(client, "orders")
        await send_timed(client, b"waits", timer_delay_sec=60)
        while timers is None or timers.queue_offset < 1:
            await asyncio.sleep(0.001)
        assert not faults
        assert served.controller._services.timers.metrics.count("orders") == 1


async def test_messages_that_the_disk_cannot_read_come_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_message_service, "_RETRY_S", 0.01)
    look, faults = timer_message_service.TimerMessageService._look, list[StoreError]()

    async def failing(self: Any, units: Any) -> Any:
        if faults:
            raise faults.pop()
        return await look(self, units)

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        monkeypatch.setattr(timer_message_service.TimerMessageService, "_look", failing)
        monkeypatch.setattr(open_slot, "_MOST_KEPT", 3)
        due = now_ms() + 300
        await asyncio.gather(*(send_timed(client, b"%d" % one, timer_deliver_ms=due + one) for one in range(40)))
        faults.extend(StoreError("cannot read") for _ in range(3))
        assert [int(one.body) for one in await received(client, 5)][:5] == list(range(5))
        faults.extend(StoreError("cannot read") for _ in range(3))
        assert [int(one.body) for one in await received(client, 40)] == list(range(40))
        assert (await client.pull("orders", 40)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_message_that_names_no_time_or_topic_stops_no_other(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        for properties in (
            {}, {"TIMER_OUT_MS": "x", "REAL_TOPIC": "orders", "REAL_QID": "0"},
            {"TIMER_OUT_MS": "5", "REAL_TOPIC": "orders", "REAL_QID": "-1"},
            {"TIMER_OUT_MS": "5", "REAL_TOPIC": "or/ders" * 99, "REAL_QID": "0"},
        ):  # fmt: skip
            text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
            await served.controller._state.appends.append_row(PutRow(TIMER_TOPIC, 0, b"x", text, 0, 0, 1, bytes(8)))
        await send_timed(client, b"good", timer_delay_ms=20)
        assert [one.body for one in await received(client, 1)] == [b"good"]


async def test_messages_that_cannot_be_put_stop_no_other(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        due = now_ms() + 300
        for number in range(9):
            properties = {"TIMER_OUT_MS": str(due // 100 * 100), "REAL_TOPIC": "orders", "REAL_QID": "0"}
            if number % 3 == 1:  # a topic that no record can name
                properties["REAL_TOPIC"] = "o" * 300
            text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
            await served.controller._state.appends.append_row(
                PutRow(TIMER_TOPIC, 0, b"%d" % number, text, 0, 0, due, bytes(8))
            )
        assert [int(one.body) for one in await received(client, 6)] == [0, 2, 3, 5, 6, 8]
        assert served.controller._services.timers.stats.dequeued == {"orders": 6}


async def test_a_message_is_delivered_while_others_keep_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue, further = TimerEnqueue.enqueue, list[bool]()

    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")

        async def bring_another(self: TimerEnqueue, records: bytes, open_ms: Collection[int]) -> list[Enqueued]:
            found = await enqueue(self, records, open_ms)
            if further:
                end = state.store.max_offset(TIMER_TOPIC, 0)
                await send_timed(client, b"later", timer_delay_sec=1000)
                while state.store.max_offset(TIMER_TOPIC, 0) == end:
                    await asyncio.sleep(0)
            return found

        monkeypatch.setattr(TimerEnqueue, "enqueue", bring_another)
        further.append(True)
        await send_timed(client, b"due", timer_delay_ms=150)
        assert [one.body for one in await received(client, 1)] == [b"due"]
        further.clear()


async def test_what_is_due_need_not_wait_until_all_that_is_new_has_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, is_delivered, held = TimerEnqueue.read, asyncio.Event(), list[int]()

    async def read_one_by_one(self: TimerEnqueue, offset: int, end: int) -> tuple[list[bytes], int]:
        """In a slot that is open: after the first message of several the next one waits for what is due."""
        if held and offset > held[0]:
            await is_delivered.wait()
        slot = served.controller._services.timers._slot
        if not held and slot is not None and slot.next_due_ms is not None and end - offset > 1:
            held.append(offset)
            while self._clock.now_ms() < slot.next_due_ms:
                await asyncio.sleep(0.001)
        return await read(self, offset, offset + 1)

    monkeypatch.setattr(timer_enqueue, "_MOST_READ", 1)
    monkeypatch.setattr(TimerEnqueue, "read", read_one_by_one)
    async with serving_broker(tmp_path / "store", **FAST | {"timer_precision_ms": 1000}) as served:
        client = await served.client()
        await with_topic(client, "orders")
        timers = served.controller._state.timers
        assert timers is not None
        sending = asyncio.create_task(_send_pairs(client, timers, held))
        count = 0
        while not held:  # a machine that stands still may not look at the open slot in time
            count += 1
            due = (now_ms() // 1000 + 2) * 1000 + 900
            await send_timed(client, b"due", timer_deliver_ms=due)
            assert [one.body for one in await received(client, count)] == [b"due"] * count
        is_delivered.set()
        await sending


async def _send_pairs(client: Client, timers: TimerMessageStore, held: list[int]) -> None:
    """Send two messages at once, again and again, each time after those before have their slots."""
    sent = 1
    while not held:
        if timers.queue_offset < sent:
            await asyncio.sleep(0.001)
            continue
        far = [send_command("orders", properties={"TIMER_DELAY_SEC": "1000"}) for _ in range(2)]
        sent += len(far)
        for answer in client.begin_all(far):
            assert (await answer).code == 0


@pytest.mark.parametrize("hours", [1, 24, 30 * 365 * 24], ids=["hour", "day", "years"])
@pytest.mark.parametrize("restarts", [True, False], ids=["restarts", "goes on"])
async def test_a_clock_that_was_ahead_holds_no_message_up(tmp_path: Path, hours: int, restarts: bool) -> None:
    """What is sent later comes at its time, and once; what waited by that clock is lost by nobody."""
    ahead_ms, keys = hours * 3_600_000, FAST
    async with serving_broker(tmp_path / "store", **keys) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        state.clock.put_forward(ahead_ms)
        await send_timed(client, b"ahead", timer_delay_ms=300)
        assert [one.body for one in await received(client, 1)] == [b"ahead"]
        await send_timed(client, b"waits", timer_delay_ms=60_000)
        while served.controller._services.timers.metrics.count("orders") != 1:
            await asyncio.sleep(0.01)
        if not restarts:
            state.clock.put_forward(-ahead_ms)
            await come_in_time(client)
    if restarts:
        async with serving_broker(tmp_path / "store", **keys) as served:
            await come_in_time(await served.client())
    async with serving_broker(tmp_path / "store", **keys) as served:
        client, state = await served.client(), served.controller._state
        state.clock.put_forward(ahead_ms + 120_000)
        assert [one.body for one in await received(client, 5)] == [b"ahead", b"0", b"1", b"2", b"waits"]
        assert served.controller._services.timers.metrics.count("orders") == 0


@pytest.mark.parametrize("stopped_at", [None, "enqueue", "clear 1", "clear 2"])
async def test_what_waits_by_a_clock_that_was_ahead_outlives_an_error_and_a_stop_on_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_at: str | None
) -> None:
    ahead_ms, steps = 30 * 365 * 24 * 3_600_000, list[str]()
    loop, begun, may_go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    enqueue, clear = TimerMessageStore.enqueue, TimerMessageStore.clear_between
    monkeypatch.setattr(timer_message_service, "_RETRY_S", 0.01)

    def step(name: str) -> None:
        """Fail at the first unit, or wait at a step, from the time on at which the clock is set back."""
        if not steps:
            return
        steps.append(name)
        number = steps.count(name)
        if stopped_at is None and steps.count("enqueue") == 1 and name == "enqueue":
            loop.call_soon_threadsafe(begun.set)
            raise StoreFullError("full")
        if stopped_at in (name, f"{name} {number}"):
            loop.call_soon_threadsafe(begun.set)
            may_go_on.wait()

    def held_enqueue(*given: Any) -> None:
        step("enqueue")
        enqueue(*given)

    def held_clear(*given: Any) -> None:
        step("clear")
        clear(*given)

    monkeypatch.setattr(TimerMessageStore, "enqueue", held_enqueue)
    monkeypatch.setattr(TimerMessageStore, "clear_between", held_clear)
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, state, timers = await served.client(), served.controller._state, served.controller._services.timers
        await with_topic(client, "orders")
        state.clock.put_forward(ahead_ms)
        await send_timed(client, b"waits", timer_delay_ms=60_000)
        while state.timers is None or state.timers.queue_offset < 1:
            await asyncio.sleep(0.001)
        steps.append("the clock is set back")
        state.clock.put_forward(-ahead_ms)
        await begun.wait()
        if stopped_at is not None:
            monkeypatch.setattr(timer_message_service, "_STOP_S", 0)
            stopping = asyncio.create_task(served.stop())
            while not timers._task.done():
                await asyncio.sleep(0.001)
            may_go_on.set()
            await stopping
        else:
            await send_timed(client, b"right", timer_delay_ms=300)
            assert [one.body for one in await received(client, 1)] == [b"right"]
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, state, count = await served.client(), served.controller._state, int(stopped_at is None)
        state.clock.put_forward(ahead_ms + 120_000)
        assert [one.body for one in (await received(client, count + 1))[count:]] == [b"waits"]


async def test_a_recall_that_was_answered_holds_after_the_clock_was_set_back(tmp_path: Path) -> None:
    ahead_ms, keys = 3_600_000, FAST | {"timer_precision_ms": 1000}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client, state, service = await served.client(), served.controller._state, served.controller._services.timers
        await with_topic(client, "orders")
        state.clock.put_forward(ahead_ms)
        while service._slot is None or not service._slot.deleted:  # a machine that stands still may be too late
            due = (state.clock.now_ms() // 1000 + 2) * 1000 + 900
            answer = await send_timed(client, b"recalled", timer_deliver_ms=due, uniq_key=f"u{due}")
            handle = (answer.ext_fields or {})["recallHandle"]
            recalled = await client.ask(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=handle)
            assert recalled.code == 0
            while state.clock.now_ms() < due and (service._slot is None or not service._slot.deleted):
                await asyncio.sleep(0.001)
        state.clock.put_forward(-ahead_ms)
        while service._timers.read_time_ms > state.clock.now_ms() + 2000 or service._back is not None:
            await asyncio.sleep(0.001)
        state.clock.put_forward(ahead_ms + 20_000)
        await send_timed(client, b"after", timer_delay_ms=300)
        assert [one.body for one in await received(client, 1)] == [b"after"]
        assert service.metrics.count("orders") == 0


async def come_in_time(client: Client) -> None:
    """Messages that are sent now come at their times, and nothing else does."""
    due = now_ms() + 400
    for number in range(3):
        await send_timed(client, b"%d" % number, timer_deliver_ms=due + 150 * number)
    assert [one.body for one in (await received(client, 4))[1:]] == [b"0", b"1", b"2"]
    assert due + 300 <= now_ms()


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE])
async def test_what_a_broker_wrote_into_a_message_is_no_order_of_who_sends_it_again(tmp_path: Path, code: int) -> None:
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client = await served.client()
        await with_topic(client, "orders")
        forwarded = {"KEYS": "k", **dict.fromkeys(OF_BROKERS, "1700000000000")}
        for number in range(3):  # the first in the plain way, the others by the kernel if it takes them
            assert (await client.send_message("orders", b"%d" % number, code=code, properties=forwarded)).code == 0
        for one in await received(client, 3):
            assert one.properties.keys() & OF_BROKERS == set()
        due = now_ms() + 300
        await client.send_message("orders", b"waits", code=code, properties=forwarded | {"TIMER_DELIVER_MS": str(due)})
        assert [one.body for one in (await received(client, 4))[3:]] == [b"waits"]
        assert now_ms() >= due


async def test_a_message_deletes_none_of_another_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, appends = await served.client(), served.controller._state.appends
        for topic in ("orders", "other"):
            await with_topic(client, topic)
        due = str(now_ms() + 500)
        await client.send_message("orders", b"stays", properties={"UNIQ_KEY": "u", "TIMER_DELIVER_MS": due})
        deletes = {"TIMER_DEL_UNIQKEY": "orders+u", "TIMER_DELIVER_MS": due}
        assert (await client.send_message("other", properties=deletes)).code == ResponseCode.MESSAGE_ILLEGAL
        out = str(int(due) // 100 * 100)  # as a broker took it that did not look
        pairs = deletes | {"TIMER_OUT_MS": out, "REAL_TOPIC": "other", "REAL_QID": "0"}
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
        await appends.append_row(PutRow(TIMER_TOPIC, 0, b"x", text, 0, 0, 1, bytes(8)))
        assert [one.body for one in await received(client, 1)] == [b"stays"]


async def test_counts_are_those_of_what_waits_whatever_deletes_it_and_is_rolled(tmp_path: Path) -> None:
    keys = FAST | {"timer_roll_window_slot": 6}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client, metrics = await served.client(), served.controller._services.timers.metrics
        await with_topic(client, "orders")
        due = str(now_ms() + 1500)
        for _ in range(2):  # in slots before their own, and deleted twice
            for more in ({}, {"TIMER_DEL_UNIQKEY": "orders+u"}):
                await client.send_message("orders", properties={"UNIQ_KEY": "u", "TIMER_DELIVER_MS": due} | more)
        await client.send_message("orders", b"last", properties={"UNIQ_KEY": "v", "TIMER_DELIVER_MS": due})
        assert [one.body for one in await received(client, 1)] == [b"last"]
        while served.controller._state.timers.read_time_ms <= int(due):
            await asyncio.sleep(0.01)
        assert metrics.content().timing_count["orders"].count == 0
