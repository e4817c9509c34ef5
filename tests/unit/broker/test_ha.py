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
from reput.client.sync import Producer
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.replication.follower import Follower, FollowState
from reput.transport.blocking_client import BlockingConnection
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


def ha_status(address: str) -> Any:
    connection = BlockingConnection(address)
    (opaque,) = connection.send(RemotingCommand(RequestCode.GET_BROKER_HA_STATUS))
    answer = connection.answer(opaque, 60)
    connection.close()
    return json.loads(answer.body)


def test_a_port_that_is_taken_refuses_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RemotingError, match="HA port cannot be taken"):
        Broker.start(tmp_path / "master", **SMALL, **LOCAL, haListenPort=taken.getsockname()[1])
    with Broker.start(tmp_path / "master", **SMALL, **LOCAL):
        pass
