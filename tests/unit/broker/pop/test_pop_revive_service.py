"""Messages that nobody acks come again, those that somebody acks do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.pop import pop_revive_service
from reput.broker.pop.pop_revive_service import PopReviveService
from reput.broker.state import BrokerState
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.formats.java import INT32_MAX
from reput.formats.pop_messages import (
    REVIVE_GROUP,
    CheckPoint,
    CheckPointKey,
    decode_check_point,
    encode_acks,
    encode_check_point,
)
from reput.remoting.codes import ResponseCode
from reput.service.pop import revive_round
from reput.store.message_store import MessageStore
from tests.support.broker import LONG_MS, SYNCED, Client, fill, messages_of, serving_broker, with_topic
from tests.support.pop import ack, handles, pop
from tests.support.shares import sampled

QUICK = SYNCED | {"revive_interval": 5, "revive_max_slow": 1}
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revive_round, "JUDGED_AFTER_MS", 300)
    monkeypatch.setattr(revive_round, "QUIET_MS", 30)
    monkeypatch.setattr(pop_revive_service, "_LOOK_EVERY_S", 0.005)


async def test_a_message_without_an_ack_comes_again_and_wakes_who_waits(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abc")
        first = handles(await pop(client, "orders", invisible_ms=1500))
        assert [message.tags for message, _, _ in first] == ["a", "b", "c"]
        for message, topic, handle in first:
            if message.tags != "b":
                assert (await ack(client, topic, handle)).code == 0
        again = await pop(client, "orders", invisible_ms=20, poll_ms=LONG_MS)
        assert (again.ext_fields or {})["startOffsetInfo"] == "1 0 0"
        ((message, topic, handle),) = handles(again)
        assert (message.tags, message.topic, message.reconsume_times) == ("b", "orders", 1)
        assert topic == "%RETRY%g_orders"
        assert message.properties["POP_CK"] == handle
        assert message.properties["1ST_POP_TIME"] == first[0][2].split(" ")[1]
        third = await pop(client, "orders", invisible_ms=60_000, poll_ms=LONG_MS)
        ((message, topic, handle),) = handles(third)
        assert (message.tags, message.reconsume_times) == ("b", 2)
        assert (await ack(client, topic, handle)).code == 0


async def test_a_message_with_all_attempts_that_a_record_holds_stops_no_other(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        for times in (INT32_MAX, 0):
            assert (await client.send_message("orders", reconsumeTimes=times)).code == 0
        assert len(messages_of(await pop(client, "orders", invisible_ms=20))) == 2
        again: list[int] = []
        while len(again) < 2:
            found = await pop(client, "orders", invisible_ms=LONG_MS, poll_ms=LONG_MS)
            again += [message.reconsume_times for message in messages_of(found)]
        assert sorted(again) == [1, INT32_MAX]


async def test_v2_names_of_retry_topics_are_found_beside_v1(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK, enable_retry_topic_v2=True) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        assert (await pop(client, "orders", invisible_ms=20)).code == 0
        ((_, topic, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
        assert topic == "%RETRY%g+orders"


async def test_a_stop_between_pop_and_revival_loses_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"ab")
        (_, topic, handle), _ = handles(await pop(client, "orders", invisible_ms=1500))
        assert (await ack(client, topic, handle)).code == 0
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        ((message, _, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
        assert (message.tags, message.reconsume_times) == ("b", 1)


async def test_check_points_that_cannot_be_done_stop_no_other(tmp_path: Path) -> None:
    """Hand-made ones: no JSON, unknown topic, unknown group, a message that is not there, another broker's."""

    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"ab")
        assert len(messages_of(await pop(client, "orders"))) == 2
        key = CheckPointKey("orders", "g", 0, 0, 1, "broker-a")
        keys = [key._replace(topic="none"), key._replace(group="none"), key._replace(start_offset=99),
                key._replace(broker_name="broker-x"), key._replace(start_offset=1)]  # fmt: skip
        bodies = [b"no JSON", *(encode_check_point(CheckPoint(one, 1, (one.start_offset,))) for one in keys)]
        for body in bodies:
            properties = {"TAGS": "ck", "TIMER_DELIVER_MS": "1700000000000"}
            sent = await client.send_message(REVIVE, body, properties=properties, queueId=1)
            assert sent.code == 0, sent
        ((message, _, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
        assert (message.tags, message.reconsume_times) == ("b", 1)
        later = served.controller._state.store.get_message(REVIVE, 1, 6).messages()  # those of pops among them
        points = [point for one in later if (point := decode_check_point(one.body)) is not None]
        tried_again = [
            (point.re_put_times, point.invisible_time) for point in points if point.key.broker_name == "broker-x"
        ]
        assert tried_again[0] == (1, 10_001)  # its time is over since 1970, so it may have been tried once more


async def test_a_late_ack_is_answered_with_success_and_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        ((_, topic, handle),) = handles(await pop(client, "orders", invisible_ms=20))
        assert len(messages_of(await pop(client, "orders", poll_ms=LONG_MS))) == 1
        assert (await ack(client, topic, handle)).code == 0
        beyond = await ack(client, topic, handle.rpartition(" ")[0] + " 99")
        assert (beyond.code, beyond.remark) == (
            ResponseCode.NO_MESSAGE, "offset is illegal, key:orders@0, commit:99, store:0~1",
        )  # fmt: skip


def hold_dispatch(monkeypatch: pytest.MonkeyPatch) -> Callable[[BrokerState], None]:
    """Let nothing be dispatched that is put from now on; what ends that."""
    pass_ = LoopDispatch._pass

    def held(dispatch: LoopDispatch) -> None:
        dispatch._next = None

    def go_on(state: BrokerState) -> None:
        monkeypatch.setattr(LoopDispatch, "_pass", pass_)
        state.dispatch.soon()

    monkeypatch.setattr(LoopDispatch, "_pass", held)
    return go_on


def hold_timers(monkeypatch: pytest.MonkeyPatch) -> Callable[[BrokerState], None]:
    """Let no message get its slot from now on; what ends that."""
    may_go_on, enqueue = asyncio.Event(), TimerMessageService._enqueue

    async def held(timers: TimerMessageService, end: int) -> None:
        await may_go_on.wait()
        await enqueue(timers, end)

    monkeypatch.setattr(TimerMessageService, "_enqueue", held)
    return lambda _: may_go_on.set()


@sampled(2)
@pytest.mark.parametrize("hold", [hold_dispatch, hold_timers])
@pytest.mark.parametrize("is_busy", [False, True], ids=["quiet", "busy"])
async def test_no_check_point_is_judged_before_acks_that_dispatch_or_timers_hold_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hold: Callable[..., Callable[[BrokerState], None]],
    *,
    is_busy: bool,
) -> None:
    looks, look = [0, 0], PopReviveService._look

    async def counted(service: PopReviveService, queue_id: int) -> bool:
        began = service._clock.now_ms()
        has_check_points = await look(service, queue_id)
        if queue_id == 0:
            looks[0], looks[1] = looks[0] + 1, began
        return has_check_points

    monkeypatch.setattr(PopReviveService, "_look", counted)

    async with serving_broker(tmp_path / "store", **QUICK, timer_precision_ms=100) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        ((_, topic, handle),) = handles(await pop(client, "orders", invisible_ms=3000))
        while state.store.max_offset(REVIVE, 0) < 1:  # the check point does not wait
            await asyncio.sleep(0.001)
        go_on = hold(monkeypatch)
        assert (await ack(client, topic, handle)).code == 0
        state.clock.put_forward(7000)
        if is_busy:
            await come_at(client, state.clock.now_ms())
        until = state.clock.now_ms()
        while looks[1] <= until:
            await asyncio.sleep(0.001)
        go_on(state)
        while state.offsets.query_offset(REVIVE_GROUP, REVIVE, 0) < 0:
            await asyncio.sleep(0.001)
        await client.round_trip()  # all is dispatched
        assert state.store.max_offset("%RETRY%g_orders", 0) == 0


async def come_at(client: Client, deliver_ms: int) -> None:
    """Let an ack come into the revive queue that was due at a time which is over, and need not wait."""
    body = encode_acks(CheckPointKey("orders", "g", 0, 0, 1, "broker-a"), [0])[0]
    properties = {"TAGS": "ack", "TIMER_DELIVER_MS": str(deliver_ms)}
    assert (await client.send_message(REVIVE, body, properties=properties)).code == 0


async def test_messages_are_revived_while_dispatch_never_has_all_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = MessageStore.dispatch_behind_bytes.fget
    assert behind is not None
    monkeypatch.setattr(MessageStore, "dispatch_behind_bytes", property(lambda store: max(100, behind(store))))

    async def keep_putting(client: Client) -> None:
        while True:
            assert (await client.send_message("load", bytes(100))).code == 0

    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client, other = await served.client(), await served.client()
        await with_topic(client, "orders")
        await with_topic(client, "load")
        await fill(client, "orders", "a")
        puts = asyncio.get_running_loop().create_task(keep_putting(other))
        assert (await pop(client, "orders", invisible_ms=20)).code == 0
        ((message, _, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
        assert (message.tags, message.reconsume_times) == ("a", 1)
        puts.cancel()
