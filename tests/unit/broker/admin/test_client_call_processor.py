"""Resets of offsets, and an operator's requests to consumers, over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput.broker import broker_to_client
from reput.formats.message_ext import MessageExt
from reput.remoting.codes import LanguageCode, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables
from tests.support.broker import Client, Served, consumer, fill, serving_broker, texts, with_topic

BY_CLIENTS = {"useServerSideResetOffset": "false"}


def key(queue_id: int, topic: str = "orders") -> QueueKey:
    return QueueKey(topic, "broker-a", queue_id)


async def reset(client: Client, **fields: Any) -> RemotingCommand:
    given = {"topic": "orders", "group": "g", "timestamp": -1, "isForce": True} | fields
    return await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **given)


async def commit(client: Client, offset: int, queue_id: int = 0) -> RemotingCommand:
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": queue_id, "commitOffset": offset}
    return await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


async def with_group(served: Served, queues: int = 1, messages: int = 3) -> Client:
    """A consumer of a topic with messages in its first queue."""
    client = await served.client()
    await with_topic(client, "orders", queues)
    await fill(client, "orders", *["a"] * messages)
    await client.heartbeat("c", consumer("g", "orders"))
    await client.requests.get()  # that members have come
    return client


def offset_of(served: Served, queue_id: int = 0) -> int:
    return served.controller._state.offsets.query_offset("g", "orders", queue_id)


# -- offsets that the broker resets


async def test_a_reset_is_for_all_queues_and_told_to_the_next_pull(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await with_group(served, queues=2)
        assert (await commit(client, 3)).code == 0
        answer = await reset(client, timestamp=0)
        assert (answer.code, answer.remark) == (0, None)
        assert decode_queue_table(answer.body, "offsetTable") == {key(0): 0, key(1): 0}
        assert [offset_of(served, queue_id) for queue_id in range(2)] == [0, 0]
        late = await commit(client, 3)  # of a consumer that does not know yet
        assert (late.code, late.remark, offset_of(served)) == (0, "Offset has been previously reset", 0)
        told = await client.pull("orders", 3, commit=3)
        assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert (told.ext_fields or {})["nextBeginOffset"] == "0"
        assert (await client.pull("orders", 0, commit=0)).code == 0
        assert (await commit(client, 2)).remark is None
        assert [offset_of(served, queue_id) for queue_id in range(2)] == [2, 0]
        assert client.requests.qsize() == 0  # it is told by its pulls alone


async def test_a_reset_sees_what_was_sent_before_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await with_group(served, messages=0)
        await client.send_message("orders")
        answer = await reset(client)
        assert decode_queue_table(answer.body, "offsetTable") == {key(0): 1}


@pytest.mark.parametrize(
    ("fields", "code", "found"),
    [
        ({"queueId": 0, "offset": 2}, 0, {key(0): 2}),
        ({"queueId": 0, "offset": 4}, 0, {key(0): 4}),
        ({"queueId": 0, "offset": -1}, 0, {key(0): 3}),
        ({"queueId": 1, "timestamp": 0}, 0, {key(1): 0}),
        ({"queueId": -1, "offset": 1}, 0, {key(0): 3, key(1): 0}),
        ({"queueId": 0, "offset": 5}, ResponseCode.SYSTEM_ERROR, "Target offset 5 not in consume queue range [0-3]"),
        ({"queueId": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR, "Target offset -2 not in consume queue range [0-3]"),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "Topic none does not exist"),
        ({"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group none does not exist"),
        ({"topic": "empty"}, ResponseCode.SYSTEM_ERROR, "No queues to reset."),
    ],
)
async def test_what_a_reset_may_name(tmp_path: Path, fields: dict[str, Any], code: int, found: Any) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await with_group(served, queues=2)
        await with_topic(client, "empty", 0)
        answer = await reset(client, **fields)
        told = decode_queue_table(answer.body, "offsetTable") if answer.body else answer.remark
        assert (answer.code, told) == (code, found)


# -- offsets that clients reset


@pytest.mark.parametrize(("is_force", "expected"), [(True, 3), (False, 2)])
async def test_the_members_are_told_to_reset_their_offsets(tmp_path: Path, is_force: bool, expected: int) -> None:
    async with serving_broker(tmp_path / "store", **BY_CLIENTS) as served:
        client = await with_group(served)
        await commit(client, 2)
        answer = await reset(client, isForce=is_force)
        assert decode_queue_table(answer.body, "offsetTable") == {key(0): expected}
        told = await client.requests.get()
        assert (told.code, told.is_one_way) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert told.ext_fields == {
            "topic": "orders", "group": "g", "timestamp": "-1", "isForce": "false", "queueId": "-1",
        }  # fmt: skip
        assert told.body == answer.body
        assert offset_of(served) == 2  # until the client commits


async def test_an_operator_in_cpp_makes_the_body_a_list(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **BY_CLIENTS) as served:
        client = await with_group(served)
        await commit(client, 2)
        fields = texts({"topic": "orders", "group": "g", "timestamp": 0, "isForce": True})
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        assert (
            await client.begin_all([RemotingCommand(code, ext_fields=fields, language=LanguageCode.CPP)])[0]
        ).code == 0
        told = await client.requests.get()
        assert told.body == b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"orders"}]}'


async def test_resets_that_clients_cannot_do_are_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **BY_CLIENTS) as served:
        client = await with_group(served)
        answer = await reset(client, topic="none")
        assert (answer.code, answer.remark) == (
            ResponseCode.TOPIC_NOT_EXIST, "[reset-offset] reset offset failed, no topic in this broker. topic=none",
        )  # fmt: skip
        answer = await reset(client)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "THe consumer group <g> not exist")
        await commit(client, 1)
        info = next(iter(served.controller._state.consumers.channels("g").values()))
        info.version = 27
        answer = await reset(client)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "the client does not support this feature. version=27",
        )  # fmt: skip
        await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="c", consumerGroup="g")
        answer = await reset(client)
        assert (answer.code, answer.remark) == (
            ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, Group: g Topic: orders Timestamp: -1",
        )


# -- how far consumers are


async def test_the_status_of_consumers_is_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_broker(tmp_path / "store") as served:
        one, two, three, operator = [await served.client() for _ in range(4)]
        await with_topic(one, "orders")
        for name, client in (("1", one), ("2", two), ("3", three)):
            await client.heartbeat(name, consumer("g", "orders", messageModel="BROADCASTING"))
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = operator.begin(code, topic="orders", group="g", clientAddr="")
        for client, offset in ((one, 5), (two, 7)):
            asked = await client.requests.get()
            assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            assert asked.ext_fields == {"topic": "orders", "group": "g"}
            body = encode_queue_tables({"consumerTable": {}, "messageQueueTable": {key(0): offset}})
            client.send(asked.response(body=body))
        three.send((await three.requests.get()).response(body=b"{"))  # it is left out
        expected = {"1": {key(0): 5}, "2": {key(0): 7}}
        assert (await answer).body == encode_queue_tables({"consumerTable": expected, "messageQueueTable": {}})

        infos = served.controller._state.consumers.channels("g").values()
        next(info for info in infos if info.client_id == "3").version = 27
        refused = await operator.ask(code, topic="orders", group="g")
        assert refused.remark == "the client does not support this feature. version=27"
        answer = operator.begin(code, topic="orders", group="g", clientAddr="2")  # those after it do not matter
        two.send((await two.requests.get()).response(ResponseCode.SYSTEM_ERROR, "no"))
        assert (await answer).body == b'{"consumerTable":{},"messageQueueTable":{}}'
        monkeypatch.setattr(broker_to_client, "_STATUS_S", 0.01)
        assert (await operator.ask(code, topic="orders", group="g", clientAddr="1")).code == 0
        answer = operator.begin(code, topic="orders", group="none")
        remark = "No Any Consumer online in the consumer group: [none]"
        assert ((await answer).code, (await answer).remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert [client.requests.qsize() for client in (one, two, three)] == [1, 0, 0]


# -- requests that are handed on


async def test_running_info_is_handed_on_and_back(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, operator = await with_group(served), await served.client()
        fields = {"consumerGroup": "g", "clientId": "c", "jstackEnable": True, "AccessKey": "me"}
        answer = operator.begin(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
        asked = await client.requests.get()
        assert (asked.code, asked.flag) == (RequestCode.GET_CONSUMER_RUNNING_INFO, 0)
        assert asked.ext_fields == texts(fields)
        client.send(asked.response(7, "a remark", {"a": "b"}, b"{}"))
        told = await answer
        assert (told.code, told.remark, told.ext_fields, told.body) == (7, "a remark", {"a": "b"}, b"{}")


@pytest.mark.parametrize("how", ["is not there", "is too old", "is silent", "leaves"])
async def test_a_consumer_that_gives_no_answer(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        "is not there": (ResponseCode.SYSTEM_ERROR, "The Consumer <g> <d> not online"),
        "is too old": (
            ResponseCode.SYSTEM_ERROR,
            "The Consumer <c> Version <61> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
        ),
        "is silent": (ResponseCode.CONSUME_MSG_TIMEOUT, "consumer <g> <c> Timeout: "),
        "leaves": (ResponseCode.SYSTEM_ERROR, "invoke consumer <g> <c> Exception: "),
    }

    if how == "is silent":
        monkeypatch.setattr(broker_to_client, "_CALL_S", 0.01)
    async with serving_broker(tmp_path / "store") as served:
        client, operator = await with_group(served), await served.client()
        if how == "is too old":
            next(iter(served.controller._state.consumers.channels("g").values())).version = 61
        client_id = "d" if how == "is not there" else "c"
        answer = operator.begin(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId=client_id)
        if how == "leaves":
            await client.requests.get()
            await client.leave()
        told = await answer
        code, remark = expected[how]
        assert told.code == code
        assert str(told.remark).startswith(remark)


async def test_a_message_is_consumed_directly(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, operator = await with_group(served), await served.client()
        sent = (await operator.send_message("orders", b"look", properties={"TAGS": "t"})).ext_fields or {}
        fields = {"consumerGroup": "g", "clientId": "c", "msgId": sent["msgId"], "topic": "orders"}
        answer = operator.begin(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields)
        asked = await client.requests.get()
        assert asked.ext_fields == {**fields, "brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
        message = MessageExt(asked.body)
        assert (message.body, message.tags, message.message_id) == (b"look", "t", sent["msgId"])
        client.send(asked.response(body=b'{"consumeResult":"CR_SUCCESS"}'))
        assert (await answer).body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({}, "message id ''"),
        ({"msgId": "no"}, "message id 'no'"),
        ({"msgId": "7F00000100002A9F00000000FFFFFFFF"}, "can not find message by the offset, 4294967295"),
        ({"msgId": "FIRST"}, "The Consumer <g> <null> not online"),
    ],
)
async def test_a_message_that_cannot_be_consumed_directly(tmp_path: Path, fields: dict[str, str], remark: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await with_group(served)
        sent = (await client.send_message("orders")).ext_fields or {}
        given = {name: sent["msgId"] if text == "FIRST" else text for name, text in fields.items()}
        answer = await client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", **given)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(answer.remark).startswith(remark)
