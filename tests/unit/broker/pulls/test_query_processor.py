"""Queries over sockets: by key, by id, by time, and the ends of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from reput.broker.pulls import query_processor
from reput.formats.java import INT64_MAX
from reput.formats.message_ext import MessageExt
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    Client,
    Served,
    batch_command,
    messages_of,
    send_command,
    serving_broker,
    with_topic,
)
from tests.support.cold_pages import ColdPages


async def by_key(client: Client, key: str, *, count: int = 32, **more: object) -> tuple[int, list[bytes]]:
    """Code of the answer, and the bodies of its messages."""
    fields = {"topic": "orders", "key": key, "maxNum": count, "beginTimestamp": 0, "endTimestamp": INT64_MAX} | more
    answer = await client.ask(RequestCode.QUERY_MESSAGE, **fields)
    if answer.code:
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"
        return answer.code, []
    return 0, [message.body for message in messages_of(answer)]


async def send_keyed(client: Client, count: int) -> None:
    """Send messages with the keys all, k-0, k-1, ..., and return when they can be found."""
    for number in range(count):
        properties = {"KEYS": f"all k-{number}", "UNIQ_KEY": f"{number:032X}"}
        await client.send_message("orders", b"%d" % number, properties=properties)
    await client.pull("orders", count - 1, hold_ms=60_000)


async def test_messages_are_found_by_key_and_by_unique_key(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", defaultQueryMaxNum=1) as served:
        client = await served.client()
        await send_keyed(client, 3)
        assert await by_key(client, "k-1") == (0, [b"1"])
        assert await by_key(client, "all") == (0, [b"0", b"1", b"2"])
        assert await by_key(client, "all", count=2) == (0, [b"1", b"2"])
        assert await by_key(client, "all", _UNIQUE_KEY_QUERY="true") == (0, [b"2"])
        assert await by_key(client, f"{2:032X}", _UNIQUE_KEY_QUERY="true") == (0, [b"2"])
        assert await by_key(client, "none") == (ResponseCode.QUERY_NOT_FOUND, [])
        assert await by_key(client, "all", beginTimestamp=INT64_MAX - 1) == (ResponseCode.QUERY_NOT_FOUND, [])
        fields = {"topic": "orders", "key": "all", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": INT64_MAX}
        answer = await client.ask(RequestCode.QUERY_MESSAGE, **fields)
        newest = messages_of(answer)[-1]
        assert answer.ext_fields == {
            "indexLastUpdateTimestamp": str(newest.store_timestamp),
            "indexLastUpdatePhyoffset": str(newest.commit_log_offset),
        }


async def test_an_answer_holds_no_more_messages_than_the_key_allows(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", max_msgs_num_batch=3) as served:
        client = await served.client()
        await send_keyed(client, 5)
        assert await by_key(client, "all") == (0, [b"2", b"3", b"4"])
        assert await by_key(client, "all", count=2) == (0, [b"3", b"4"])


async def test_an_answer_holds_the_newest_messages_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_processor, "_MOST_BYTES", 600)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await send_keyed(client, 9)
        code, bodies = await by_key(client, "all")
        assert code == 0
        assert bodies == [b"%d" % number for number in range(9)][-len(bodies) :]
        assert 1 <= len(bodies) < 9


async def test_a_message_is_viewed_by_its_offset(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await send_keyed(client, 2)
        second = messages_of(await client.pull("orders"))[1]
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=second.commit_log_offset)
        assert [message.raw for message in messages_of(answer)] == [second.raw]
        for offset in (second.commit_log_offset + 1, 1 << 40, -1):
            answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
            remark = f"can not find message by the offset, {offset}"
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_the_ends_of_a_queue_and_its_offsets_by_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")

        async def number(code: int, field: str = "offset", **more: object) -> int:
            answer = await client.ask(code, **({"topic": "orders", "queueId": 0} | more))
            assert answer.code == 0
            assert answer.ext_fields is not None
            return int(answer.ext_fields[field])

        ends = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        assert [await number(code) for code in ends] == [0, 0]
        assert [await number(code, topic="none") for code in ends] == [0, 0]
        assert await number(RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp") == -1
        await send_keyed(client, 3)
        assert [await number(code) for code in ends] == [0, 3]
        stored = [message.store_timestamp for message in messages_of(await client.pull("orders"))]
        assert await number(RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp") == stored[0]
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        for time in (stored[0] - 1, *stored):
            assert await number(search, timestamp=time) == next(i for i, at in enumerate(stored) if at >= time)
        assert await number(search, timestamp=stored[-1] + 60_000) == 3
        last = max(i for i, at in enumerate(stored) if at <= stored[0])
        assert await number(search, timestamp=stored[0], boundaryType="UPPER") == last


async def test_messages_of_a_batch_are_found_by_key_too(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.begin_all([batch_command("orders", [b"a", b"b"])])[0]
        await client.begin_all([send_command("orders", b"c", properties={"KEYS": "k"})])[0]
        await client.pull("orders", 2, hold_ms=60_000)
        assert await by_key(client, "k") == (0, [b"c"])


#: Requests that read messages, and what of the three messages of `orders` they are answered with.
READS: Mapping[str, tuple[int, dict[str, object], Callable[[RemotingCommand, list[MessageExt]], bool]]] = {
    "by key": (
        RequestCode.QUERY_MESSAGE,
        {"topic": "orders", "key": "all", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": INT64_MAX},
        lambda answer, stored: messages_of(answer) == stored,
    ),
    "by id": (
        RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}, lambda answer, stored: messages_of(answer) == stored[:1],
    ),
    "by time": (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "orders", "queueId": 0, "timestamp": INT64_MAX},
        lambda answer, stored: answer.ext_fields == {"offset": "3"},
    ),
    "earliest": (
        RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "orders", "queueId": 0},
        lambda answer, stored: answer.ext_fields == {"timestamp": str(stored[0].store_timestamp)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
async def test_a_query_that_waits_for_the_disk_delays_no_other_request(tmp_path: Path, case: str) -> None:
    files = ColdPages()
    code, fields, is_right = READS[case]

    async with serving_broker(tmp_path / "store", files=files) as served:
        client, other = await served.client(), await served.client()
        await send_keyed(client, 3)
        stored = messages_of(await client.pull("orders"))
        with files.cold(), files.held():
            asked = client.begin(code, **fields)
            await asyncio.to_thread(files.wait)
            assert (await other.send_message("orders", b"new")).code == 0
            assert (await other.send_message("payments", b"topic")).code == 0
            assert not asked.done()
        answer = await asked
        assert answer.code == 0
        assert is_right(answer, stored), answer


# -- under pressure


@contextmanager
def busy_pool(served: Served) -> Iterator[None]:
    """Until the end of the block the threads that may wait for the disk wait for it."""
    gate = Event()
    state = served.controller._state
    for pool in (state.pools.reads._pool, state.pools.writes._pool):
        for _ in range(pool._max_workers):
            pool.submit(gate.wait, 60)
    try:
        yield
    finally:
        gate.set()


KEY = {"topic": "orders", "key": "all", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": INT64_MAX}
SEARCH = {"topic": "orders", "queueId": 0, "timestamp": 0}


async def test_queries_beyond_their_bound_are_refused_and_other_requests_are_not(tmp_path: Path) -> None:
    busy = "[OVERLOAD]system busy, start flow control for a while"

    keys = {
        "queryThreadPoolQueueCapacity": 4, "adminBrokerThreadPoolQueueCapacity": 2,
        "waitTimeMillsInAdminBrokerQueue": 60_000,
    }  # fmt: skip
    async with serving_broker(tmp_path / "store", **keys) as served:
        client, other = await served.client(), await served.client()
        await send_keyed(client, 1)
        with busy_pool(served):
            begun = [client.begin(RequestCode.QUERY_MESSAGE, **KEY) for _ in range(2)]
            begun += [client.begin(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **SEARCH)]
            for code, fields in (
                (RequestCode.QUERY_MESSAGE, KEY), (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}),
                (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SEARCH),
                (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "x"}),
            ):  # fmt: skip
                answer = await client.ask(code, **fields)
                assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, busy)
            await client.heartbeat("c")
            assert (await client.send_message("orders")).code == 0
            begun.append(other.begin(RequestCode.QUERY_MESSAGE, **KEY))
            await other.round_trip()
            assert not any(one.done() for one in begun)
        assert [(await one).code for one in begun] == [0, 0, 0, 0]
        assert (await by_key(client, "all"))[0] == 0


async def test_a_query_whose_turn_does_not_come_is_refused_and_not_done(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", waitTimeMillsInAdminBrokerQueue=20) as served:
        client = await served.client()
        await send_keyed(client, 1)
        with busy_pool(served):
            begun = [client.begin(RequestCode.QUERY_MESSAGE, **KEY) for _ in range(2)]
            answers = await asyncio.gather(*begun)
            remark = (
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 20ms, "
                "size of queue: "
            )
            assert [(one.code, one.remark) for one in answers] == [
                (ResponseCode.SYSTEM_BUSY, f"{remark}1"),
                (ResponseCode.SYSTEM_BUSY, f"{remark}0"),
            ]
        while (answer := await client.ask(RequestCode.QUERY_MESSAGE, **KEY)).code == ResponseCode.SYSTEM_BUSY:
            pass  # 20 ms are little for a thread of a busy machine
        assert [message.body for message in messages_of(answer)] == [b"0"]


async def test_without_fast_failure_a_query_waits_for_its_turn(tmp_path: Path) -> None:
    keys = {"waitTimeMillsInAdminBrokerQueue": 1, "brokerFastFailureEnable": False}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await send_keyed(client, 1)
        with busy_pool(served):
            begun = client.begin(RequestCode.QUERY_MESSAGE, **KEY)
            await client.round_trip()
        assert (await begun).code == 0
