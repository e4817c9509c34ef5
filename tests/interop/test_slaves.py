"""Slaves of RocketMQ's behind our SYNC_MASTER: equal bytes, copies of topics and offsets, and answers to sends."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from reput import Broker, Message
from reput.client.instance.send_result import SendStatus
from reput.client.sync import Producer
from reput.remoting.codes import RequestCode
from tests.support.asking import ask, call, request, until
from tests.support.broker import batch_command, make_topic, send_command
from tests.support.fake_master import log_of
from tests.support.rocketmq.apache import Apache
from tests.support.sockets import free_ports

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20


def is_followed(address: str) -> bool:
    """Whether a slave has acknowledged all that the broker has."""
    status: Any = json.loads(ask(address, RequestCode.GET_BROKER_HA_STATUS).body)
    return [one["diff"] for one in status["haConnectionInfo"]] == [0]


def has_all(slave: Path, topic: str, group: str, offset: int) -> bool:
    """Whether the slave's files have the master's topic, group and offset."""
    topics, groups, offsets = (
        (slave / "config" / name).read_text() if (slave / "config" / name).exists() else ""
        for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
    )
    return (
        f'"{topic}"' in topics
        and f'"{group}"' in groups
        and f'"{topic}@{group}":{{3:{offset}' in "".join(offsets.split())
    )


@pytest.mark.parametrize(
    ("version", "flush_disk_type"), [("4.9.7", "ASYNC_FLUSH"), ("5.3.3", "SYNC_FLUSH"), ("5.5.0", "ASYNC_FLUSH")]
)
def test_a_slave_of_rocketmq_follows_our_sync_master(tmp_path: Path, version: str, flush_disk_type: str) -> None:
    ha_port, slave_port = free_ports(2)
    master, slave = tmp_path / "master", tmp_path / "slave"
    keys: dict[str, Any] = {
        "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "haListenPort": ha_port, "brokerRole": "SYNC_MASTER",
        "mapped_file_size_commit_log": FILE_SIZE, "flush_disk_type": flush_disk_type, "slaveTimeout": 10_000,
    }  # fmt: skip
    with Broker.start(master, **keys) as broker, Producer(broker.namesrv, group="p") as producer:
        make_topic(broker.address, "orders", 4)

        def send(body: bytes = b"x") -> SendStatus:
            return producer.send(Message("orders", body)).status

        assert send() is SendStatus.SLAVE_NOT_AVAILABLE
        with Apache(version) as java:
            of_slave = {"brokerRole": "SLAVE", "brokerId": "1", "brokerName": "broker-a", "brokerIP2": "127.0.0.1"}
            java.start_broker(slave, keys=of_slave, port=slave_port, namesrv=broker.namesrv, log_file_size=FILE_SIZE)
            until(lambda: is_followed(broker.address))
            statuses = {send(random.randbytes(number * 37 % 9000 + 1)) for number in range(400)}
            assert statuses == {SendStatus.SEND_OK}

            offset = {"consumerGroup": "g", "topic": "orders", "queueId": "3", "commitOffset": "7"}
            ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g"}')
            ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, **offset)
            java.run("broker-copy")
            assert has_all(slave, "orders", "g", 7)

            ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, b"slaveTimeout=300\n")
            os.kill(java.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, java.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # a signal takes a moment
            assert send() is SendStatus.FLUSH_SLAVE_TIMEOUT
            os.kill(java.pid, signal.SIGCONT)
            ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, b"slaveTimeout=10000\n")
            until(lambda: is_followed(broker.address))
            assert send() is SendStatus.SEND_OK
            until(lambda: is_followed(broker.address))
            status: Any = json.loads(ask(broker.address, RequestCode.GET_BROKER_HA_STATUS).body)
            end = status["masterCommitLogMaxOffset"]
            assert status["inSyncSlaveNums"] == 1
            java.run("broker-stop")
        until(lambda: send() is SendStatus.SLAVE_NOT_AVAILABLE)
    assert end > FILE_SIZE
    assert log_of(slave, end) == log_of(master, end)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_send_for_which_too_few_replicas_are_in_sync_is_refused_as_by_rocketmq(tmp_path: Path, version: str) -> None:
    port, namesrv_port, ha_port = free_ports(3)
    keys = {
        "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2",
        "enableAutoInSyncReplicas": "true",
    }  # fmt: skip
    sends = {
        "one": lambda: send_command("orders"),
        "a batch": lambda: batch_command("orders", [b"a", b"b"]),
        "a half message": lambda: send_command("orders", properties={"TRAN_MSG": "true", "PGROUP": "p"}),
        "one that does not wait": lambda: send_command("orders", properties={"WAIT": "false"}),
    }

    def answers(address: str) -> dict[str, tuple[int, str | None]]:
        got = {kind: call(address, send()) for kind, send in sends.items()}
        return {kind: (answer.code, answer.remark) for kind, answer in got.items()}

    here: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "haListenPort": ha_port}
    here["mapped_file_size_commit_log"] = FILE_SIZE
    refused = 1, "in-sync replicas not enough"
    with Apache(version) as java:
        with Broker.start(tmp_path / "master", **here, **keys) as broker:
            make_topic(broker.address, "orders", 1)
            ours = answers(broker.address)
            ours_to_java = java.run("signed-send", namesrv=broker.namesrv, topic="orders", body="x")
        java.start_broker(
            tmp_path / "master", keys=keys | {"brokerName": "broker-a", "enableSlaveActingMaster": "true"}, port=port,
            namesrv_port=namesrv_port, log_file_size=FILE_SIZE,
        )  # fmt: skip
        assert ours == answers(f"127.0.0.1:{port}")
        namesrv, route = f"127.0.0.1:{namesrv_port}", request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        until(lambda: call(namesrv, route).code == 0)  # its first registration may have reached nobody
        assert ours_to_java == java.run("signed-send", namesrv=namesrv, topic="orders", body="x")
    assert ours == dict.fromkeys(sends, refused) | {"one that does not wait": (0, None)}
    assert ours_to_java["code"] == 1
    assert "in-sync replicas not enough" in ours_to_java["remark"]
