"""A broker's log on its HA port: a copy of it is equal, and grows with it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reput import Broker, Message, MessageStore, RemotingError
from reput.client.instance.send_result import SendStatus
from reput.client.sync import Producer
from reput.remoting.codes import RequestCode
from reput.replication.follower import Follower, FollowState
from tests.support.asking import ask
from tests.support.broker import SMALL
from tests.support.fake_master import log_of
from tests.support.sockets import free_ports

LOCAL = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}


@contextmanager
def following(copy: MessageStore, address: str, **options: Any) -> Iterator[Callable[[int], None]]:
    """A follower in a thread; the function waits until it has the log up to an offset."""
    stop, grown, end = threading.Event(), threading.Condition(), 0

    def note(state: FollowState) -> None:
        nonlocal end
        with grown:
            end = state.end_offset
            grown.notify_all()

    def wait(offset: int) -> None:
        with grown:
            assert grown.wait_for(lambda: end >= offset, 60)

    follower = Follower(copy, address, on_state=note, **options)
    thread = threading.Thread(target=follower.run, args=(stop,))
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize(("acknowledges", "is_empty"), [(False, False), (True, True)])
def test_a_follower_gets_what_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_disk_type: str, acknowledges: bool, is_empty: bool
) -> None:
    monkeypatch.setattr("reput.replication.follower._TOPICS_S", 0.0)
    (port,) = free_ports(1)
    keys = {**SMALL, **LOCAL, "flush_disk_type": flush_disk_type, "haListenPort": port}
    with Broker.start(tmp_path / "master", **keys) as broker, MessageStore.open(tmp_path / "copy", **SMALL) as copy:
        with Producer(broker.namesrv, group="copied") as producer:
            if not is_empty:
                producer.send(Message("orders", b"before"))
            with following(copy, broker.address, acknowledges=acknowledges) as wait:
                for number in range(200):
                    producer.send(Message("orders", b"%d" % number))
                with MessageStore.open(tmp_path / "master", read_only=True) as store:
                    end = store.max_commit_log_offset
                wait(end)
                where = "slaveAckOffset" if acknowledges else "transferFromWhere"
                while ha_status(broker.address)["haConnectionInfo"][0][where] < end:  # it notes what it has sent
                    pass
                status = ha_status(broker.address)
                [slave] = status["haConnectionInfo"]
                assert slave["transferFromWhere"] == status["masterCommitLogMaxOffset"] == end
                assert (slave["slaveAckOffset"] == end) is acknowledges
        copy.wait_dispatched()
        assert sum(copy.max_offset("orders", queue) for queue in range(8)) == 201 - is_empty
        assert "orders" in copy.topics
    assert log_of(tmp_path / "copy", end) == log_of(tmp_path / "master", end)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_sync_master_counts_a_follower_that_acknowledges(tmp_path: Path, flush_disk_type: str) -> None:
    (port,) = free_ports(1)
    role = {"brokerRole": "SYNC_MASTER", "haListenPort": port, "slaveTimeout": 60_000}
    keys = {**SMALL, **LOCAL, **role, "flush_disk_type": flush_disk_type}
    with (
        Broker.start(tmp_path / "master", **keys) as broker,
        MessageStore.open(tmp_path / "copy", **SMALL) as copy,
        Producer(broker.namesrv, group="copied") as producer,
    ):
        assert producer.send(Message("orders", b"alone")).status is SendStatus.SLAVE_NOT_AVAILABLE
        with following(copy, broker.address, acknowledges=True) as wait:
            wait(1)
            while not ha_status(broker.address)["inSyncSlaveNums"]:
                pass
            statuses = {producer.send(Message("orders", b"%d" % number)).status for number in range(100)}
            assert statuses == {SendStatus.SEND_OK}
        while ha_status(broker.address)["haConnectionInfo"]:
            pass
        with following(copy, broker.address):  # it is connected, and acknowledges nothing
            while not ha_status(broker.address)["inSyncSlaveNums"]:
                pass
            ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, b"slaveTimeout=20\n")
            assert producer.send(Message("orders", b"late")).status is SendStatus.FLUSH_SLAVE_TIMEOUT


def ha_status(address: str) -> Any:
    return json.loads(ask(address, RequestCode.GET_BROKER_HA_STATUS).body)


#: What slaves of RocketMQ's copy, with what 5.5.0 asks for, and the members of the answer; none: no JSON.
COPIES = [
    (RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "2000"}, "topicConfigTable"),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0", "maxGroupNum": "2000"}, "subscriptionGroupTable"),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, {}, "offsetTable"),
    (RequestCode.GET_ALL_DELAY_OFFSET, {}, "offsetTable"),
    (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}, "messageRequestModeMap"),
    (RequestCode.GET_TIMER_METRICS, {}, "timingCount"),
    (RequestCode.GET_TIMER_CHECK_POINT, {}, None),
]


def test_slaves_copy_at_the_port_and_at_the_one_two_before_it(tmp_path: Path) -> None:
    own_port, ha_port = free_ports(2)
    with Broker.start(tmp_path / "master", port=own_port, **SMALL, **LOCAL, haListenPort=ha_port) as broker:
        host, _, port = broker.address.rpartition(":")
        for address in (broker.address, f"{host}:{int(port) - 2}"):
            for code, fields, member in COPIES:
                body = ask(address, code, **fields).body
                if member is None:
                    assert len(body) == 56
                else:
                    assert member in json.loads(body)
            ha_info = ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO).ext_fields
            assert ha_info == {
                "masterHaAddress": f"127.0.0.1:{ha_port}", "masterFlushOffset": "0", "masterAddress": broker.address,
            }  # fmt: skip
            other = {"masterHaAddress": "127.0.0.1:1", "masterAddress": "127.0.0.1:2", "masterFlushOffset": "0"}
            assert not ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO, **other).ext_fields


def test_without_an_ha_port_nobody_listens_two_before_the_port(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "master", port=free_ports(1)[0], **SMALL, **LOCAL) as broker:
        host, _, port = broker.address.rpartition(":")
        with pytest.raises(RemotingError):
            ask(f"{host}:{int(port) - 2}", RequestCode.GET_ALL_TOPIC_CONFIG)


def test_a_port_two_before_that_is_taken_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port, ha_port = free_ports(2)
    with socket.create_server(("127.0.0.1", port)):
        keys = {"listen_port": port + 2, "haListenPort": ha_port}
        with Broker.start(tmp_path / "master", **SMALL, **LOCAL, **keys) as broker:
            assert broker.address == f"127.0.0.1:{port + 2}"
    assert f"slaves of RocketMQ's cannot copy topics port={port}" in caplog.text


def test_a_port_that_is_taken_refuses_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RemotingError, match="HA port cannot be taken"):
        Broker.start(tmp_path / "master", **SMALL, **LOCAL, haListenPort=taken.getsockname()[1])
    with Broker.start(tmp_path / "master", **SMALL, **LOCAL):
        pass
