"""A copy of a broker of RocketMQ's: equal bytes, and what RocketMQ's store finds in it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from reput import Broker, Message, MessageStore, ReplicationError
from reput.client.sync import Producer
from reput.replication.follower import Follower
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from tests.support.broker import make_topic
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20


@pytest.fixture(params=["4.9.7", "5.3.3", "5.5.0"])
def namesrv(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A broker of RocketMQ's with the topic orders in 4 queues, and nothing in it."""
    keys: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with Broker.start(tmp_path / "master", mapped_file_size_commit_log=FILE_SIZE, **keys) as broker:
        make_topic(broker.address, "orders", 4)
    with Apache(request.param) as java:
        yield java.serve(tmp_path / "master", log_file_size=FILE_SIZE, topic="orders", queues=4)


def address_of(namesrv: str) -> str:
    cluster = Cluster(read_options({"namesrv": namesrv, "subscribe": "orders"}).access)
    address = cluster.address(cluster.queues(["orders"])[0])
    cluster.close()
    return address


def send_random(namesrv: str, count: int) -> None:
    with Producer(namesrv, group="copied") as producer:
        for number in range(count):
            producer.send(Message("orders", random.randbytes(number * 37 % 9000 + 1), keys=[f"o-{number}"]))


def follow(copy: Path, address: str) -> int:
    with MessageStore.open(copy, mapped_file_size_commit_log=FILE_SIZE) as store:
        follower = Follower(store, address)
        follower.run(Event(), once=True)
        store.wait_dispatched()
        return follower.state.end_offset


def log(store: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:end]


def test_a_copy_has_the_bytes_of_the_broker_and_goes_on(namesrv: str, tmp_path: Path) -> None:
    address, copy = address_of(namesrv), tmp_path / "copy"
    for count in (400, 1, 150):
        send_random(namesrv, count)
        end = follow(copy, address)
        assert log(copy, end) == log(tmp_path / "master", end)
    assert end > FILE_SIZE
    with MessageStore.open(copy, read_only=True) as store:
        assert sum(store.max_offset("orders", queue_id) for queue_id in range(4)) == 551
        assert len(store.query_message("orders", "o-399")) == 1
    with MessageStore.open(copy, mapped_file_size_commit_log=FILE_SIZE) as store:
        store.put_message(Message("orders", b"another life"))
    with pytest.raises(ReplicationError, match="the master has lost its last records, or is another one"):
        follow(copy, address)
