"""Messages of the delay levels: never early, never lost, in their order."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reput.broker import schedule_message_service
from reput.broker.appends.inner_appends import Appends
from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFullError
from reput.files import DISK
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.hosts import encode_host
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import DelayOffsets, decode_metadata
from reput.log.metadata import read_metadata
from reput.remoting.codes import RequestCode, ResponseCode
from reput.store.puts.put_rows import PutRow
from tests.support.broker import LONG_MS, SYNCED, Client, Served, messages_of, serving_broker, with_topic

#: The delays of the levels in these tests, in ms.
DELAYS_MS = (30, 150)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageStoreConfig, "delay_levels_ms", property(lambda _: DELAYS_MS))


async def received(client: Client, count: int, topic: str = "orders", offset: int = 0) -> list[MessageExt]:
    """So many messages of a topic; waits until they are there."""
    found: list[MessageExt] = []
    while len(found) < count:
        found += messages_of(await client.pull(topic, offset + len(found), hold_ms=LONG_MS))
    return found


def waiting(served: Served, level: int) -> list[MessageExt]:
    """The messages of a level, delivered or not."""
    found: list[MessageExt] = []
    while some := served.controller._state.store.get_message(SCHEDULE_TOPIC, level - 1, len(found)).messages():
        found += some
    return found


async def send_delayed(client: Client, body: bytes, level: int, **properties: str) -> None:
    answer = await client.send_message("orders", body, properties={"DELAY": str(level), **properties})
    assert answer.code == ResponseCode.SUCCESS, answer


@pytest.mark.parametrize("keys", [{}, SYNCED], ids=["async", "sync"])
async def test_a_message_comes_after_its_delay_as_it_was_sent(tmp_path: Path, keys: dict[str, Any]) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await with_topic(client, "orders", 3)
        answer = await client.send_message(
            "orders",
            b"later",
            queueId=2,
            flag=7,
            properties={"DELAY": "1", "KEYS": "k", "TAGS": "t", "UNIQ_KEY": "u"},
        )
        assert (answer.code, (answer.ext_fields or {})["queueId"]) == (0, "2")
        (message,) = messages_of(await client.pull("orders", queueId=2, hold_ms=LONG_MS))
        (sent,) = waiting(served, 1)
        assert message.store_timestamp >= sent.store_timestamp + DELAYS_MS[0]
        assert (message.body, message.flag, message.tags, message.keys) == (b"later", 7, "t", ("k",))
        assert message.born_timestamp == sent.born_timestamp
        assert message.properties == sent.properties
        assert message.properties.items() >= {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "2"}.items()


async def test_messages_of_a_level_keep_their_order_and_none_is_early(tmp_path: Path) -> None:
    count = 150  # more than are put at once

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        for number in range(count):
            await send_delayed(client, b"%d" % number, 1 + number % 2, UNIQ_KEY=str(number))
        found = await received(client, count)
        for level in (1, 2):
            sent = waiting(served, level)
            of_level = [one for one in found if one.properties["DELAY"] == str(level)]
            assert [one.body for one in of_level] == [one.body for one in sent]
            late = [one.store_timestamp - before.store_timestamp for one, before in zip(of_level, sent, strict=True)]
            assert min(late) >= DELAYS_MS[level - 1]


async def test_a_level_above_the_last_is_the_last_and_none_is_at_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"far", 99)
        await send_delayed(client, b"now", 0)
        await send_delayed(client, b"negative", -1)
        assert {one.body for one in await received(client, 3)} == {b"now", b"negative", b"far"}
        assert [(one.body, one.properties["DELAY"]) for one in waiting(served, 2)] == [(b"far", "2")]
        assert waiting(served, 1) == []


@pytest.mark.parametrize(
    ("properties", "remark"),
    [({"DELAY": "x"}, "the property DELAY is 'x', no number"), ({"TIMER_DELAY_MS": "x"}, "timer message illegal")],
)
async def test_what_cannot_wait_is_refused(tmp_path: Path, properties: dict[str, str], remark: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        answer = await client.send_message("orders", properties=properties)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert remark in (answer.remark or "")


async def test_a_restart_delivers_what_waited_and_nothing_twice(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"first", 1)
        await received(client, 1)
        await send_delayed(client, b"second", 2)
    for _ in range(2):
        async with serving_broker(tmp_path / "store") as served:
            client = await served.client()
            assert [one.body for one in await received(client, 2)] == [b"first", b"second"]
    offsets = read_metadata(str(tmp_path / "store"), DelayOffsets, DISK)
    assert offsets is not None
    assert offsets.offset_table == {1: 1, 2: 1}
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await send_delayed(client, b"last", 1)
        assert [one.body for one in await received(client, 3)] == [b"first", b"second", b"last"]


async def test_a_kill_loses_nothing_and_delivers_again_what_no_file_counts(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **SYNCED) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"first", 1)
        await received(client, 1)
        await send_delayed(client, b"second", 2)
        shutil.copytree(tmp_path / "store", tmp_path / "killed")  # what a kill leaves: no file of offsets
    async with serving_broker(tmp_path / "killed", **SYNCED) as served:
        client = await served.client()
        found = [one.body for one in await received(client, 3)]
        assert (found[0], found.count(b"first"), b"second" in found) == (b"first", 2, True)


async def test_a_message_that_names_no_topic_stops_no_other(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        host = encode_host("127.0.0.1:1")
        for text in (
            b"",
            b"REAL_TOPIC\x01orders\x02",
            b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02",
        ):
            await served.controller._state.appends.append_row(PutRow(SCHEDULE_TOPIC, 0, b"x", text, 0, 0, 1, host))
        await send_delayed(client, b"good", 1)
        assert [one.body for one in await received(client, 1)] == [b"good"]


async def test_a_full_disk_holds_messages_back_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_message_service, "_RETRY_S", 0.01)
    append, failures = Appends.append_row, [StoreFullError("no space left")] * 3

    async def append_row(self: Appends, row: PutRow) -> Any:
        if failures:
            raise failures.pop()
        return await append(self, row)

    monkeypatch.setattr(Appends, "append_row", append_row)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"a", 1)
        await send_delayed(client, b"b", 1)
        assert [one.body for one in await received(client, 2)] == [b"a", b"b"]
        assert not failures


async def test_an_offset_before_or_after_all_messages_is_corrected(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"a", 1)
        await received(client, 1)
    path = tmp_path / "store/config/delayOffset.json"
    path.write_text(json.dumps({"dataVersion": {"counter": 0, "timestamp": 1}, "offsetTable": {"1": 77}}))
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await send_delayed(client, b"b", 1)
        assert (await received(client, 1, offset=1))[0].body == b"b"


async def test_a_consumers_direct_pull_of_what_waits_is_not_disturbed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await asyncio.gather(*(send_delayed(client, b"%d" % one, 1) for one in range(40)))
        answer = await client.ask(RequestCode.GET_MAX_OFFSET, topic=SCHEDULE_TOPIC, queueId=0)
        assert (answer.ext_fields or {})["offset"] == "40"
        assert len(await received(client, 40)) == 40


async def test_a_slave_is_told_the_offsets(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"a", 1)
        await received(client, 1)
        answer = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert answer.code == ResponseCode.SUCCESS
        told = decode_metadata(DelayOffsets, answer.body)
        assert told.offset_table == {1: served.controller._state.delay_offsets.offset(1)}


async def test_what_was_delivered_before_a_failure_is_not_delivered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_message_service, "_RETRY_S", 0.01)
    append, failures = Appends.append_row, [StoreFullError("no space left")] * 2

    async def append_row(self: Appends, row: PutRow) -> Any:
        if row.body == b"2" and failures:
            raise failures.pop()
        return await append(self, row)

    monkeypatch.setattr(Appends, "append_row", append_row)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await asyncio.gather(*(send_delayed(client, b"%d" % one, 2) for one in range(5)))
        await received(client, 5)
        await send_delayed(client, b"last", 1)
        assert [one.body for one in await received(client, 6)] == [b"0", b"1", b"2", b"3", b"4", b"last"]
        assert not failures


async def test_a_delivered_message_has_the_crc_of_its_own_record_alone(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", enabled_append_prop_crc=True) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"a", 1)
        (message,) = await received(client, 1)
        assert message.raw.count(b"__CRC32#") == 1


async def test_a_message_that_a_timer_has_delivered_is_put_again(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_delayed(client, b"a", 0, TIMER_DELAY_MS="5", TIMER_OUT_MS="1700000000000")
        assert [one.body for one in await received(client, 1)] == [b"a"]


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_clock_that_was_ahead_holds_no_delay_up(tmp_path: Path, restarts: bool) -> None:
    """The log's last store time is an hour ahead; the delay of a message counts from when it was put."""
    async with serving_broker(tmp_path / "store") as ahead:
        client = await ahead.client()
        await with_topic(client, "orders")
        ahead.controller._state.clock.put_forward(3_600_000)
        assert (await client.send_message("orders", b"stored an hour ahead")).code == 0
        if not restarts:
            await send_delayed(client, b"ahead", 1)
            ahead.controller._state.clock.put_forward(-3_600_000)
            await send_delayed(client, b"delayed", 2)
            assert {one.body for one in await received(client, 2, offset=1)} == {b"ahead", b"delayed"}
    if restarts:
        async with serving_broker(tmp_path / "store") as served:
            client = await served.client()
            began_s = asyncio.get_running_loop().time()
            await asyncio.gather(*(send_delayed(client, b"%d" % one, 2) for one in range(100)))
            assert len(await received(client, 100, offset=1)) == 100
            assert asyncio.get_running_loop().time() - began_s >= DELAYS_MS[1] / 1000, "not at once"
