"""Sends over sockets: checks and remarks as RocketMQ's, what is stored, and in which order."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from reput import MessageStore
from reput.broker.appends.inner_message import read_properties, write_properties
from reput.broker.topic_creation import TopicCreation
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.message_batch import INNER_BATCH, decode_batch, encode_batch, unfold_record
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import encode_message_id
from reput.formats.properties import OF_BROKERS
from reput.formats.property_crc import PROPERTY_CRC32
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, SerializeType
from reput.remoting.send_headers import V2_NAMES
from tests.support.broker import (
    BORN_MS,
    SMALL,
    Client,
    batch_command,
    messages_of,
    pull_command,
    send_command,
    serving_broker,
    with_topic,
)

IP = "127.0.0.1"


async def stored(client: Client, topic: str, queue_id: int = 0) -> list[Any]:
    """The messages of a queue, the first of which is awaited."""
    return messages_of(await client.pull(topic, queueId=queue_id, hold_ms=60_000))


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize("kind", SerializeType)
async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path, code: RequestCode, kind: SerializeType) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 4)
        properties = {"KEYS": "o-1 o-2", "UNIQ_KEY": "AB" * 16, "TAGS": "paid", "POP_CK": "7 8", "WAIT": "true"}
        command = send_command(
            "orders", b"\x00body\xff", code=code, properties=properties, queueId=3, flag=7, sysFlag=1,
            reconsumeTimes=2,
        )  # fmt: skip
        command.serialize_type = kind
        (answer,) = [await one for one in client.begin_all([command])]
        address = served.controller.address
        first = encode_message_id(encode_host(address), 0)
        assert (answer.code, answer.remark) == (0, None)
        assert answer.serialize_type is SerializeType.JSON
        assert answer.ext_fields == {
            "msgId": first, "queueId": "3", "queueOffset": "0", "transactionId": "AB" * 16,
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip
        (message,) = await stored(client, "orders", 3)
        host = client.writer.get_extra_info("sockname")
        assert message.body == b"\x00body\xff"
        assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 0)
        assert (message.flag, message.sys_flag, message.reconsume_times) == (7, 1, 2)
        assert (message.born_timestamp, message.born_host) == (BORN_MS, f"{host[0]}:{host[1]}")
        assert (message.store_host, message.message_id) == (address, first)
        assert (message.tags, message.keys, message.unique_key) == ("paid", ("o-1", "o-2"), "AB" * 16)
        assert message.properties == {
            "WAIT": "true", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
        }  # fmt: skip


async def test_the_brokers_own_keys_are_in_the_properties(tmp_path: Path) -> None:
    keys = {"regionId": "Here", "traceOn": "false", "brokerClusterName": "C1"}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        answer = await client.send_message("orders")
        assert answer.ext_fields is not None
        assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == ("Here", "false")
        (message,) = await stored(client, "orders")
        assert message.properties == {"MSG_REGION": "Here", "TRACE_ON": "false", "CLUSTER": "C1"}
        assert re.fullmatch("[0-9A-F]{32}", message.unique_key)
        assert answer.ext_fields["transactionId"] == message.unique_key


async def test_messages_without_an_id_get_different_ones(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await asyncio.gather(*client.begin_all([send_command("orders") for _ in range(20)]))
        messages = await stored(client, "orders")
        assert len({message.unique_key for message in messages}) == len(messages) == 20


#: (keys of the broker, the send, its answer's code and remark); the topic `orders` has two queues for writing.
REFUSALS = {
    "before its time": (
        {"startAcceptSendRequestTimeStamp": 9_000_000_000_123},
        {},
        (ResponseCode.SYSTEM_ERROR, r"broker unable to service, until 2255-03-1\d \d\d:00:00,123"),
    ),
    "blank topic": ({}, {"topic": " "}, (ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")),
    "illegal topic": (
        {},
        {"topic": "a b"},
        (
            ResponseCode.INVALID_PARAMETER,
            re.escape("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ),
    ),
    "long topic": (
        {},
        {"topic": "t" * 128},
        (ResponseCode.INVALID_PARAMETER, "The specified topic is longer than topic max length."),
    ),
    "system topic": (
        {},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        (ResponseCode.NO_PERMISSION, r"Sending message to topic\[SCHEDULE_TOPIC_XXXX\] is forbidden\."),
    ),
    "no topic": (
        {"autoCreateTopicEnable": "false"},
        {"topic": "new"},
        (ResponseCode.TOPIC_NOT_EXIST, r"topic\[new\] not exist, apply first please!\nSee https://.*"),
    ),
    "template without inheritance": (
        {},
        {"topic": "new", "defaultTopic": "orders"},
        (ResponseCode.TOPIC_NOT_EXIST, r"topic\[new\] not exist, apply first please!\nSee https://.*"),
    ),
    "queue beyond the last": (
        {},
        {"queueId": 2},
        (
            ResponseCode.INVALID_PARAMETER,
            r"request queueId\[2\] is illegal, TopicConfig \[topicName=orders, readQueueNums=2, writeQueueNums=2, "
            r"perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes=\{\}\] "
            r"Producer: 127\.0\.0\.1:\d+",
        ),
    ),
    "no body": ({}, {"body": b""}, (ResponseCode.SYSTEM_ERROR, "the message has no body")),
    "large body": (
        {"maxMessageSize": 1000},
        {"body": bytes(1001)},
        (
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit 1000B, "
            "msg properties length limit 32KB.",
        ),
    ),
    "larger than a file of the log": (
        {"maxMessageSize": 2 << 20},
        {"body": bytes(1_100_000)},
        (
            ResponseCode.MESSAGE_ILLEGAL,
            r"the message is illegal, .* msg properties length limit 32KB\. the record takes 1\d+ bytes; a commit log "
            r"file of 1048576 bytes \(mappedFileSizeCommitLog\) holds records up to 1048568",
        ),
    ),
    "large properties": (
        {},
        {"properties": {"k": "v" * 33_000}},
        (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal, .* msg properties length limit 32KB."),
    ),
    "transaction": (
        {"rejectTransactionMessage": "true"},
        {"properties": {"TRAN_MSG": "true"}},
        (ResponseCode.NO_PERMISSION, r"the broker\[127.0.0.1\] sending transaction message is forbidden"),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_send_is_refused_with_rocketmqs_code_and_remark(tmp_path: Path, case: str) -> None:
    keys, send, (code, remark) = REFUSALS[case]

    async with serving_broker(tmp_path / "store", **keys) as served:  # type: ignore[arg-type]
        client = await served.client()
        await with_topic(client, "orders", 2)
        answer = await client.send_message(**{"topic": "orders"} | send)
        assert answer.code == code
        assert answer.remark is not None
        assert re.fullmatch(remark, answer.remark), answer.remark
        assert served.controller._state.store.topics.keys() >= {"orders"}
        assert "new" not in served.controller._state.store.topics
        assert (await client.pull("orders")).code == ResponseCode.PULL_NOT_FOUND


async def test_an_order_topic_refuses_sends_on_a_broker_that_may_not_be_written_to(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", brokerPermission=4) as served:
        client = await served.client()
        await with_topic(client, "in-order", order=True)
        await with_topic(client, "plain")
        answer = await client.send_message("in-order")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the broker[{IP}] sending message is forbidden"
        assert (await client.send_message("plain")).code == 0


async def test_a_topic_of_several_tags_marks_its_messages(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "many", filter_type="MULTI_TAG")
        await client.send_message("many", sysFlag=1)
        assert [message.sys_flag for message in await stored(client, "many")] == [3]


async def test_a_compacted_topic_takes_no_message_without_a_key(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "compacted", attributes="+cleanup.policy=COMPACTION")
        answer = await client.send_message("compacted")
        assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        assert (await client.send_message("compacted", properties={"KEYS": "k"})).code == 0


@pytest.mark.parametrize(
    ("name", "what"), [("__LITE_TOPIC", "lite topics"), ("_SYS_MSG_PRIORITY_", "messages with a priority")]
)
async def test_a_message_that_asks_for_what_came_after_5_3_3_is_refused(tmp_path: Path, name: str, what: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        for _ in range(2):  # to a topic that a kernel knows since the send before
            assert (await client.send_message("orders")).code == 0
            answer = await client.send_message("orders", properties={name: "3", "KEYS": "k"})
            remark = f"the message has {name}: there are no {what}, which came after RocketMQ 5.3.3"
            assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, remark)


async def test_a_batch_is_stored_message_by_message(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        bodies = [b"one", b"two", b"three"]
        (begun,) = client.begin_all([batch_command("orders", bodies, queueId=1, properties={"UNIQ_KEY": "u"})])
        answer = await begun
        messages = await stored(client, "orders", 1)
        assert answer.ext_fields is not None
        assert answer.ext_fields["msgId"] == ",".join(message.message_id for message in messages)
        assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("1", "0")
        assert [message.body for message in messages] == bodies
        assert [message.tags for message in messages] == ["0", "1", "2"]
        assert [message.queue_offset for message in messages] == [0, 1, 2]
        assert [message.properties["CLUSTER"] for message in messages] == ["DefaultCluster"] * 3
        following = await client.send_message("orders", queueId=1)
        assert following.ext_fields is not None
        assert following.ext_fields["queueOffset"] == "3"


async def test_a_batch_for_batch_consume_queues_is_one_inner_batch(tmp_path: Path) -> None:
    bodies = [b"one", b"two", b"three"]

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2, attributes="+queue.type=BatchCQ")
        command = batch_command("orders", bodies, queueId=1, properties={"UNIQ_KEY": "u", "KEYS": "k"})
        answer = await client.begin_all([command])[0]
        assert answer.ext_fields == {
            "msgId": encode_message_id(encode_host(served.controller.address), 0), "queueId": "1",
            "queueOffset": "0", "transactionId": "u", "batchUniqId": "u", "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }  # fmt: skip
        following = await client.send_message("orders", b"four", queueId=1)
        assert (following.ext_fields or {})["queueOffset"] == "3"
        assert "batchUniqId" not in (following.ext_fields or {})
        plain = await client.begin_all([batch_command("orders", bodies, queueId=1)])[0]
        assert (plain.ext_fields or {})["msgId"].count(",") == 2  # without an id it is stored message by message
        await served.stop()
    with MessageStore.open(tmp_path / "store", read_only=True, **SMALL) as store:
        first, *others = store.get_message("orders", 1, 0, 32).messages()
        assert first.sys_flag & INNER_BATCH == INNER_BATCH
        assert first.properties == {
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster", "INNER_NUM": "3",
            "INNER_BASE": "0",
        }  # fmt: skip
        assert (first.unique_key, first.keys) == ("u", ("k",))
        assert [item.body for item in decode_batch(first.body) or ()] == bodies
        assert [(one.queue_offset, one.body) for one in others] == [
            (3, b"four"),
            (4, b"one"),
            (5, b"two"),
            (6, b"three"),
        ]


@pytest.mark.parametrize("attributes", ["+queue.type=BatchCQ", "+queue.type=SimpleCQ"])
@pytest.mark.parametrize(
    "command",
    [
        send_command("orders", properties={"INNER_NUM": "3"}),
        send_command("orders", sysFlag=0xC0),
        send_command("orders", sysFlag=0xC0, properties={"INNER_NUM": "3"}),
    ],
)
async def test_one_message_is_no_inner_batch(tmp_path: Path, command: RemotingCommand, attributes: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 1, attributes=attributes)
        assert (await client.send_message("orders")).code == 0  # the kernel knows the topic from now on
        answer = await client.begin_all([command])[0]
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith("the message is illegal, ")
        assert len(await stored(client, "orders")) == 1


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (batch_command("orders", [b"a"], sysFlag=0xC0), "the message is illegal, "),
        (batch_command("%RETRY%g", [b"a"]), "batch request does not support retry group %RETRY%g"),
        (send_command("orders", b"no batch", batch=True), "the message is illegal, "),
    ],
)
async def test_a_batch_is_refused(tmp_path: Path, command: RemotingCommand, remark: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        (begun,) = client.begin_all([command])
        answer = await begun
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert answer.remark.startswith(remark)


async def test_the_field_decides_what_a_batch_is_and_only_true_is_true(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        command = batch_command("orders", [b"a", b"b"])
        assert command.ext_fields is not None
        command.ext_fields["m"] = "1"  # as an old C++ client says it
        await client.begin_all([command])[0]
        assert [message.body for message in await stored(client, "orders")] == [command.body]


async def test_a_queue_below_zero_is_any_queue(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 3)
        begun = client.begin_all([send_command("orders", queueId=-1) for _ in range(100)])
        answers = await asyncio.gather(*begun)
        assert {answer.ext_fields["queueId"] for answer in answers if answer.ext_fields} == {"0", "1", "2"}


async def test_a_send_makes_its_topic_after_the_template_and_name_servers_know_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", defaultTopicQueueNums=6) as served:
        client = await served.client()
        assert (await client.send_message("few", defaultTopicQueueNums=4)).code == 0
        assert (await client.send_message("many", defaultTopicQueueNums=40)).code == 0
        topics = served.controller._state.store.topics
        assert [(topics[name].write_queue_nums, topics[name].perm) for name in ("few", "many")] == [(4, 6), (6, 6)]
        assert served.controller._name_server is not None
        host, _, port = served.controller.namesrv.rpartition(":")
        asked = Client(*await asyncio.open_connection(host, int(port)))
        assert (await asked.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="few")).code == 0
        await asked.leave()


async def test_sends_of_one_connection_to_a_new_topic_keep_their_order(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        create = served.controller._state.topics.create
        loop, made, more_sent = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def create_and_wait(configs: Any) -> Any:
            result = create(configs)  # from here on the topic is there
            loop.call_soon_threadsafe(made.set)
            asyncio.run_coroutine_threadsafe(more_sent.wait(), loop).result()
            return result

        served.controller._state.topics.create = create_and_wait  # type: ignore[method-assign]
        begun = client.begin_all([send_command("new", b"%d" % i) for i in range(3)])
        await made.wait()
        begun += client.begin_all([send_command("new", b"%d" % i) for i in range(3, 6)])
        await client.round_trip()
        more_sent.set()
        answers = await asyncio.gather(*begun)
        assert [answer.ext_fields["queueOffset"] for answer in answers if answer.ext_fields] == list("012345")
        assert [message.body for message in await stored(client, "new")] == [b"%d" % i for i in range(6)]


async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        for body in (b"one", b""):  # the second is refused
            client.begin_all([send_command("orders", body, one_way=True)])
        # An answer with an opaque that nobody waits for would end the client's reading.
        assert (await client.send_message("orders", b"two")).code == 0
        assert [message.body for message in await stored(client, "orders")] == [b"one", b"two"]


async def test_fields_that_are_missing_are_named_and_the_connection_lives(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", b="orders")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "queueId is missing" in answer.remark
        assert (await client.send_message("orders")).code == 0


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_send_needs_no_group_and_to_a_known_topic_no_template(tmp_path: Path, code: RequestCode) -> None:
    def without(topic: str, name: str) -> RemotingCommand:
        command = send_command(topic, name.encode(), code=code)
        assert command.ext_fields is not None
        del command.ext_fields[V2_NAMES[name] if code == RequestCode.SEND_MESSAGE else name]
        return command

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        for name in ("a", "c", "d"):
            assert (await client.begin_all([without("orders", name)])[0]).code == 0
        assert [message.body for message in await stored(client, "orders")] == [b"a", b"c", b"d"]
        for name, field in (("c", "defaultTopic"), ("d", "defaultTopicQueueNums")):
            answer = await client.begin_all([without("new", name)])[0]
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"SendMessageRequestHeader: the field {field} is missing"


async def test_a_field_that_is_no_number_is_refused_in_the_short_names_and_not_in_the_long_ones(tmp_path: Path) -> None:
    def with_text(code: RequestCode, letter: str) -> RemotingCommand:
        command = send_command("orders", b"x", code=code)
        assert command.ext_fields is not None
        command.ext_fields[letter if code == RequestCode.SEND_MESSAGE_V2 else V2_NAMES[letter]] = "1x"
        return command

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        assert (await client.send_message("orders", b"plain")).code == 0  # the kernel knows the topic
        for letter in "djl":
            assert (await client.begin_all([with_text(RequestCode.SEND_MESSAGE, letter)])[0]).code == 0
            answer = await client.begin_all([with_text(RequestCode.SEND_MESSAGE_V2, letter)])[0]
            assert answer.code == ResponseCode.SYSTEM_ERROR
            expected = f"SendMessageRequestHeader: the field {V2_NAMES[letter]} is '1x', no number"
            assert answer.remark == expected
        assert len(await stored(client, "orders")) == 4


async def test_a_record_of_four_mebibytes_is_stored_and_pulled(tmp_path: Path) -> None:
    body = bytes(range(256)) * (1 << 14)

    async with serving_broker(tmp_path / "store", mapped_file_size_commit_log=8 << 20) as served:
        client = await served.client()
        for number in range(3):
            answer = await client.send_message("large", body)
            assert answer.ext_fields is not None
            assert answer.ext_fields["queueOffset"] == str(number)
        for number in range(3):
            (begun,) = client.begin_all([pull_command("large", number, hold_ms=60_000)])
            (message,) = messages_of(await begun)
            assert message.body == body


def test_properties_are_read_and_written_as_rocketmq_does() -> None:
    text = "a\x011\x02b\x01\x02\x01x\x02c\x012\x013\x02d\x02e\x014"
    assert read_properties(text) == {"a": "1", "c": "2\x013", "e": "4"}
    assert write_properties({"a": "1", "b": "é"}) == "a\x011\x02b\x01é\x02".encode()
    assert read_properties("") == {}


async def test_a_topic_counts_as_new_until_those_that_wait_for_it_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, is_new = TopicCreation._done, []

    def done_and_seen(creation: TopicCreation, topic: str, task: asyncio.Task[None]) -> None:
        done(creation, topic, task)
        is_new.append(creation.is_creating(topic))  # a send that comes now must not overtake

    monkeypatch.setattr(TopicCreation, "_done", done_and_seen)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        assert (await client.send_message("new")).code == 0
    assert is_new == [True]


@pytest.mark.parametrize("is_inner", [False, True])
async def test_properties_that_only_brokers_write_are_dropped_from_the_messages_of_a_batch(
    tmp_path: Path, *, is_inner: bool
) -> None:
    forged = dict.fromkeys(OF_BROKERS - {PROPERTY_CRC32}, "1")
    sent = [Message("orders", b"POP_CK\x01", properties=forged | {"x": "POP_CK"}), Message("orders", b"two")]
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", attributes="+queue.type=BatchCQ" if is_inner else "")
        command = send_command(
            "orders", encode_batch(sent), code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties={"UNIQ_KEY": "u"}
        )
        assert (await client.begin_all([command])[0]).code == 0
        records = [one.raw for one in await stored(client, "orders")]
    found = [MessageExt(record) for raw in records for record in unfold_record(raw) or ()]
    assert [one.body for one in found] == [b"POP_CK\x01", b"two"]
    assert found[0].properties["x"] == "POP_CK"
    assert [one.properties.keys() & OF_BROKERS for one in found] == [set(), set()]
