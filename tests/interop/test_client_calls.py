"""What the broker asks of RocketMQ's own clients: to take a reply, to reset offsets, to consume, and what they do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from reput import Broker
from reput.client import Message
from reput.client.sync import Producer, PushConsumer
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables
from tests.support.asking import call, request
from tests.support.broker import make_topic, send_command
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": 1 << 20}
QUEUE = QueueKey("orders", "broker-a", 0)


def ask(address: str, code: int, **fields: object) -> RemotingCommand:
    """The answer to an operator's request."""

    return call(address, request(code, **fields))


def send_one(address: str, body: bytes) -> str:
    """Send a message to the topic's queue; its offset message id."""

    return (call(address, send_command("orders", body)).ext_fields or {})["msgId"]


@contextmanager
def consuming(apache: Apache, broker: Broker) -> Iterator[str]:
    """The client id of a consumer that has got the messages 0, 1 and 2, and committed its offset."""
    make_topic(broker.address, "orders", 1)
    for number in range(3):
        send_one(broker.address, b"%d" % number)
    client_id = apache.run("consumer-start", namesrv=broker.namesrv, group="g", topic="orders")
    try:
        assert taken(apache, 3) == ["0", "1", "2"]
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 3}
        assert ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0
        yield client_id
    finally:
        apache.run("consumer-stop")


def taken(apache: Apache, count: int) -> list[str]:
    """The next messages of the consumer, whose threads take them in any order."""
    return sorted(apache.run("consumer-take") for _ in range(count))


def reset(broker: Broker) -> RemotingCommand:
    fields: dict[str, Any] = {"topic": "orders", "group": "g", "timestamp": 0, "isForce": True}
    return ask(broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)


def test_a_request_gets_its_reply(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        reply = apache.run("client-request", namesrv=broker.namesrv, topic="orders", body="how much?")
        assert reply["body"] == "re: how much?"
        assert {"CORRELATION_ID", "REPLY_TO_CLIENT", "PUSH_REPLY_TIME", "MSG_REGION"} <= set(reply["properties"])
        assert reply["properties"]["MSG_TYPE"] == "reply"
        stored = {"topic": "DefaultCluster_REPLY_TOPIC", "queueId": 0}
        assert (ask(broker.address, RequestCode.GET_MAX_OFFSET, **stored).ext_fields or {})["offset"] == "1"


def test_a_consumer_tells_what_it_does_and_consumes_what_it_is_given(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker, consuming(apache, broker) as client_id:
        who = {"consumerGroup": "g", "clientId": client_id}
        info = ask(broker.address, RequestCode.GET_CONSUMER_RUNNING_INFO, **who, jstackEnable=True)
        assert info.code == 0
        assert decode_queue_table(info.body, "mqTable")[QUEUE]["commitOffset"] >= 0
        assert b'"jstack":' in info.body

        expected = encode_queue_tables({"consumerTable": {client_id: {QUEUE: 3}}, "messageQueueTable": {}})
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        for _ in range(1000):  # the client counts a message soon after its listener has returned
            if (status := ask(broker.address, code, topic="orders", group="g").body) == expected:
                break
        assert status == expected

        message_id = send_one(broker.address, b"look")
        assert apache.run("consumer-take") == "look"
        answer = ask(broker.address, RequestCode.CONSUME_MESSAGE_DIRECTLY, **who, msgId=message_id)
        assert (answer.code, json.loads(answer.body)["consumeResult"]) == (0, "CR_SUCCESS")
        assert apache.run("consumer-take") == "look"


# 5.5.0's client is as 5.3.3's.
@pytest.mark.parametrize("apache", ["4.9.7", "5.3.3"], indirect=True)
def test_members_reset_their_offsets_where_the_broker_leaves_it_to_them(apache: Apache, tmp_path: Path) -> None:
    keys = HERE | {"useServerSideResetOffset": "false"}
    with Broker.start(tmp_path / "store", **keys) as broker, consuming(apache, broker):
        assert decode_queue_table(reset(broker).body, "offsetTable") == {QUEUE: 0}
        assert taken(apache, 3) == ["0", "1", "2"]


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)  # 4.9.7 does not follow
def test_the_broker_resets_the_offsets_of_a_group_with_members(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker, consuming(apache, broker):
        assert decode_queue_table(reset(broker).body, "offsetTable") == {QUEUE: 0}
        send_one(broker.address, b"3")  # the pull that waits is answered at once
        assert taken(apache, 4) == ["0", "1", "2", "3"]


@pytest.fixture(params=["ours", "theirs"])
def namesrv(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The name server of a broker of ours, or of RocketMQ's."""
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        if request.param == "ours":
            yield broker.namesrv
            return
    with Apache(request.getfixturevalue("apache").version) as serving:
        yield serving.serve(tmp_path / "store", log_file_size=1 << 20, topic="orders", queues=1)


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)  # 4.9.7's mqadmin needs its folder of files
def test_our_consumer_answers_mqadmin(apache: Apache, namesrv: str) -> None:
    handled: Queue[bytes] = Queue()
    with (
        PushConsumer(
            namesrv, group="g", topics={"orders": "*"}, consume_from="first",
            on_message=lambda message: handled.put(message.body),
        ) as consumer,
        Producer(namesrv, group="p") as producer,
    ):  # fmt: skip
        message_id = producer.send(Message("orders", b"look")).offset_message_id
        assert handled.get(timeout=60) == b"look"
        group = consumer._client._group
        assert group is not None

        def told(*words: str) -> str:
            return str(apache.run("mqadmin", namesrv=namesrv, words=words))

        status = told("consumerStatus", "-g", "g", "-i", group.client.client_id, "-s")
        for expected in ("CONSUME_PASSIVELY", "orders", "%RETRY%g", "#Consumer RT&TPS", "MainThread"):
            assert expected in status, status
        words = ("-t", "orders", "-i", message_id, "-g", "g", "-d", group.client.client_id)
        directly = told("queryMsgById", *words)
        assert "consumeResult=CR_SUCCESS" in directly, directly
        assert handled.get(timeout=60) == b"look"
