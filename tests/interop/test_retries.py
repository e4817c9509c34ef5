"""RocketMQ's own clients with delays and failures, and messages that wait while the broker changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.formats.message_ext import MessageExt
from tests.support.asking import call
from tests.support.broker import make_topic, messages_of, pull_command
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE}
#: The delay level of five seconds: a broker starts meanwhile.
LEVEL = 2


def pulled(address: str, topic: str) -> list[MessageExt]:
    """What comes first in a queue; waits for it."""

    return messages_of(call(address, pull_command(topic, hold_ms=60_000)))


def consume(apache: Apache, broker: Broker, attempts: int, *, succeeds: bool, most: int = -1) -> Any:
    where = {"namesrv": broker.namesrv, "topic": "orders", "group": "g"}
    return apache.run("retry-consume", **where, attempts=attempts, succeeds=succeeds, most=most)


def test_a_consumer_that_fails_gets_the_message_again(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        assert apache.run("retry-send", namesrv=broker.namesrv, topic="orders", body="hard", level=0) == "SEND_OK"
        assert consume(apache, broker, 3, succeeds=True) == [0, 1, 2]
        assert [one.reconsume_times for one in pulled(broker.address, "%RETRY%g")] == [1, 2]


def test_what_a_consumer_never_takes_is_a_dead_letter(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        apache.run("retry-send", namesrv=broker.namesrv, topic="orders", body="hopeless", level=0)
        assert consume(apache, broker, 2, succeeds=False, most=1) == [0, 1]
        (dead,) = pulled(broker.address, "%DLQ%g")
        assert (dead.body, dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (b"hopeless", 2, "orders")


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_either_broker_delivers_what_the_other_was_sent(apache: Apache, tmp_path: Path) -> None:
    path, group = tmp_path / "store", {"group": "g", "tags": "*"}
    with Broker.start(path, **HERE) as broker:
        make_topic(broker.address, "orders", 4)
        apache.run("retry-send", namesrv=broker.namesrv, topic="orders", body="ours", level=LEVEL)
    with apache.serving(path, log_file_size=FILE_SIZE, topic="orders", queues=4) as namesrv:
        (one,) = apache.run("client-push", namesrv=namesrv, topic="orders", count=1, **group)
        assert one["body"] == "ours"
        apache.run("retry-send", namesrv=namesrv, topic="orders", body="theirs", level=LEVEL)
    with Broker.start(path, **HERE) as broker:
        (one,) = apache.run("client-push", namesrv=broker.namesrv, topic="orders", count=1, **group)
        assert one["body"] == "theirs"
