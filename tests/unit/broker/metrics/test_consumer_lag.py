"""How far groups are behind, as a monitoring system is told."""

from __future__ import annotations

from pathlib import Path

from reput.remoting.codes import RequestCode
from tests.support.broker import messages_of, serving_broker, with_topic
from tests.support.metrics import MEASURED, labelled


async def test_the_age_of_what_was_not_pulled_is_less_than_that_of_what_is_not_consumed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        times: list[int] = []
        while not times or times[-1] == times[0]:  # the last message is at least a millisecond younger
            assert (await client.send_message("orders")).code == 0
            (message,) = messages_of(await client.pull("orders", len(times), group="other"))
            times.append(message.store_timestamp)
        count = len(times)
        assert (await client.pull("orders", commit=0, maxMsgNums=count - 1)).code == 0

        async def told(name: str) -> float:
            found = await labelled(served, f"rocketmq_consumer_{name}", "consumer_group", "topic", "is_retry")
            assert list(found) == [("g", "orders", "false")]
            return found["g", "orders", "false"]

        assert await told("lag_messages") == count
        assert await told("inflight_messages") == count - 1
        assert await told("ready_messages") == 1
        now_ms = served.controller._state.clock.now_ms()
        assert await told("lag_latency_milliseconds") >= now_ms - times[0]
        queueing = await told("queueing_latency_milliseconds")
        assert now_ms - times[-1] <= queueing <= served.controller._state.clock.now_ms() - times[-1]
        where = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": count}
        await client.one_way(RequestCode.UPDATE_CONSUMER_OFFSET, **where)
        names = ("lag_messages", "lag_latency_milliseconds", "ready_messages", "queueing_latency_milliseconds")
        assert [await told(name) for name in names] == [0, 0, 0, 0]


async def test_a_topic_that_is_gone_has_no_lag(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        client = await served.client()
        await with_topic(client, "orders")
        served.controller._state.offsets.commit_offset("g", "orders", 0, 0, 1)
        served.controller._state.offsets.commit_offset("g", "gone", 0, 0, 1)
        found = await labelled(served, "rocketmq_consumer_lag_messages", "topic")
        assert found == {("orders",): 0}
