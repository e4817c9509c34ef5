"""RocketMQ's own clients on our broker, and its broker on a directory that ours has served, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reput import Broker, MessageStore
from reput.remoting.codes import RequestCode
from tests.support.asking import call, request
from tests.support.broker import make_topic
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE}
BODIES = {"sync", "async", "ordered-0", "ordered-1", "batch-0", "batch-1", "batch-2", "oneway"}


def small_bodies(told: list[dict[str, Any]]) -> set[str]:
    return {one["body"] for one in told if not one["body"].startswith("large")}


def offsets(address: str, group: str, topic: str) -> list[int]:
    """The offsets of a group in the four queues of a topic; -1 where there is none."""

    found = []
    for queue_id in range(4):
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False}
        answer = call(address, request(RequestCode.QUERY_CONSUMER_OFFSET, **fields))
        found.append(int((answer.ext_fields or {}).get("offset", -1)))
    return found


def test_unmodified_java_clients_send_consume_and_find(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 4)
        where = {"namesrv": broker.namesrv, "topic": "orders"}
        sent = apache.run("client-send", **where)
        batch = sent["batch"]
        assert {told["status"] for told in sent.values()} == {"SEND_OK"}
        assert sent["ordered-0"]["queue_id"] == sent["ordered-1"]["queue_id"] == 1
        assert sent["ordered-0"]["queue_offset"] < sent["ordered-1"]["queue_offset"]

        pushed = apache.run("client-push", **where, group="all", tags="*", count=9)
        assert small_bodies(pushed) == BODIES
        (large,) = [one["body"] for one in pushed if one["body"].startswith("large")]
        assert large == "large" + "x" * 9000
        places = {one["body"]: (one["queue_id"], one["queue_offset"]) for one in pushed}
        assert places["sync"] == (sent["sync"]["queue_id"], sent["sync"]["queue_offset"])
        tagged = apache.run("client-push", **where, group="some", tags="tag-b || tag-s", count=4)
        assert small_bodies(tagged) == {"sync", "batch-0", "batch-1", "batch-2"}
        assert small_bodies(apache.run("client-lite", **where, group="lite", count=9)) == BODIES
        ends = [0, 0, 0, 0]
        for one in pushed:
            ends[one["queue_id"]] += 1
        assert [max(0, offset) for offset in offsets(broker.address, "all", "orders")] == ends

        ids = [sent["sync"]["offset_id"], *batch["offset_id"].split(","), sent["async"]["id"]]  # the last: a unique key
        found = apache.run("client-find", **where, key="key-sync", ids=ids)
        assert small_bodies(found["by_key"]) == {"sync"}
        assert [found["by_id"][one]["body"] for one in ids] == ["sync", "batch-0", "batch-1", "batch-2", "async"]


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)
def test_a_directory_is_served_by_either_broker_in_turn(apache: Apache, tmp_path: Path) -> None:
    path, group = tmp_path / "store", {"group": "g", "tags": "*"}
    with Broker.start(path, **HERE) as broker:
        make_topic(broker.address, "orders", 4)
        apache.run("client-send", namesrv=broker.namesrv, topic="orders")
        apache.run("client-push", namesrv=broker.namesrv, topic="orders", count=9, **group)
        ours = offsets(broker.address, "g", "orders")
    with apache.serving(path, log_file_size=FILE_SIZE, topic="orders", queues=4) as namesrv:
        apache.run("client-send", namesrv=namesrv, topic="orders")
        again = apache.run("client-push", namesrv=namesrv, topic="orders", count=9, **group)
        assert len(again) == 9  # the group goes on where it was, not from the first message
        assert small_bodies(again) == BODIES
    with Broker.start(path, **HERE) as broker:
        theirs = offsets(broker.address, "g", "orders")
        assert sum(max(0, offset) for offset in theirs) == 18
        assert all(before <= after for before, after in zip(ours, theirs, strict=True))
        apache.run("client-send", namesrv=broker.namesrv, topic="orders")
        assert len(apache.run("client-push", namesrv=broker.namesrv, topic="orders", count=9, **group)) == 9
        assert len(apache.run("client-push", namesrv=broker.namesrv, topic="orders", count=27, group="new", tags="*"))
    with MessageStore.open(path, read_only=True) as store:
        assert store.topics["orders"].write_queue_nums == 4
        assert sum(store.max_offset("orders", queue_id) for queue_id in range(4)) == 27
    groups = json.loads((path / "config/subscriptionGroup.json").read_bytes())["subscriptionGroupTable"]
    assert {"g", "new"} <= set(groups)
