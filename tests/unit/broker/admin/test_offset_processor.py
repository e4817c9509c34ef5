"""Offsets of groups, shown and copied over sockets."""

from __future__ import annotations

import json
from pathlib import Path

from reput.formats.java import INT64_MAX
from reput.remoting.codes import RequestCode
from tests.support.broker import Client, consumer, fill, serving_broker, with_topic


async def commit(client: Client, group: str, topic: str, queue_id: int, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == 0


async def offsets(client: Client) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
    return found["offsetTable"]


async def test_offsets_are_cloned_in_one_topic_or_in_all_that_the_members_subscribe_to(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        for topic in ("a", "b"):
            await with_topic(client, topic)
            await client.heartbeat("c", consumer("from", topic))
            await commit(client, "from", topic, 0, 0)
        served.controller._state.offsets.commit_offset("from", "gone", 0, 5, 1)
        fields = {"srcGroup": "from", "topic": "a"}
        for more in ({"destGroup": "one", "offline": True}, {"destGroup": "other"}):  # members want b alone
            assert (await client.ask(RequestCode.CLONE_GROUP_OFFSET, **fields, **more)).code == 0
        for group, offline in (("all", True), ("subscribed", False)):
            fields = {"srcGroup": "from", "destGroup": group, "offline": offline}
            assert (await client.ask(RequestCode.CLONE_GROUP_OFFSET, **fields)).code == 0
        table = await offsets(client)
        clones = {key for key in table if not key.endswith("@from")}
        assert clones == {"a@one", "a@all", "b@all", "b@subscribed"}
        assert table["a@one"] == {"0": 0}
        path = tmp_path / "store/config/consumerOffset.json"
        assert "a@one" in path.read_text()


async def test_corrections_are_the_smallest_offsets_of_other_groups(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        await fill(client, "orders", *"abcd")
        for group, first, second in (("g", 3, 0), ("h", 2, 0), ("slow", 1, 0), ("compared", 4, 0)):
            await client.heartbeat("c", consumer(group, "orders"))
            await commit(client, group, "orders", 0, first)
            await commit(client, group, "orders", 1, second)
        asked = {"topic": "orders", "compareGroup": "compared"}
        answer = await client.ask(RequestCode.QUERY_CORRECTION_OFFSET, **asked, filterGroups="slow")
        assert json.loads(answer.body) == {"correctionOffsets": {"0": 2, "1": 0}}
        asked["compareGroup"] = "slow"
        answer = await client.ask(RequestCode.QUERY_CORRECTION_OFFSET, **asked, filterGroups="slow")
        assert json.loads(answer.body) == {"correctionOffsets": {"0": INT64_MAX, "1": 0}}
        assert (await offsets(client))["orders@slow"] == {"0": 1, "1": 0}  # RocketMQ forgets them


async def test_topics_of_a_group_and_what_it_subscribes_to(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.heartbeat("c", consumer("g", "orders", tags="paid"))
        await commit(client, "g", "orders", 0, 0)
        answer = await client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g")
        assert json.loads(answer.body) == {"brokerAddr": served.controller.address, "topicList": ["orders"]}
        answer = await client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="orders")
        body = json.loads(answer.body)
        assert (body["group"], body["topic"], body["subscriptionData"]["tagsSet"]) == ("g", "orders", ["paid"])
        answer = await client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="none", topic="orders")
        assert json.loads(answer.body) == {"group": "none", "topic": "orders"}
