"""Pops, as a monitoring system is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.broker.appends.inner_appends import Appends
from reput.broker.pop import pop_revive_service
from reput.errors import StoreFullError
from reput.service.pop import revive_round
from reput.store.puts.put_rows import PutRow, PutRowResult
from tests.support.broker import LONG_MS, fill, serving_broker, with_topic
from tests.support.metrics import MEASURED, labelled
from tests.support.pop import ack, handles, pop

QUICK = {"revive_interval": 5, "revive_max_slow": 1, "revive_queue_num": 1} | MEASURED
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revive_round, "JUDGED_AFTER_MS", 300)
    monkeypatch.setattr(revive_round, "QUIET_MS", 30)
    monkeypatch.setattr(pop_revive_service, "_LOOK_EVERY_S", 0.005)


async def test_check_points_acks_and_revived_messages_are_counted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a", "b")
        (_, topic, handle), _ = handles(await pop(client, "orders", invisible_ms=1500))
        assert (await ack(client, topic, handle)).code == 0
        ((again, *_),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
        assert again.tags == "b"
        labels = ("consumer_group", "topic", "revive_message_type")
        put = await labelled(served, "rocketmq_pop_revive_in_message_total", *labels, "put_status")
        assert put == {
            ("g", "orders", "CK", "PUT_OK"): 1, ("g", "orders", "ACK", "PUT_OK"): 1,
            ("g", "%RETRY%g_orders", "CK", "PUT_OK"): 1,
        }  # fmt: skip
        got = await labelled(served, "rocketmq_pop_revive_out_message_total", *labels, "queue_id")
        assert got.keys() == {("g", "orders", "CK", "0"), ("g", "orders", "ACK", "0")}
        assert min(got.values()) >= 1
        retried = await labelled(
            served, "rocketmq_pop_revive_retry_messages_total", "consumer_group", "topic", "put_status"
        )
        assert retried == {("g", "orders", "PUT_OK"): 1}
        out = await labelled(served, "rocketmq_messages_out_total", "consumer_group", "topic", "is_retry")
        assert out.items() >= {("g", "orders", "false"): 2, ("g", "orders", "true"): 1}.items()
        size = await labelled(served, "rocketmq_throughput_out_total", "consumer_group", "is_retry")
        assert size["g", "false"] > size["g", "true"] > 0


async def test_what_is_after_the_last_check_point_done_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client, state = await served.client(), served.controller._state
        names = [f"rocketmq_pop_revive_{name}_milliseconds" for name in ("lag", "latency")]
        assert [await labelled(served, name, "queue_id") for name in names] == [{("0",): 0}] * 2
        monkeypatch.setattr(revive_round, "JUDGED_AFTER_MS", 1 << 40)
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        began_ms = state.clock.now_ms()
        assert (await pop(client, "orders", invisible_ms=1200)).code == 0
        assert (await client.pull(REVIVE, hold_ms=LONG_MS)).code == 0
        assert await labelled(served, names[0], "queue_id") == {("0",): 1}
        while (await labelled(served, names[1], "queue_id"))[("0",)] == 0:  # a round has looked at it
            await client.round_trip()
        (late_ms,) = (await labelled(served, names[1], "queue_id")).values()
        assert late_ms <= state.clock.now_ms() - began_ms - 1200


async def test_a_check_point_that_cannot_be_put_is_counted_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: Appends, row: PutRow) -> PutRowResult:
        raise StoreFullError("full")

    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        monkeypatch.setattr(Appends, "append_row", full)
        assert (await pop(client, "orders")).code != 0
        put = await labelled(served, "rocketmq_pop_revive_in_message_total", "put_status")
        assert put == {("UNKNOWN_ERROR",): 1}
