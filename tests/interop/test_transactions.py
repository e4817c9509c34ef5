"""RocketMQ's own producers of transactions, and transactions that are open while the broker changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reput import Broker
from tests.support.broker import Client, make_topic, messages_of
from tests.support.rocketmq.apache import Apache
from tests.support.sockets import run

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
HERE = {
    "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE,
    "transaction_check_interval": 500, "transaction_time_out": 500,
}  # fmt: skip


def pulled(address: str, topic: str, count: int) -> set[bytes]:
    """The bodies of so many messages of a queue, and of any that came with them; waits for them."""

    async def scenario() -> set[bytes]:
        host, _, port = address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        found: list[bytes] = []
        while len(found) < count:
            found += [one.body for one in messages_of(await client.pull(topic, len(found), hold_ms=60_000))]
        return set(found)

    return run(scenario())


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
        assert pulled(broker.address, "orders", 2) == {b"commit", b"checked-commit"}


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_our_broker_ends_the_transactions_that_apaches_began(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Broker.start(path, **HERE) as broker:
        make_topic(broker.address, "orders", 1)
    where = {"path": str(path), "log_file_size": FILE_SIZE, "topic": "orders", "queues": 1}
    namesrv = apache.run("broker-serve", **where)
    bodies = ["commit", "rollback", "checked-rollback", "checked-commit"]
    apache.run("transactions", namesrv=namesrv, topic="orders", bodies=bodies, checks=0)
    apache.run("broker-stop")
    apache.kill()
    with Broker.start(path, **HERE) as broker:
        told = apache.run("transactions", namesrv=broker.namesrv, topic="orders", bodies=["commit"], checks=2)
        assert told["checked"] == ["checked-commit", "checked-rollback"]
        assert pulled(broker.address, "orders", 3) == {b"commit", b"checked-commit"}
