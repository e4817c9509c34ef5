"""Consume queues shown, and the store cleaned, over sockets."""

from __future__ import annotations

import json
import os
from pathlib import Path

from reput.broker.admin.queue_processor import QueueProcessor
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import SYNCED, Client, consumer, fill, serving_broker, with_topic


async def units(client: Client, index: int, count: int = 10, **more: object) -> RemotingCommand:
    fields = {"topic": "orders", "queueId": 0, "index": index, "count": count} | more
    return await client.ask(RequestCode.QUERY_CONSUME_QUEUE, **fields)


async def test_units_of_a_queue(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        await fill(client, "orders", "a", "b", "c")
        messages = served.controller._state.store.get_message("orders", 0, 0).messages()
        expected = [
            {
                "eval": False, "physicOffset": one.commit_log_offset, "physicSize": one.store_size,
                "tagsCode": ord(tag),
            }
            for one, tag in zip(messages, "abc", strict=True)
        ]  # fmt: skip
        body = json.loads((await units(client, 0)).body)
        assert body == {"maxQueueIndex": 3, "minQueueIndex": 0, "queueData": expected}
        assert json.loads((await units(client, 1, 1)).body)["queueData"] == expected[1:2]
        body = json.loads((await units(client, 0, queueId=1)).body)
        assert body == {"maxQueueIndex": 0, "minQueueIndex": 0, "queueData": []}


async def test_what_a_group_subscribes_to_is_beside_the_units(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.heartbeat("c", consumer("g", "orders", tags="paid"))
        body = json.loads((await units(client, 0, consumerGroup="g")).body)
        assert body["subscriptionData"]["tagsSet"] == ["paid"]
        body = json.loads((await units(client, 0, consumerGroup="none")).body)
        assert body["filterData"] == "none@orders is not online!"


async def test_a_queue_or_an_index_that_is_not_there(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        answer = await units(client, 0, queueId=7)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "7@orders is not exist!")
        for index in (1, -1):
            answer = await units(client, index)
            remark = f"Index {index} of 0@orders is not exist!"
            assert (answer.code, answer.remark, answer.body) == (0, remark, b"")
        answer = await units(client, 0, count="many")
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_expired_log_files_are_deleted_at_any_hour(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **SYNCED | {"mapped_file_size_commit_log": 1 << 16}) as served:
        client = await served.client()
        await with_topic(client, "orders")
        for _ in range(8):
            assert (await client.send_message("orders", b"x" * 20_000)).code == 0
        await client.round_trip()
        folder = tmp_path / "store/commitlog"
        first = folder / f"{0:020d}"
        os.utime(first, (1, 1))
        assert (await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        state = served.controller._state
        processor = QueueProcessor(state.pools, state.store, state.topics, state.consumers)
        processor.delete_expired(None, RemotingCommand(RequestCode.DELETE_EXPIRED_COMMITLOG))
        await processor._deleting
        assert not first.exists()
        assert served.controller._state.store.min_commit_log_offset >= 1 << 16


async def test_queues_need_no_cleaning(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC):
            assert (await client.ask(code)).code == 0
