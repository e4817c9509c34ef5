"""Messages with a time across brokers: what one was sent the other delivers, at its time and once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reput import Broker
from reput.formats.message_ext import MessageExt
from tests.support.asking import call
from tests.support.broker import make_topic, messages_of, pull_command
from tests.support.rocketmq.apache import Apache
from tests.support.sockets import free_ports

pytestmark = pytest.mark.java

#: Since 5.4.0 a recall names its message without the topic, by default.
each_version = pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
FILE_SIZE = 1 << 20
HERE = {
    "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE,
    "recall_message_enable": True,
}  # fmt: skip
#: The messages are due so much later: the other broker starts meanwhile.
WAIT_MS = 15_000


def check(address: str, times: dict[str, int], most: int = 1) -> None:
    """All messages of the topic come, none early, and each so often at most."""

    found: list[MessageExt] = []
    while times.keys() - {one.body.decode() for one in found}:
        answer = call(address, pull_command("orders", len(found), hold_ms=20_000))
        if answer.code == 0:
            found += messages_of(answer)
    came = Counter(one.body.decode() for one in found)
    assert came.keys() == times.keys()
    assert max(came.values()) <= most
    assert all(one.store_timestamp >= times[one.body.decode()] for one in found)


def send_and_recall(apache: Apache, namesrv: str, *, recalled: str) -> dict[str, int]:
    """Send messages with the Java client, and recall one of them; the times (ms) of the others by their bodies."""
    waits = {f"{after}": WAIT_MS + after for after in (0, 1, 400, 999, 1000, 2500)} | {recalled: WAIT_MS + 1}
    sent = apache.run("timer-send", namesrv=namesrv, topic="orders", waits=waits)
    assert {status for status, _, _ in sent.values()} == {"SEND_OK"}
    assert apache.run("timer-recall", namesrv=namesrv, topic="orders", handle=sent[recalled][1])
    return {body: time for body, (_, _, time) in sent.items() if body != recalled}


def side_by_side(delivers: Callable[[Path, bool], None], folder: Path) -> None:
    """Let the other broker deliver what is stopped and what is killed: each waits until its messages are due."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(delivers, [folder / "stopped", folder / "killed"], [False, True]))


@each_version
def test_apaches_broker_delivers_what_ours_was_sent(version: str, tmp_path: Path) -> None:
    def delivers(path: Path, is_killed: bool) -> None:
        with Apache(version) as apache:
            with Broker.start(path, **HERE) as broker:  # type: ignore[arg-type]
                make_topic(broker.address, "orders", 1)
                times = send_and_recall(apache, broker.namesrv, recalled="gone")
                if is_killed:
                    path = Path(shutil.copytree(path, tmp_path / "copy"))
            (port,) = free_ports(1)
            keys = {"appendTopicForTimerDeleteKey": "true"} if version > "5.4" else {}
            with apache.serving(path, keys=keys, log_file_size=FILE_SIZE, topic="orders", queues=1, port=port):
                check(f"127.0.0.1:{port}", times, 2 if is_killed else 1)  # what it had no checkpoint of it takes twice

    side_by_side(delivers, tmp_path)


@each_version
def test_our_broker_delivers_what_apaches_was_sent(version: str, tmp_path: Path) -> None:
    def delivers(path: Path, is_killed: bool) -> None:
        with Broker.start(path, **HERE) as broker:  # type: ignore[arg-type]
            make_topic(broker.address, "orders", 1)
        # A kill leaves the wheel as it was last written: each second, as by default.
        keys = {"recallMessageEnable": "true", "timerFlushIntervalMs": "1000"}
        with Apache(version) as apache:
            namesrv = apache.serve(path, keys=keys, log_file_size=FILE_SIZE, topic="orders", queues=1)
            times = send_and_recall(apache, namesrv, recalled="gone")
            if not is_killed:
                apache.run("broker-stop")
        with Broker.start(path, **HERE) as broker:  # type: ignore[arg-type]
            check(broker.address, times)

    side_by_side(delivers, tmp_path)
