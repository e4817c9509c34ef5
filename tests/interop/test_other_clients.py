"""RocketMQ's clients of other languages on our broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput import Broker, MessageStore
from tests.support.broker import make_topic
from tests.support.rocketmq.clients import run_client, sorted_bodies

pytestmark = pytest.mark.java

HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": 1 << 20}
QUEUES = 4


def served(path: Path, language: str, *topics: str) -> Any:
    """What a program in that language is told by a broker with these topics."""
    with Broker.start(path, **HERE) as broker:
        for topic in topics:
            make_topic(broker.address, topic, QUEUES)
        return run_client(language, broker.namesrv, *topics)


def check_places(path: Path, topic: str, messages: list[dict[str, Any]]) -> None:
    """What a consumer was told about messages is what the store has at their places, and it has no other."""
    assert len({(one["queue_id"], one["queue_offset"]) for one in messages}) == len(messages)
    with MessageStore.open(path, read_only=True) as store:
        assert sum(store.max_offset(topic, queue_id) for queue_id in range(QUEUES)) == len(messages)
        for one in messages:
            (stored,) = store.get_message(topic, one["queue_id"], one["queue_offset"], 1).messages()
            assert (stored.body.decode(), stored.tags, stored.keys) == (one["body"], one["tags"], (one["keys"],))


def test_an_unmodified_go_client_sends_and_consumes(tmp_path: Path) -> None:
    told = served(tmp_path / "store", "go", "orders", "steps")
    assert set(told["sent"].values()) == {"SEND_OK"}
    tags = {f"sync-{tag}": tag for tag in "abc"} | {f"async-{i}": "a" for i in range(3)}
    tags |= {"oneway": "b"} | {f"batch-{i}": "c" for i in range(3)}
    assert {one["body"]: one["tags"] for one in told["pushed"]} == tags
    assert sorted_bodies(told["tagged"]) == sorted(body for body, tag in tags.items() if tag in "ac")
    check_places(tmp_path / "store", "orders", told["pushed"])
    for order in "xy":
        steps = [one for one in told["ordered"] if one["tags"] == order]
        assert [one["body"] for one in steps] == [f"{order}-{i:02d}" for i in range("xy".index(order), 20, 2)]
        assert len({one["queue_id"] for one in steps}) == 1
    check_places(tmp_path / "store", "steps", told["ordered"])


def test_an_unmodified_node_client_sends_and_consumes(tmp_path: Path) -> None:
    told = served(tmp_path / "store", "node", "orders")
    tags = {"one-a": "a", "one-b": "b", "one-c": "c", "together-0": "a", "together-1": "a", "together-2": "a"}
    assert told["sent"] == dict.fromkeys(tags, "SEND_OK")
    assert {one["body"]: one["tags"] for one in told["pushed"]} == tags
    assert sorted_bodies(told["tagged"]) == sorted(body for body, tag in tags.items() if tag in "ac")
    check_places(tmp_path / "store", "orders", told["pushed"])
