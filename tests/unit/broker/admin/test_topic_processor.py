"""Topics and groups over sockets: made, changed, shown, deleted, on the disk before the answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reput import Message, TopicConfig
from reput.formats.fastjson import decode_fastjson
from reput.formats.metadata import Topics, decode_metadata
from reput.remoting.codes import RequestCode, ResponseCode
from tests.support.broker import Client, consumer, messages_of, pull_command, serving_broker, with_topic


def on_disk(store: Path, name: str, table: str) -> Any:
    return decode_fastjson((store / "config" / name).read_bytes())[table]


async def topic_config(client: Client, topic: str) -> Any:
    answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic=topic)
    return json.loads(answer.body) if answer.code == 0 else answer.code


async def test_a_topic_is_made_changed_shown_and_deleted(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async with serving_broker(store) as served:
        client = await served.client()
        assert await topic_config(client, "orders") == ResponseCode.TOPIC_NOT_EXIST
        await with_topic(client, "orders", 3, attributes="+message.type=FIFO", order=True)
        shown = await topic_config(client, "orders")
        assert shown == {
            "topicName": "orders", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": True,
            "attributes": {"message.type": "FIFO"},
        }  # fmt: skip
        assert on_disk(store, "topics.json", "topicConfigTable")["orders"]["writeQueueNums"] == 3
        await with_topic(client, "orders", 5)
        assert (await topic_config(client, "orders"))["readQueueNums"] == 5
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = json.loads(answer.body)
        assert table["topicConfigTable"]["orders"]["readQueueNums"] == 5
        assert {"TBW102", "SELF_TEST_TOPIC", "broker-a", "DefaultCluster"} <= set(table["topicConfigTable"])
        assert table["dataVersion"]["counter"] > 0
        await client.send_message("orders")
        await client.heartbeat("c", consumer("g", "orders"))
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")).code == 0
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")).code == 0
        assert await topic_config(client, "orders") == ResponseCode.TOPIC_NOT_EXIST
        assert "orders" not in on_disk(store, "topics.json", "topicConfigTable")
        assert served.controller._state.offsets.query_offset("g", "orders", 0) == -1


@pytest.mark.parametrize("committed", [None, 0, 1, 2])
async def test_a_topic_that_is_made_again_has_its_new_messages_alone(tmp_path: Path, committed: int | None) -> None:
    """As docs/admin.md says: for a group that had consumed all, or some, or nothing, and for a new one."""
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        await client.heartbeat("c", consumer("g", "orders"))
        await with_topic(client, "orders", 1)
        await client.send_message("orders", b"old-0")
        await client.send_message("orders", b"old-1")
        if committed is not None:
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields, commitOffset=committed)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")).code == 0
        await with_topic(client, "orders", 1)
        await client.send_message("orders", b"new")
        for group in ("g", "fresh"):
            offset = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields | {"consumerGroup": group})
            assert (offset.code, offset.ext_fields) == (0, {"offset": "2"})  # wherever it would begin
        assert [one.body for one in messages_of(await client.pull("orders", 2))] == [b"new"]
        for begin in (0, 1):
            answer = await client.pull("orders", begin)
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")


async def test_a_group_without_an_offset_begins_at_the_first_new_message_as_in_rocketmqs_new_queue(
    tmp_path: Path,
) -> None:
    """Also if it begins at the last message otherwise; in a queue without a new message it hears that it has none."""
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        for queue_id in (0, 1):
            await client.send_message("orders", b"old", queueId=queue_id)
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        await with_topic(client, "orders", 2)
        await client.send_message("orders", b"new", queueId=1)
        fields = {"consumerGroup": "g", "topic": "orders"}
        answers = [
            await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields, queueId=queue_id) for queue_id in (0, 1)
        ]
        assert answers[0].code == ResponseCode.QUERY_NOT_FOUND
        assert (answers[1].code, answers[1].ext_fields) == (0, {"offset": "1"})


async def test_slaves_are_told_where_a_deleted_topic_begins(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        assert b"begin" not in (await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body
        await with_topic(client, "orders", 1)
        await client.send_message("orders", b"old")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        topics = decode_metadata(Topics, (await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
        assert topics.begin_offset_table == {"orders": served.controller._state.store.max_commit_log_offset}


async def test_old_messages_are_found_by_key_and_a_delayed_one_comes_when_it_is_due(tmp_path: Path) -> None:
    """As docs/admin.md says, and as in RocketMQ."""
    async with serving_broker(tmp_path / "store", message_delay_level="1s") as served:
        client, store = await served.client(), served.controller._state.store
        await with_topic(client, "orders", 1)
        await client.send_message("orders", b"old", properties={"KEYS": "k"})
        await client.send_message("orders", b"late", properties={"DELAY": "1"})
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")).code == 0
        await with_topic(client, "orders", 1)
        pulled = await client.pull("orders", 1, hold_ms=20_000)
        assert [one.body for one in messages_of(pulled)] == [b"late"]
        assert [one.body for one in await asyncio.to_thread(store.query_message, "orders", "k")] == [b"old"]


async def test_messages_that_were_popped_and_not_acked_are_deleted_with_their_topic(tmp_path: Path) -> None:
    """RocketMQ knows the groups by their offsets; messages that clients have sent back are those of their group."""
    names, others = ["orders", "%RETRY%g_orders", "%RETRY%g+orders"], ["%RETRY%other_orders", "%RETRY%g"]
    async with serving_broker(tmp_path / "store") as served:
        client, store = await served.client(), served.controller._state.store
        await client.heartbeat("c", consumer("g", "orders"))
        await asyncio.to_thread(store.update_topics, [TopicConfig(name, 1, 1) for name in [*names, *others]])
        await asyncio.to_thread(store.put_messages, [Message(name, b"old") for name in [*names, *others]])
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields, commitOffset=1)
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        assert store.topics.keys() & {*names, *others} == set(others)
        assert store.topic_metadata.begin_offset_table == dict.fromkeys(names, store.max_commit_log_offset)


async def test_topics_that_rocketmq_refuses_are_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        fields = {
            "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }  # fmt: skip
        system = "The topic[TBW102] is conflict with system topic."
        cases = [
            (RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topic": "TBW102"}, 29, system),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topic": " "}, 29, "The specified topic is blank."),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, fields, 29, "The specified topic is blank."),
            (
                RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topic": "a", "attributes": "+x=1"}, 1,
                "unsupported key: x",
            ),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}, 29, system),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {}, 29, "The specified topic is blank."),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": ""}, 29, "The specified topic is blank."),
        ]  # fmt: skip
        for code, given, expected, remark in cases:
            answer = await client.ask(code, **given)
            assert (answer.code, answer.remark) == (expected, remark)
        answer = await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, **(fields | {"topic": "a", "topicFilterType": "X"})
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_group_is_made_changed_shown_and_deleted(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async with serving_broker(store) as served:
        client = await served.client()

        async def group(name: str) -> Any:
            answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=name)
            return json.loads(answer.body) if answer.code == 0 else answer.code

        assert await group("g") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        for times in (3, 5):
            body = json.dumps({"groupName": "g", "retryMaxTimes": times}).encode()
            assert (await client.ask(update, body)).code == 0
            shown = await group("g")
            assert (shown["retryMaxTimes"], shown["retryQueueNums"], shown["consumeEnable"]) == (times, 1, True)
            written = on_disk(store, "subscriptionGroup.json", "subscriptionGroupTable")
            assert written["g"]["retryMaxTimes"] == times
        answer = await client.ask(update, b'{"groupName":"a b"}')
        assert answer.code == ResponseCode.INVALID_PARAMETER
        table = json.loads((await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert {"g", "TOOLS_CONSUMER"} <= set(table["subscriptionGroupTable"])
        await with_topic(client, "orders")
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
        offsets = served.controller._state.offsets
        for given, left in (({}, 1), ({"cleanOffset": True}, -1), ({"removeOffset": True}, -1)):
            await client.ask(update, b'{"groupName":"g"}')
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
            assert (await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", **given)).code == 0
            assert await group("g") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert offsets.query_offset("g", "orders", 0) == left
        assert "g" not in on_disk(store, "subscriptionGroup.json", "subscriptionGroupTable")


async def test_a_group_is_forbidden_to_read_a_topic_and_allowed_again(tmp_path: Path) -> None:
    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    where = {"group": "g", "topic": "orders"}

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.send_message("orders", b"one")
        await client.heartbeat("c", consumer("g", "orders"))

        async def pulled() -> int:
            return int((await client.begin_all([pull_command("orders", tags=None)])[0]).code)

        steps: tuple[tuple[dict[str, bool], bool], ...] = (
            ({}, True), ({"readable": False}, False), ({}, False), ({"readable": True}, True),
        )  # fmt: skip
        for given, readable in steps:
            answer = await client.ask(code, **where, **given)
            assert (answer.code, json.loads(bytes(answer.body))) == (0, where | {"readable": readable})
            assert await pulled() == (ResponseCode.SUCCESS if readable else ResponseCode.NO_PERMISSION)
            if given:
                kept = on_disk(tmp_path / "store", "subscriptionGroup.json", "forbiddenTable")
                assert kept == ({} if readable else {"g": {"orders": 4}})
        assert (await client.ask(code, topic="orders")).code == ResponseCode.SYSTEM_ERROR


async def test_topics_and_groups_are_made_by_lists_all_or_none(tmp_path: Path) -> None:
    def topics(*names: str) -> bytes:
        rows = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in names]
        return json.dumps({"topicConfigList": rows}).encode()

    def groups(*names: str) -> bytes:
        return json.dumps({"groupConfigList": [{"groupName": name} for name in names]}).encode()

    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        assert (await client.ask(code, topics("a", "b"))).code == 0
        assert state.topics.select_topic_config("b").write_queue_nums == 2
        assert (await client.ask(code, topics("c", "no name"))).code == ResponseCode.INVALID_PARAMETER
        assert state.topics.select_topic_config("c") is None
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        assert (await client.ask(code, groups("g", "h"))).code == 0
        assert (await client.ask(code, groups("i", "no name"))).code == ResponseCode.INVALID_PARAMETER
        assert {"g", "h"} <= state.groups.subscription_group_table.keys()
        assert "i" not in state.groups.subscription_group_table


async def test_system_topics_are_those_of_the_start(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        answer = await client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a"} <= set(json.loads(answer.body)["topicList"])
