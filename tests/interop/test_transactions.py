"""RocketMQ's own producers of transactions, and transactions that are open while the broker changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput import Broker, MessageStore
from reput.client.sync import PullConsumer
from reput.formats.message_ext import MessageExt
from reput.formats.property_crc import PROPERTY_CRC32
from tests.support.asking import until
from tests.support.broker import make_topic
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
HERE = {
    "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE,
    "transaction_check_interval": 500, "transaction_time_out": 500,
    "transaction_check_max": 1000,  # a Java client takes its time to come, and nothing is given up before
}  # fmt: skip
THERE = {"log_file_size": FILE_SIZE, "topic": "orders", "queues": 1}


def consumed(namesrv: str, topic: str, count: int) -> list[bytes]:
    """The bodies of so many transactions, and of any that came with them; waits for them.

    A transaction that its producer ends while a broker asks for its end is committed twice: its copies count once.
    """
    found: dict[str | None, bytes] = {}
    with PullConsumer(namesrv, group="reader", topics={topic: "*"}, consume_from="first") as consumer:
        while len(found) < count:
            found |= {one.unique_key: one.body for one in consumer.poll(timeout=60)}
    return sorted(found.values())


def test_transactions_end_as_their_producer_says_at_once_or_when_asked(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        bodies = ["rollback", "commit", "checked-rollback", "checked-commit"]
        told = apache.run("transactions", namesrv=broker.namesrv, topic="orders", bodies=bodies, checks=2)
        assert told["sent"] == {
            "rollback": "ROLLBACK_MESSAGE", "commit": "COMMIT_MESSAGE", "checked-rollback": "UNKNOW",
            "checked-commit": "UNKNOW",
        }  # fmt: skip
        assert told["checked"] == ["checked-commit", "checked-rollback"]
        assert consumed(broker.namesrv, "orders", 2) == [b"checked-commit", b"commit"]


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_our_broker_ends_the_transactions_that_apaches_began(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Broker.start(path, **HERE) as broker:
        make_topic(broker.address, "orders", 1)
    bodies = ["commit", "rollback", "checked-rollback", "checked-commit"]
    with apache.serving(path, **THERE) as namesrv:
        apache.run("transactions", namesrv=namesrv, topic="orders", bodies=bodies, checks=0)
    with Broker.start(path, **HERE) as broker:
        told = apache.run("transactions", namesrv=broker.namesrv, topic="orders", bodies=["commit"], checks=2)
        assert told["checked"] == ["checked-commit", "checked-rollback"]
        assert consumed(broker.namesrv, "orders", 3) == [b"checked-commit", b"commit", b"commit"]


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_apaches_broker_ends_the_transactions_that_ours_began(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Broker.start(path, **HERE | {"transaction_check_interval": 3_600_000}) as broker:
        make_topic(broker.address, "orders", 1)
        bodies = ["commit", "rollback", "checked-rollback", "checked-commit"]
        apache.run("transactions", namesrv=broker.namesrv, topic="orders", bodies=bodies, checks=0)
    keys = {"transactionCheckInterval": "500", "transactionTimeOut": "500", "transactionCheckMax": "1000"}
    with apache.serving(path, **THERE, keys=keys) as namesrv:
        told = apache.run("transactions", namesrv=namesrv, topic="orders", bodies=["commit"], checks=2)
        assert told["checked"] == ["checked-commit", "checked-rollback"]
        assert consumed(namesrv, "orders", 3) == [b"checked-commit", b"commit", b"commit"]


def kept(path: Path, topic: str) -> list[MessageExt]:
    """All messages of a queue of a closed store."""
    with MessageStore.open(path, mapped_file_size_commit_log=FILE_SIZE) as store:
        return store.get_message(topic, 0, 0).messages()


def shape(message: MessageExt) -> tuple[object, ...]:
    """What is stored of a message, without its times, its ids and its hosts; properties in any order.

    So are the offsets of an op message: a broker's threads end two transactions in any order.
    """
    own = {"UNIQ_KEY", "__transactionId__", PROPERTY_CRC32}
    properties = {name: value for name, value in message.properties.items() if name not in own}
    same = message.properties.get("UNIQ_KEY") == message.properties.get("__transactionId__")
    op = message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    return (
        message.topic, message.queue_id, message.queue_offset, message.flag, message.sys_flag,
        b",".join(sorted(message.body.split(b","))) if op else message.body,
        message.reconsume_times, message.prepared_transaction_offset > 0, properties, same,
    )  # fmt: skip


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_half_op_and_committed_messages_are_stored_as_apaches(apache: Apache, tmp_path: Path) -> None:
    topics = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "orders")
    found = {}
    for name in ("ours", "theirs"):
        path = tmp_path / name
        with Broker.start(path, **HERE | {"transaction_check_interval": 3_600_000}) as broker:
            make_topic(broker.address, "orders", 1)
            if name == "ours":
                apache.run(
                    "transactions", namesrv=broker.namesrv, topic="orders", bodies=["commit", "rollback"], checks=0
                )
        if name == "theirs":
            with apache.serving(path, **THERE) as namesrv:
                apache.run("transactions", namesrv=namesrv, topic="orders", bodies=["commit", "rollback"], checks=0)
                op_units = path / "consumequeue/RMQ_SYS_TRANS_OP_HALF_TOPIC/0" / f"{0:020d}"
                # 5.x puts op messages once in three seconds, and those that wait when it stops are lost.
                until(lambda file=op_units: file.exists() and any(file.read_bytes()[:20]))
        found[name] = {topic: [shape(one) for one in kept(path, topic)] for topic in topics}
    assert found["ours"] == found["theirs"]
