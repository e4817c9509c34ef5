"""Messages that a consumer sends back, over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.config.message_store import MessageStoreConfig
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import SubscriptionGroupConfig
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    LONG_MS,
    Client,
    Served,
    consumer,
    messages_of,
    send_command,
    serving_broker,
    texts,
    with_topic,
)
from tests.support.metrics import MEASURED, labelled


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageStoreConfig, "delay_levels_ms", property(lambda _: (10,) * 18))


async def pulled(client: Client, topic: str) -> MessageExt:
    (message,) = messages_of(await client.pull(topic, hold_ms=LONG_MS))
    return message


async def sent_message(served: Served, client: Client, **fields: Any) -> MessageExt:
    await with_topic(client, "orders")
    await client.heartbeat("c", consumer("g", "orders"))
    assert (await client.send_message("orders", b"body", properties={"KEYS": "k", "TAGS": "t"}, **fields)).code == 0
    return await pulled(client, "orders")


async def back(client: Client, offset: int, *, version: int = 479, **fields: Any) -> RemotingCommand:
    given = {"offset": offset, "group": "g", "delayLevel": 0, "originTopic": "orders", "unitMode": False} | fields
    command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=texts(given), version=version)
    return await client.begin_all([command])[0]


async def test_a_message_comes_again_in_the_groups_retry_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        first = await sent_message(served, client, flag=5, sysFlag=0x301)
        answer = await back(client, first.commit_log_offset)
        assert (answer.code, answer.remark) == (0, None)
        again = await pulled(client, "%RETRY%g")
        store = served.controller._state.store
        assert len(store.get_message(SCHEDULE_TOPIC, 2, 0).messages()) == 1  # level 3
        assert (again.body, again.flag, again.sys_flag, again.tags, again.keys) == (b"body", 5, 0x301, "t", ("k",))
        assert (again.reconsume_times, again.born_timestamp) == (1, first.born_timestamp)
        more = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": first.message_id, "DELAY": "3", "WAIT": "false"}
        assert again.properties == first.properties | more | {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}
        assert (await back(client, again.commit_log_offset, delayLevel=7)).code == 0
        (third,) = messages_of(await client.pull("%RETRY%g", 1, hold_ms=LONG_MS))
        assert (third.reconsume_times, third.properties["ORIGIN_MESSAGE_ID"]) == (2, first.message_id)
        assert third.properties["DELAY"] == "7"
        assert served.controller._state.stats.send_backs == {("orders", "g"): 2}


@pytest.mark.parametrize(
    ("fields", "group", "version"),
    [
        ({"delayLevel": -1}, {}, 479),
        ({"maxReconsumeTimes": 0}, {}, 479),
        ({}, {"retry_max_times": 0}, 479),
        ({"maxReconsumeTimes": 5}, {"retry_max_times": 0}, 120),  # too old to say so
    ],
    ids=["at once", "of the client", "of the group", "of the group, for an old client"],
)
async def test_a_message_that_was_tried_often_enough_is_dead(
    tmp_path: Path, fields: dict[str, int], group: dict[str, int], version: int
) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        client, state = await served.client(), served.controller._state
        state.groups.update_subscription_group_config([SubscriptionGroupConfig("g", **group)], 1)
        first = await sent_message(served, client)
        assert (await back(client, first.commit_log_offset, version=version, **fields)).code == 0
        dead = await pulled(client, "%DLQ%g")
        labels = ("topic", "consumer_group", "is_system")
        counted = await labelled(served, "rocketmq_send_to_dlq_messages_total", *labels)
        assert counted == {("orders", "g", "false"): 1}
        assert (dead.body, dead.queue_id, dead.reconsume_times) == (b"body", 0, 1)
        more = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": first.message_id, "DELAY": "0", "WAIT": "false"}
        assert dead.properties == first.properties | more
        topic = state.topics.select_topic_config("%DLQ%g")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def test_a_group_without_retry_queues_has_no_retries(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        first = await sent_message(served, client)
        state.groups.update_subscription_group_config([SubscriptionGroupConfig("g", retry_queue_nums=0)], 1)
        end = state.store.max_commit_log_offset
        assert (await back(client, first.commit_log_offset)).code == 0
        assert state.store.max_commit_log_offset == end


async def test_refusals_have_rocketmqs_codes_and_remarks(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", auto_create_subscription_group=False) as served:
        client, state = await served.client(), served.controller._state
        answer = await back(client, 0, group="none")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (answer.remark or "").startswith("subscription group not exist, none ")
        state.groups.update_subscription_group_config([SubscriptionGroupConfig("g")], 1)
        answer = await back(client, 10**12)
        assert (answer.code, answer.remark) == (1, "look message by offset failed, 1000000000000")
        await with_topic(client, "%RETRY%g", perm=4)
        answer = await back(client, 0)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the topic[%RETRY%g] sending message is forbidden"


def retry(reconsume_times: int, **fields: Any) -> RemotingCommand:
    """What a consumer sends where it cannot send back."""
    return send_command(
        "%RETRY%g", b"again", properties={"DELAY": "1", "UNIQ_KEY": "u"}, reconsumeTimes=reconsume_times, **fields
    )


async def test_a_retry_that_a_consumer_sends_itself_waits_or_is_dead(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.heartbeat("c", consumer("g", "orders"))
        (answer,) = client.begin_all([retry(2, maxReconsumeTimes=2)])
        assert (await answer).code == 0
        again = await pulled(client, "%RETRY%g")
        assert (again.body, again.reconsume_times, again.properties["REAL_TOPIC"]) == (b"again", 2, "%RETRY%g")
        (answer,) = client.begin_all([retry(3, maxReconsumeTimes=2)])
        assert (await answer).code == 0
        dead = await pulled(client, "%DLQ%g")
        assert (dead.reconsume_times, dead.properties["DELAY"]) == (3, "-1")
        assert served.controller._state.stats.dead_letters == {("%RETRY%g", "g"): 1}


async def test_a_retry_of_a_group_that_consumes_in_order_is_dead_at_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        await client.heartbeat("c", consumer("g", "orders"))
        state.locks.try_lock_batch("g", [("orders", "broker-a", 0)], "c", state.clock.now_ms())
        (answer,) = client.begin_all([retry(0, maxReconsumeTimes=16)])
        assert (await answer).code == 0
        assert (await pulled(client, "%DLQ%g")).reconsume_times == 0


async def test_a_retry_of_an_unknown_group_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", auto_create_subscription_group=False) as served:
        client = await served.client()
        (answer,) = client.begin_all([retry(0)])
        assert (await answer).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert ((await answer).remark or "").startswith("subscription group not exist, g ")


async def test_a_committed_message_comes_again_as_one_of_no_transaction(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        first = await sent_message(served, client)
        message = MessageExtBrokerInner.of_record(first.raw)
        message.prepared_transaction_offset = 1234
        committed = await state.appends.put(message)
        assert (await back(client, committed.commit_log_offsets[0], delayLevel=-1)).code == 0
        assert (await pulled(client, "%DLQ%g")).prepared_transaction_offset == 0
