"""What operators ask of groups and topics, over sockets."""

from __future__ import annotations

import json
import time
from datetime import date
from pathlib import Path

from reput.formats.metadata import SubscriptionGroupConfig
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.queue_tables import QueueKey, decode_queue_table
from tests.support.broker import Client, Served, consumer, fill, serving_broker, with_topic


async def commit(client: Client, offset: int, queue_id: int = 0) -> None:
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": queue_id, "commitOffset": offset}
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == 0


def sample(served: Served) -> None:
    """Take a sample of the counters, as the broker does every ten seconds."""
    served.controller._state.stats.sample(time.monotonic(), date.today())


async def test_offsets_of_a_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        await fill(client, "orders", "a", "b")
        (_, last) = served.controller._state.store.get_message("orders", 0, 0).messages()
        answer = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="orders")
        assert decode_queue_table(answer.body, "offsetTable") == {
            QueueKey("orders", "broker-a", 0): {
                "minOffset": 0, "maxOffset": 2, "lastUpdateTimestamp": last.store_timestamp,
            },
            QueueKey("orders", "broker-a", 1): {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0},
        }  # fmt: skip
        answer = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="none")
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[none] not exist")


async def test_how_far_a_group_is(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        await with_topic(client, "others")
        served.controller._state.groups.update_subscription_group_config([SubscriptionGroupConfig("g")], 1)
        for _ in range(3):  # seen by requests that come after them
            assert (await client.send_message("orders")).code == 0
        await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g")
        (first, *_) = served.controller._state.store.get_message("orders", 0, 0).messages()
        await commit(client, 1)
        expected = {
            QueueKey("orders", "broker-a", 0): {
                "brokerOffset": 3, "consumerOffset": 1, "pullOffset": 1, "lastTimestamp": first.store_timestamp,
            },
            QueueKey("orders", "broker-a", 1): {
                "brokerOffset": 0, "consumerOffset": 0, "pullOffset": 0, "lastTimestamp": 0,
            },
        }  # fmt: skip
        for more in ({}, {"topic": "orders"}, {"topicList": "orders;none;"}):
            answer = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g", **more)
            assert decode_queue_table(answer.body, "offsetTable") == expected
        await client.heartbeat("c", consumer("g", "others"))  # members do not subscribe to the topic any more
        answer = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g")
        assert decode_queue_table(answer.body, "offsetTable") == {}
        answer = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topicList="orders;")
        assert decode_queue_table(answer.body, "offsetTable") == expected


async def test_groups_of_a_topic_have_members_or_offsets(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        served.controller._state.groups.update_subscription_group_config([SubscriptionGroupConfig("g")], 1)
        await commit(client, 0)
        await client.heartbeat("c", consumer("online", "orders"))
        answer = await client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
        assert json.loads(answer.body) == {"groupList": ["g", "online"]}


async def test_growth_of_counters_is_told_once_a_sample_has_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a", "b", "c")
        for _ in range(2):
            assert (await client.pull("orders")).code == 0
        asked = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
        answer = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, **asked)
        assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <orders> not exist")
        sample(served)
        answer = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, **asked)
        nothing = {"sum": 0, "tps": 0.0, "avgpt": 0.0}
        assert json.loads(answer.body) == {
            "statsMinute": {"sum": 3, "tps": 0.3, "avgpt": 1.0}, "statsHour": nothing, "statsDay": nothing,
        }  # fmt: skip
        asked = {"statsName": "GROUP_GET_NUMS", "statsKey": "orders@g"}
        answer = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, **asked)
        assert json.loads(answer.body)["statsMinute"] == {"sum": 6, "tps": 0.6, "avgpt": 3.0}
        answer = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="orders")
        assert b'"topicPutTps":0.3' in answer.body
        answer = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topic="orders")
        assert b'"consumeTps":0.6' in answer.body


async def test_how_far_all_groups_are(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await with_topic(client, "sorted", order=True)
        served.controller._state.groups.update_subscription_group_config([SubscriptionGroupConfig("g")], 1)
        await fill(client, "orders", "a", "b")
        (first, *_) = served.controller._state.store.get_message("orders", 0, 0).messages()
        await commit(client, 1)
        answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
        queue = b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
        offsets = b'{"brokerOffset":2,"consumerOffset":1,"lastTimestamp":%d,"pullOffset":1}' % first.store_timestamp
        stats = b'{"g":[{"consumeTps":0.0,"offsetTable":{%b:%b}}]}' % (queue, offsets)
        assert stats in answer.body
        assert answer.body.startswith(b'{"brokerAddr":"%b"' % served.controller.address.encode())
        assert answer.body.endswith(b'"totalDiff":1,"totalInflightDiff":0}')
        answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=True)
        assert b'{"g":[]}' in answer.body
        assert b'"totalDiff":0' in answer.body


async def test_store_times_of_a_topic_and_of_a_group_in_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        served.controller._state.groups.update_subscription_group_config([SubscriptionGroupConfig("g")], 1)
        await fill(client, "orders", "a", "b", "c")
        first, second, third = served.controller._state.store.get_message("orders", 0, 0).messages()
        await commit(client, 2)
        before = int(time.time() * 1000)
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="orders", group="g")
        full, empty = json.loads(answer.body)["consumeTimeSpanSet"]
        assert full.pop("delayTime") >= before - third.store_timestamp
        assert full == {
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "orders"},
            "minTimeStamp": first.store_timestamp, "maxTimeStamp": third.store_timestamp,
            "consumeTimeStamp": second.store_timestamp,
        }  # fmt: skip
        assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)
        await commit(client, 3)
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="orders", group="g")
        assert json.loads(answer.body)["consumeTimeSpanSet"][0]["delayTime"] == 0
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="none", group="g")
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[none] not exist")
