"""A master, its slave and their name server in this process; also a broker that is registered, and does not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from reput import Broker
from reput.client.sync import PullConsumer
from reput.formats.metadata import ConsumerOffsets, SubscriptionGroups, decode_metadata
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.queue_tables import QueueKey
from reput.remoting.route_bodies import encode_register_body
from reput.transport.blocking_client import BlockingConnection
from tests.support.asking import ask, until
from tests.support.broker import SMALL, make_topic
from tests.support.namesrv import asked_name_server, broker_header, topics_body
from tests.support.sockets import free_ports
from tests.support.wire import send_numbers

LOCAL: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
KEYS: dict[str, Any] = {**SMALL, **LOCAL}
#: The messages of `fill`.
NUMBERS = range(10)
_READY_S = 30.0


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slaves copy without pauses."""
    monkeypatch.setattr("reput.broker.slave.slave._COPY_S", 0.02)
    monkeypatch.setattr("reput.replication.follower._TOPICS_S", 0.0)
    monkeypatch.setattr("reput.replication.follower._RETRY_S", 0.02)


class Pair:
    """Brokers of one name, each on a port that stays the same over its lives."""

    def __init__(self, folder: Path, namesrv: str, **keys: Any) -> None:
        self._folder, self._keys = folder, {**KEYS, "namesrv_addr": namesrv, **keys}
        self._ports: dict[str, tuple[int, int]] = {}
        self.namesrv = namesrv

    def path(self, name: str) -> Path:
        return self._folder / name

    def start(self, name: str, role: str = "ASYNC_MASTER", broker_id: int = 0, **keys: Any) -> Broker:
        """Start it; keys that are None are left to their defaults."""
        port, ha_port = self._ports.setdefault(name, tuple(free_ports(2)))  # type: ignore[arg-type]
        keys = {**self._keys, "broker_role": role, "broker_id": broker_id, "ha_listen_port": ha_port, **keys}
        keys = {key: value for key, value in keys.items() if value is not None}
        return Broker.start(self.path(name), port=port, **keys)

    def slave(self, name: str = "slave", broker_id: int = 1, **keys: Any) -> Broker:
        return self.start(name, "SLAVE", broker_id, **keys)


@contextmanager
def name_server(folder: Path) -> Iterator[str]:
    """The address of a name server, which outlives all brokers."""
    ready, stopped = Event(), Event()
    addresses: list[str] = []

    async def serve() -> None:
        async with asked_name_server(folder) as asked:
            addresses.append(asked.address)
            ready.set()
            await asyncio.to_thread(stopped.wait)

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(_READY_S)
        yield addresses[0]
    finally:
        stopped.set()
        thread.join()


@contextmanager
def unreachable(namesrv: str, name: str, *topics: str, broker_id: int = 0, queues: int = 2) -> Iterator[str]:
    """The address of a broker that a name server lists, and that is not there: it has just lost its machine."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    body = encode_register_body(topics_body("TBW102", *topics, queues=queues))  # a single topic is refused
    header = encode_header(broker_header(name, broker_id, address))
    connection = BlockingConnection(namesrv)
    try:
        [opaque] = connection.send(RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=header, body=body))
        answer = connection.answer(opaque, _READY_S)
        assert answer.code == 0, answer
        yield address
    finally:
        connection.close()


def lose(namesrv: str, name: str, *topics: str) -> None:
    """Let a name server lose a broker of these topics: its process was killed, and its machine does not come back."""
    with unreachable(namesrv, name, *topics):
        pass
    until(lambda: name not in json.loads(ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"])


def until_copied(master: Broker, slave: Broker) -> None:
    """Return once a slave has all that its master has: log, topics, groups, offsets of groups."""

    def log_end(broker: Broker) -> int:
        return broker.in_loop(lambda state: state.store.max_commit_log_offset)

    def tables(broker: Broker) -> tuple[Any, ...]:
        topics = ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG).body
        groups = ask(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        offsets = ask(broker.address, RequestCode.GET_ALL_CONSUMER_OFFSET).body
        return (
            json.loads(topics)["topicConfigTable"],
            set(decode_metadata(SubscriptionGroups, groups).subscription_group_table),
            decode_metadata(ConsumerOffsets, offsets).offset_table,
        )

    until(lambda: log_end(master) == log_end(slave) and tables(master) == tables(slave))


def fill(broker: Broker, numbers: Sequence[int] = NUMBERS) -> None:
    """Make the topic orders of two queues, with numbers in turn."""
    make_topic(broker.address, "orders", 2)
    send_numbers(broker.namesrv, numbers)


def shop_consumes(broker: Broker, count: int) -> None:
    """Let the group shop consume `count` messages of queue 0."""
    with PullConsumer(broker.namesrv, group="shop", topics={"orders": "*"}, consume_from="first") as consumer:
        while not consumer.poll(timeout=0.1):
            pass
        consumer.commit({QueueKey("orders", "broker-a", 0): count})
