"""What RocketMQ's own tools tell of our broker: traces of messages, and messages a second."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reput import Broker
from reput.client import Message
from reput.client.sync import Producer, PushConsumer
from tests.support.asking import until
from tests.support.broker import make_topic
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": 1 << 20}
TRACES = "RMQ_SYS_TRACE_TOPIC"


def mqadmin(apache: Apache, broker: Broker, *words: str) -> str:
    """What a command prints."""
    printed = apache.run("mqadmin", namesrv=broker.namesrv, words=words)
    assert isinstance(printed, str)
    return printed


def row(table: str, *first: str) -> list[str]:
    """The words of a table's line that begins with these."""
    for line in table.splitlines():
        words = line.split()
        if words[: len(first)] == list(first):
            return words
    return []


def check_trace(broker: Broker, clients: Apache, tools: Apache) -> None:
    """Let traced clients send and consume a message, and let RocketMQ's tool read both traces."""
    make_topic(broker.address, "orders", 1)
    told = ""

    def both_are_there() -> bool:
        nonlocal told
        told = mqadmin(tools, broker, "queryMsgTraceById", "-i", message_id)
        return bool(row(told, "Pub") and row(told, "Sub"))

    try:
        message_id = clients.run("traced", namesrv=broker.namesrv, topic="orders")
        until(both_are_there)  # the clients write traces beside their work
    finally:
        clients.run("traced-stop")
    assert row(told, "Pub")[:3] == ["Pub", "traced-producers", "127.0.0.1"], told
    assert row(told, "Pub")[-1] == "success"
    assert row(told, "Sub")[:3] == ["Sub", "traced", "127.0.0.1"], told
    assert row(told, "Sub")[-1] == "success"


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)  # 4.9.7's mqadmin needs its folder of files
def test_the_trace_of_a_message_is_read_by_mqadmin(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", traceTopicEnable="true", **HERE) as broker:
        assert row(mqadmin(apache, broker, "topicList"), TRACES) == [TRACES]
        check_trace(broker, apache, apache)


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_the_first_trace_of_an_older_client_makes_the_topic(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker, Apache("4.9.7") as clients:
        assert row(mqadmin(apache, broker, "topicList"), TRACES) == []
        check_trace(broker, clients, apache)
        assert row(mqadmin(apache, broker, "topicList"), TRACES) == [TRACES]


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)
def test_the_traces_of_our_client_are_read_by_mqadmin(apache: Apache, tmp_path: Path) -> None:
    handled = threading.Event()
    with Broker.start(tmp_path / "store", traceTopicEnable="true", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        with Producer(broker.namesrv, group="shop", trace=True) as producer:
            message_id = producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])[1].message_id
        with PushConsumer(
            broker.namesrv, group="billing", topics={"orders": "*"}, consume_from="first", trace=True,
            on_message=lambda message: handled.set() if message.body == b"2" else None,
        ):  # fmt: skip
            assert handled.wait(30)
        told = mqadmin(apache, broker, "queryMsgTraceById", "-i", message_id)
        for kind, group in (("Pub", "shop"), ("Sub", "billing")):
            assert row(told, kind)[:3] == [kind, group, "127.0.0.1"], told
            assert row(told, kind)[-1] == "success"


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_messages_a_second_and_in_a_day_are_told_by_mqadmin(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 4)
        where = {"namesrv": broker.namesrv, "topic": "orders"}
        apache.run("client-send", **where)
        assert len(apache.run("client-push", **where, group="g", tags="*", count=9)) == 9

        def stats() -> list[str]:
            return row(mqadmin(apache, broker, "statsAll", "-t", "orders"), "orders", "g")

        until(lambda: stats()[-1:] not in ([], ["0"]))  # a sample is taken every ten seconds
        topic, group, behind, in_tps, out_tps, in_a_day, out_a_day = stats()
        assert (topic, group, behind, in_a_day, out_a_day) == ("orders", "g", "0", "9", "9")
        assert 0 < float(in_tps) <= 0.9
        assert 0 < float(out_tps) <= 0.9
        progress = mqadmin(apache, broker, "consumerProgress", "-g", "g")
        assert 0 < float(row(progress, "Consume", "TPS:")[-1]) <= 0.9
        assert row(progress, "Consume", "Diff", "Total:")[-1] == "0"
        told = row(mqadmin(apache, broker, "clusterList", "-m"), "DefaultCluster")
        assert told[-4:-2] == ["0", "0"]  # of yesterday
        assert int(told[-2]) >= 9
        status = mqadmin(apache, broker, "brokerStatus", "-b", broker.address)
        assert row(status, "msgPutTotalTodayMorning")[-1] == "0"
        assert int(row(status, "msgPutTotalTodayNow")[-1]) >= 9
