"""What a broker says of itself, over sockets."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from reput.broker.admin.runtime_processor import _readable
from reput.remoting.codes import RequestCode
from tests.support.broker import fill, serving_broker, with_topic

#: What `DefaultMessageStore.getRuntimeInfo` of 5.3.3 says that has a meaning here.
NAMES = set(json.loads(Path("tests/golden/runtime-info-5.3.3.json").read_text())) - {
    "dispatchMaxBuffer", "commitLogDiskRatio_STORE/commitlog",
}  # fmt: skip
#: What `mqadmin clusterList` and `brokerStatus` need.
NEEDED = {
    "brokerActive", "brokerVersionDesc", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "timerReadBehind",
    "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills",
    "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalTodayNow",
    "getTransferedTps", "getTransferredTps", "commitLogDirCapacity", "timerEnqueueTps", "timerDequeueTps",
}  # fmt: skip


async def test_the_state_of_a_broker_has_rocketmqs_names_and_texts(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a", "b")
        assert (await client.pull("orders", 0)).code == 0
        answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = json.loads(answer.body)["table"]
        assert table.keys() >= NAMES | NEEDED
        assert [name for name, text in table.items() if not isinstance(text, str)] == []
        assert table["msgPutTotalTodayNow"] == "2"
        assert int(table["msgGetTotalTodayNow"]) >= 2  # fill has pulled, too
        assert table["brokerVersionDesc"] == "V5_3_3"
        assert len(table["putTps"].split()) == 3
        assert table["dispatchBehindBytes"] == "0"
        assert int(table["earliestMessageTimeStamp"]) > 0


async def test_totals_of_a_day_begin_at_midnight(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, stats = await served.client(), served.controller._state.stats
        await with_topic(client, "orders")
        await fill(client, "orders", "a", "b")
        for day in (1, 2):
            stats.sample(10.0 * day, date(2026, 5, day))
        assert (await client.send_message("orders")).code == 0
        assert (await client.pull("orders", 0)).code == 0
        table = json.loads((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert (table["msgPutTotalYesterdayMorning"], table["msgPutTotalTodayMorning"]) == ("0", "2")
        assert table["msgPutTotalTodayNow"] == "3"
        assert int(table["msgGetTotalTodayNow"]) == int(table["msgGetTotalTodayMorning"]) + 3


async def test_an_empty_store_has_no_first_message(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        table = json.loads((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert table["earliestMessageTimeStamp"] == "-1"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 60, "3.0 EiB")],
)
def test_sizes_are_told_as_rocketmq_does(size: int, text: str) -> None:
    assert _readable(size) == text
