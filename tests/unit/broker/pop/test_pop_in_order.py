"""Pops in order: a queue is blocked until what was popped of it is acked, or visible again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reput.formats.metadata import ConsumerOrderInfos, decode_metadata
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import LONG_MS, Client, fill, messages_of, serving_broker, with_topic
from tests.support.pop import ack, change_invisible_time, handles, pop, pop_command


async def pop_in_order(client: Client, attempt: str = "a", **more: object) -> RemotingCommand:
    return await pop(client, "orders", order=True, attemptId=attempt, **{"maxMsgNums": 3, **more})


def counts(answer: RemotingCommand) -> tuple[str, str]:
    fields = answer.ext_fields or {}
    assert fields["reviveQid"] == "999"
    return fields["msgOffsetInfo"], fields["orderCountInfo"]


async def test_a_queue_is_free_once_all_is_acked(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abcde")
        answer = await pop_in_order(client)
        assert counts(answer) == ("0 0 0,1,2", "0 0 0")
        blocked = await pop_in_order(client, "b")
        assert (blocked.code, (blocked.ext_fields or {})["orderCountInfo"]) == (ResponseCode.POLLING_TIMEOUT, "")
        assert counts(await pop_in_order(client)) == ("0 0 0,1,2", "0 0 0"), "the same attempt gives the same"
        first, second, third = handles(await pop_in_order(client))
        offsets = served.controller._state.offsets
        waiting = client.begin_all([pop_command("orders", order=True, attemptId="b", poll_ms=LONG_MS)])[0]
        for (_, topic, handle), expected in ((third, 0), (first, 1), (second, 3)):
            assert (await ack(client, topic, handle)).code == 0
            assert offsets.query_offset("g", "orders", 0) == expected
        assert counts(await waiting) == ("0 0 3,4", "0 0 0"), "the last ack wakes who waits"


async def test_messages_come_again_after_their_invisible_time_and_are_counted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abcd")
        ((_, topic, handle), *_) = handles(await pop_in_order(client, invisible_ms=100))
        assert (await ack(client, topic, handle)).code == 0
        began = time.monotonic()
        again = await pop_in_order(client, "b", invisible_ms=100, poll_ms=LONG_MS)
        assert time.monotonic() - began < 20
        assert counts(again) == ("0 0 1,2,3", "0 qo0%1 1;0 qo0%2 1;0 0 0")
        late = await ack(client, topic, handle.rpartition(" ")[0] + " 1")
        assert late.code == 0
        assert served.controller._state.offsets.query_offset("g", "orders", 0) == 1, "it is of an older pop"
        third = await pop_in_order(client, "c", poll_ms=LONG_MS)
        assert counts(third) == ("0 0 1,2,3", "0 qo0%1 2;0 qo0%2 2;0 qo0%3 1;0 0 1")
        wrong = await ack(client, topic, handles(third)[0][2].rpartition(" ")[0] + " 4")
        assert wrong.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_change_of_the_invisible_time_frees_the_queue_then(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"ab")
        first, second = handles(await pop_in_order(client, invisible_ms=600_000))
        waiting = client.begin_all([pop_command("orders", order=True, attemptId="b", poll_ms=LONG_MS)])[0]
        await client.round_trip()
        for _, topic, handle in (first, second):
            answer = await change_invisible_time(client, topic, handle, 50)
            fields = answer.ext_fields or {}
            assert (answer.code, fields["popTime"], fields["reviveQid"]) == (0, handle.split(" ")[1], "999")
            assert 50 <= int(fields["invisibleTime"]) < 20_000
        assert counts(await waiting) == ("0 0 0,1", "0 qo0%0 1;0 qo0%1 1;0 0 1")


async def test_what_was_popped_in_order_is_known_after_a_stop(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with serving_broker(path) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"ab")
        ((_, topic, handle), _) = handles(await pop_in_order(client))
    content = decode_metadata(ConsumerOrderInfos, (path / "config/consumerOrderInfo.json").read_bytes())
    info = content.table["orders@g"][0]
    assert (info.o, info.cm, info.a, info.i) == ([0, 1], 0, "a", 60_000)
    async with serving_broker(path) as served:
        client = await served.client()
        assert (await pop_in_order(client, "b")).code == ResponseCode.POLLING_TIMEOUT
        assert (await ack(client, topic, handle)).code == 0
        assert len(messages_of(await pop_in_order(client))) == 1


async def test_a_notification_knows_that_a_queue_is_blocked(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"ab")
        ask = {"consumerGroup": "g", "topic": "orders", "queueId": -1, "order": True}
        now = int(time.time() * 1000)
        ((_, topic, handle),) = handles(await pop_in_order(client, maxMsgNums=1))
        answer = await client.ask(RequestCode.NOTIFICATION, pollTime=0, bornTime=now, **ask)
        assert answer.ext_fields == {"hasMsg": "false", "pollingFull": "false"}
        assert (await change_invisible_time(client, topic, handle, 150)).code == 0
        answer = await client.ask(RequestCode.NOTIFICATION, pollTime=LONG_MS, bornTime=now, **ask)
        assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}


@pytest.mark.parametrize("queue", [1, -1])
async def test_an_ack_of_a_queue_that_is_not_there_is_refused(tmp_path: Path, queue: int) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        answer = await ack(client, "orders", f"0 1 1 999 0 broker-a {queue} 0")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await ack(client, "none", "0 1 1 999 0 broker-a 0 0")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await ack(client, "orders", "0 1 1 999 0 broker-a 0 0")).code == 0, "nothing was popped"
        short = await client.ask(
            RequestCode.ACK_MESSAGE, consumerGroup="g", topic="orders", queueId=0, offset=0, extraInfo="0 1"
        )
        assert (short.code, (short.remark or "")[:10]) == (ResponseCode.SYSTEM_ERROR, "java.lang.")
