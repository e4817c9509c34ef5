"""Messages with a time, as a monitoring system is told of them."""

from __future__ import annotations

from pathlib import Path

from tests.support.broker import LONG_MS, serving_broker, with_topic
from tests.support.metrics import MEASURED, labelled

FAST = {"timer_precision_ms": 100} | MEASURED


async def test_messages_with_a_time_are_counted_by_topic_and_by_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **FAST) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        for delay_ms in (7_200_000, 7_300_000, 1):
            properties = {"TIMER_DELAY_MS": str(delay_ms)}
            assert (
                await client.send_message("orders", properties=properties, bornTimestamp=state.clock.now_ms())
            ).code == 0
        assert (await client.pull("orders", hold_ms=LONG_MS)).code == 0
        assert await labelled(served, "rocketmq_timer_enqueue_total", "topic") == {("orders",): 3}
        assert await labelled(served, "rocketmq_timer_dequeue_total", "topic") == {("orders",): 1}
        assert await labelled(served, "rocketmq_timing_messages", "topic") == {("orders",): 2}
        assert await labelled(served, "rocketmq_timer_enqueue_lag") == {(): 0}
        near = await labelled(served, "rocketmq_timer_message_snapshot", "timer_bound_s")
        assert list(near) == [(end,) for end in ("5", "60", "300", "900", "3600", "14400", "28800", "86400")]
        assert {end: count for (end,), count in near.items() if count and end != "5"} == {"14400": 2}
        waiting = (await labelled(served, "rocketmq_timer_dequeue_lag"))[()]
        # the third's slot is over, and may not be counted any more: two looks at two times
        assert waiting in (2, 3)
        assert near[("5",)] in (0, 1)
        (late_s,) = (await labelled(served, "rocketmq_timer_dequeue_latency_milliseconds")).values()
        assert late_s < 60
        delays = await labelled(served, "rocketmq_delay_message_latency_seconds_bucket", "topic", "le")
        assert [(float(le), count) for (topic, le), count in delays.items() if topic == "orders"] == [
            (60, 1), (600, 1), (3600, 1), (43200, 3), (86400, 3), (259200, 3), (float("inf"), 3),
        ]  # fmt: skip


async def test_a_broker_without_timers_tells_nothing_of_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", timer_wheel_enable=False, **MEASURED) as served:
        assert await labelled(served, "rocketmq_timer_enqueue_lag") == {}
        assert await labelled(served, "rocketmq_topic_number") != {}
