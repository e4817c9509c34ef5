"""Which queues the members of a group get, over sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reput.formats.metadata import MessageRequestModes, decode_metadata
from reput.remoting.codes import RequestCode
from tests.support.broker import Client, consumer, serving_broker, with_topic


async def assigned(client: Client, client_id: str, topic: str = "orders", **more: str) -> Any:
    body = {"topic": topic, "consumerGroup": "g", "clientId": client_id, "strategyName": "AVG",
            "messageModel": "CLUSTERING", **more}  # fmt: skip
    answer = await client.ask(RequestCode.QUERY_ASSIGNMENT, json.dumps(body).encode())
    assert answer.code == 0, answer
    found = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    return [(one["mode"], one["messageQueue"]["queueId"]) for one in found]


async def set_mode(client: Client, mode: str, share: int, topic: str = "orders", group: str = "g") -> int:
    body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": share}
    return (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps(body).encode())).code


async def test_members_share_the_queues_and_pop_all_once_that_is_set(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with serving_broker(path) as served:
        first, second = await served.client(), await served.client()
        await with_topic(first, "orders", 4)
        assert await assigned(first, "c1") is None, "nobody is there"
        await first.heartbeat("c1", consumer("g", "orders"))
        await second.heartbeat("c2", consumer("g", "orders"))
        assert await assigned(first, "c1") == [("PULL", 0), ("PULL", 1)]
        assert await assigned(second, "c2", strategyName="AVG_BY_CIRCLE") == [("PULL", 1), ("PULL", 3)]
        assert await assigned(second, "c2", messageModel="BROADCASTING") == [("PULL", one) for one in range(4)]
        assert await assigned(second, "c2", strategyName="other") is None
        assert await assigned(second, "c3") == []
        assert await assigned(second, "c2", "none") is None
        assert [await set_mode(first, "POP", 0, topic) for topic in ("none", "%RETRY%g", "orders")] == [17, 16, 0]
        assert await set_mode(first, "WRONG", 0) == 1
        assert await assigned(first, "c1") == [("POP", -1)]
        written = decode_metadata(MessageRequestModes, (path / "config/messageRequestMode.json").read_bytes())
        assert written.message_request_mode_map["orders"]["g"].mode == "POP"
    async with serving_broker(path) as served:
        client = await served.client()
        await client.heartbeat("c1", consumer("g", "orders"))
        assert await assigned(client, "c1") == [("POP", -1)]


async def test_without_the_balancer_each_member_gets_all_queues(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", server_load_balancer_enable=False) as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        assert await assigned(client, "c1") == [("PULL", 0), ("PULL", 1)]
