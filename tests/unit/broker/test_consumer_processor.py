"""Offsets of groups over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput import MessageStore
from reput.remoting.codes import RequestCode, ResponseCode
from tests.support.broker import Client, consumer, serving_broker, with_topic


async def offset(client: Client, topic: str = "orders", group: str = "g", **more: object) -> tuple[int, str | None]:
    """Code of the answer, and the offset or the remark."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0} | more
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
    return answer.code, (answer.ext_fields or {}).get("offset", answer.remark)


async def test_the_offset_of_a_group_is_what_it_committed_last(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.send_message("orders")
        await client.heartbeat("c", consumer("g", "orders"))
        for number in (5, 3):
            fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": number}
            assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == 0
            assert await offset(client) == (0, str(number))
        await client.one_way(RequestCode.UPDATE_CONSUMER_OFFSET, **(fields | {"commitOffset": 9}))
        assert await offset(client) == (0, "9")
        for other, code in (({"consumerGroup": "none"}, 26), ({"topic": "none"}, 17)):
            assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **(fields | other))).code == code


async def test_an_offset_without_a_field_is_refused_as_rocketmq_refuses_it(tmp_path: Path) -> None:
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "5"}

    async def refused(client: Client, **more: str | None) -> tuple[int, str | None]:
        given = {name: value for name, value in (fields | more).items() if value is not None}
        answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **given)
        return answer.code, answer.remark

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.send_message("orders")
        await client.heartbeat("c", consumer("g", "orders"))
        assert await refused(client, queueId=None) == (29, "QueueId is null, topic is orders")
        assert await refused(client, queueId="x") == (29, "QueueId is null, topic is orders")
        assert await refused(client, commitOffset=None) == (29, "Offset is null, topic is orders")
        assert await refused(client, queueId=None, consumerGroup="none") == (26, "Group none not exist!")
        assert await refused(client, consumerGroup=None) == (26, "Group null not exist!")
        assert await refused(client, queueId=None, topic="none") == (17, "Topic none not exist!")
        no_topic = (1, "UpdateConsumerOffsetRequestHeader: the field topic is missing")
        assert await refused(client, topic=None) == no_topic
        assert await refused(client, topic=None, consumerGroup="none") == no_topic
        assert await refused(client, **dict.fromkeys(fields)) == no_topic
        assert await offset(client) == (0, "0")  # none was kept
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, topic="orders", queueId=0)).code == 0
        assert (await client.ask(RequestCode.UNREGISTER_CLIENT, consumerGroup="g")).code == 0


@pytest.mark.parametrize("is_at_hand", [True, False])
async def test_a_group_without_an_offset_begins_at_zero_where_the_first_message_is_in_memory(
    tmp_path: Path, is_at_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_at_hand`: the loop sees it by itself; else a thread asks the disk."""
    get_raw = MessageStore.get_raw
    asked: list[bool] = []

    def seen(store: MessageStore, *arguments: Any, may_wait: bool = True) -> Any:
        asked.append(may_wait)
        return get_raw(store, *arguments, may_wait=may_wait) if may_wait or is_at_hand else None

    monkeypatch.setattr(MessageStore, "get_raw", seen)
    first = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    none = "Not found, do not set to zero, maybe this group boot first"

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        assert await offset(client) == (ResponseCode.QUERY_NOT_FOUND, first)
        assert await offset(client, "unknown") == (ResponseCode.QUERY_NOT_FOUND, first)
        await client.send_message("orders")
        await client.pull("orders", hold_ms=60_000)
        assert await offset(client) == (0, "0")
        assert await offset(client, setZeroIfNotFound=True) == (0, "0")
        assert await offset(client, setZeroIfNotFound=False) == (ResponseCode.QUERY_NOT_FOUND, none)
        assert (True in asked) != is_at_hand


# -- locks
