"""POP_MESSAGE over sockets: what is handed out, what the answer says of it, and who waits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from reput.formats.pop_messages import decode_check_point
from reput.remoting.codes import RequestCode, ResponseCode
from reput.store.puts.put_rows import PutRow
from tests.support.broker import LONG_MS, SYNCED, Served, fill, messages_of, serving_broker, with_topic
from tests.support.pop import handles, pop, pop_command


def check_points(served: Served) -> list[Any]:
    """Those that the timer holds back."""
    found = served.controller._state.store.get_message("rmq_sys_wheel_timer", 0, 0).messages()
    return [decode_check_point(one.body) for one in found if one.tags == "ck"]


@pytest.mark.parametrize("keys", [{}, SYNCED], ids=["async", "sync"])
async def test_all_queues_give_their_messages_and_a_check_point_each(tmp_path: Path, keys: dict[str, Any]) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        for number in range(4):
            await client.send_message("orders", b"m%d" % number, queueId=number % 2)
        answer = await pop(client, "orders", invisible_ms=6000)
        fields = answer.ext_fields or {}
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert sorted(message.body for message in messages_of(answer)) == [b"m0", b"m1", b"m2", b"m3"]
        assert sorted(fields["startOffsetInfo"].split(";")) == ["0 0 0", "0 1 0"]
        assert sorted(fields["msgOffsetInfo"].split(";")) == ["0 0 0,1", "0 1 0,1"]
        assert (fields["invisibleTime"], fields["restNum"], fields["reviveQid"]) == ("6000", "0", "0")
        await client.round_trip()
        found = check_points(served)
        assert {(one.key.queue_id, one.offsets, one.key.start_offset) for one in found} == {
            (0, (0, 1), 0), (1, (0, 1), 0),
        }  # fmt: skip
        assert all(one.invisible_time == 6000 and one.key.pop_time == int(fields["popTime"]) for one in found)
        offsets = served.controller._state.offsets
        assert [offsets.query_offset("g", "orders", queue) for queue in range(2)] == [2, 2]
        again = await pop(client, "orders")
        assert (again.code, again.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert (again.ext_fields or {}).items() >= {"startOffsetInfo": "", "msgOffsetInfo": ""}.items()


async def test_what_is_not_handed_out_is_left_for_the_next_pop(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abcde")
        first, second, third = [await pop(client, "orders", maxMsgNums=2) for _ in range(3)]
        assert [len(messages_of(one)) for one in (first, second, third)] == [2, 2, 1]
        assert [(one.ext_fields or {})["restNum"] for one in (first, second, third)] == ["3", "1", "0"]
        assert (second.ext_fields or {})["startOffsetInfo"] == "0 0 2"
        assert (await pop(client, "orders", maxMsgNums=0)).code == ResponseCode.POLLING_TIMEOUT


async def test_a_filter_passes_other_messages_and_says_where_reading_began(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"ababa")
        answer = await pop(client, "orders", exp="b", expType="TAG")
        fields = answer.ext_fields or {}
        assert (fields["startOffsetInfo"], fields["msgOffsetInfo"]) == ("0 0 0", "0 0 1,3")
        offsets = served.controller._state.offsets
        assert offsets.query_offset("g", "orders", 0) == 5
        assert (await pop(client, "orders", "other", exp="c")).code == ResponseCode.POLLING_TIMEOUT
        assert offsets.query_offset("other", "orders", 0) == 5


async def test_a_pop_waits_for_a_message_and_gets_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, other = await served.client(), await served.client()
        await with_topic(client, "orders", 4)
        waiting = client.begin_all([pop_command("orders", poll_ms=LONG_MS)])[0]
        one_queue = client.begin_all([pop_command("orders", "h", poll_ms=LONG_MS, queueId=3, exp="x")])[0]
        await client.round_trip()
        await other.send_message("orders", b"late", queueId=2)
        assert [message.body for message in messages_of(await waiting)] == [b"late"]
        await other.send_message("orders", b"tagged", queueId=3, properties={"TAGS": "x"})
        assert [message.body for message in messages_of(await one_queue)] == [b"tagged"]
        polling = served.controller._services.pop.listeners[0]
        assert not polling.any_wait
        assert not polling._woken_by
        assert polling._bytes == polling._count == 0


async def test_a_pop_that_waits_is_answered_shortly_before_its_time_is_over(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        patient = client.begin_all([pop_command("orders", poll_ms=LONG_MS)])[0]
        began = time.monotonic()
        answer = await pop(client, "orders", poll_ms=200)
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert time.monotonic() - began > 0.1
        assert not patient.done()


async def test_a_broker_that_stops_answers_pops_that_wait(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        waiting = client.begin_all([pop_command("orders", poll_ms=LONG_MS)])[0]
        await client.round_trip()
        await served.stop()
        assert (await waiting).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "none"}, 17, "topic[none] not exist, apply first please! "),
        ({"queueId": 7}, 29, "queueId[7] is illegal, topic:[orders] topicConfig.readQueueNums:[1] consumer:[/"),
        ({"maxMsgNums": 33}, 29, "the broker[127.0.0.1] pop message's num is greater than 32"),
        ({"invisibleTime": 259_200_001}, 29, "invisibleTime 259200001: the timer waits 259200000 ms at most"),
        ({"bornTime": 1, "pollTime": 5}, 210, "the broker[127.0.0.1] pop message is timeout too much"),
        ({"exp": "||"}, 23, "parse the consumer's subscription failed"),
        ({"topic": "unreadable"}, 16, "the topic[unreadable] peeking message is forbidden"),
    ],
)
async def test_a_pop_that_cannot_be_done_says_why(
    tmp_path: Path, fields: dict[str, Any], code: int, remark: str
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await with_topic(client, "unreadable", perm=2)
        command = pop_command("orders")
        command.ext_fields = (command.ext_fields or {}) | {name: str(value) for name, value in fields.items()}
        answer = await client.begin_all([command])[0]
        assert answer.code == code
        assert (answer.remark or "").startswith(remark)
        expected = {"popTime": "0", "invisibleTime": "0", "restNum": "0", "reviveQid": "0"}
        assert answer.ext_fields == expected


async def test_a_reset_is_where_the_next_pop_begins(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abc")
        assert len(messages_of(await pop(client, "orders"))) == 3
        state = served.controller._state
        assert state.offsets.assign_reset_offset("orders", "g", 0, 1, 1)
        answer = await pop(client, "orders")
        assert (answer.ext_fields or {})["msgOffsetInfo"] == "0 0 1,2"
        assert not state.offsets.has_offset_reset("orders", "g", 0)


async def test_queues_behind_a_full_answer_get_their_offsets_and_resets_too(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, offsets = await served.client(), served.controller._state.offsets
        await with_topic(client, "orders", 3)
        for number in range(6):
            await client.send_message("orders", b"m%d" % number, queueId=number % 3)
        rests = []
        for _ in range(2):
            answer = await pop(client, "orders", maxMsgNums=1)
            rests.append((answer.ext_fields or {})["restNum"])
            assert sum(offsets.query_offset("g", "orders", queue) for queue in range(3)) == len(rests)
        assert all(offsets.assign_reset_offset("orders", "g", queue, 1, 1) for queue in range(3))
        answer = await pop(client, "orders", maxMsgNums=1)
        assert [*rests, (answer.ext_fields or {})["restNum"]] == ["5", "4", "2"]
        assert not any(offsets.has_offset_reset("orders", "g", queue) for queue in range(3))
        assert sorted(offsets.query_offset("g", "orders", queue) for queue in range(3)) == [1, 1, 2]


async def test_a_new_group_begins_at_the_last_message_where_the_first_is_not_in_memory(tmp_path: Path) -> None:
    for check, expected in ((True, ["0 0 0,1,2"]), (False, ["0 0 2"])):
        path = tmp_path / str(check)
        async with serving_broker(path, init_pop_offset_by_check_msg_in_mem=check) as served:
            client = await served.client()
            await with_topic(client, "orders")
            await fill(client, "orders", *"abc")
            answer = await pop(client, "orders", initMode=1)
            assert [(answer.ext_fields or {})["msgOffsetInfo"]] == expected


async def test_pops_of_one_connection_get_each_message_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **SYNCED) as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        for number in range(20):
            await client.send_message("orders", b"%d" % number, queueId=number % 2)
        await client.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        answers = [await one for one in client.begin_all([pop_command("orders", maxMsgNums=3) for _ in range(9)])]
        found = [message.body for one in answers if one.code == 0 for message, _, _ in handles(one)]
        assert sorted(map(int, found)) == list(range(20))


@pytest.mark.parametrize("order", [True, False])
async def test_a_pop_that_stops_at_the_bound_of_a_look_goes_on(tmp_path: Path, order: bool) -> None:
    """A look is at 800 messages; nobody would wake who waits behind them."""
    async with serving_broker(tmp_path / "store") as served:
        client, appends = await served.client(), served.controller._state.appends
        await with_topic(client, "orders")
        texts = [b"TAGS\x01many\x02"] * 3000 + [b"TAGS\x01few\x02"]
        await appends.append_rows([PutRow("orders", 0, b"x", text, 0, 0, 1, bytes(8)) for text in texts])
        await client.pull("orders", 3000, hold_ms=LONG_MS)
        answer = await pop(client, "orders", poll_ms=LONG_MS, order=order, expType="TAG", exp="few")
        assert [one.queue_offset for one in messages_of(answer)] == [3000]
