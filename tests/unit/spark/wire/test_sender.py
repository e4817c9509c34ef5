"""Rows to brokers, as a task of Spark's sends them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reput import Broker
from reput.client.instance.send_result import SendResult
from reput.errors import MessageIllegalError, MQBrokerError, MQClientError, RemotingError
from reput.remoting.queue_tables import QueueKey
from reput.spark.wire import sender as sender_module
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from reput.spark.wire.reader import WireReader
from reput.spark.wire.row_keys import RowKeys
from reput.spark.wire.sender import Sender
from reput.spark.wire.write_options import WireWriteOptions, check_sink_schema, write_options
from tests.support.wire import wire_broker

KEYS = ("query", 0, 0)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(sender_module, "_AGAIN_S", 0)
    with wire_broker(tmp_path) as broker:
        yield broker


def options(broker: Broker, **more: str) -> WireWriteOptions:
    return write_options({"namesrv": broker.namesrv} | more)


def send_table(broker: Broker, table: pa.Table, **more: str) -> int:
    given = options(broker, **more)
    check_sink_schema(table.schema, given)
    cluster = Cluster(given.access)
    sender = Sender(cluster, given, RowKeys(*KEYS))
    for batch in table.to_batches(max_chunksize=400):
        sender.put(batch)
    sender.flush()
    cluster.close()
    return sender.rows


def stored(broker: Broker, topic: str = "orders") -> list[dict[str, Any]]:
    """All messages of a topic, by queue and offset."""
    columns = ("queue_id", "queue_offset", "body", "tags", "keys", "unique_key", "properties", "flag", "born_timestamp")
    reader = WireReader(read_options({"namesrv": broker.namesrv, "subscribe": topic}), columns)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["queue_id"], row["queue_offset"]))


def numbered(count: int, **columns: Any) -> pa.Table:
    return pa.table({"topic": ["orders"] * count, "body": [b"%d" % n for n in range(count)], **columns})


def test_rows_arrive_with_all_their_fields(broker: Broker) -> None:
    table = pa.table(
        {
            "topic": ["orders", "orders", "refunds"],
            "body": [b"one", b"large" * 5000, b"three"],
            "tags": ["paid", None, None],
            "keys": [["o-1", "c-1"], None, []],
            "unique_key": [None, "MINE", None],
            "properties": pa.array([[("region", "eu")], None, []], pa.map_(pa.string(), pa.string())),
            "flag": pa.array([7, None, None], pa.int32()),
            "born_timestamp": pa.array([1_700_000_000_123_000, None, None], pa.timestamp("us", "UTC")),
            "queue_offset": [5, 6, 7],  # what a broker assigns is not looked at
        }
    )
    assert send_table(broker, table) == 3
    by_body = {row["body"]: row for row in [*stored(broker), *stored(broker, "refunds")]}
    one = by_body[b"one"]
    assert (one["tags"], one["keys"], one["flag"]) == ("paid", ["o-1", "c-1"], 7)
    assert dict(one["properties"])["region"] == "eu"
    assert one["unique_key"] == RowKeys(*KEYS).key(0)
    assert by_body[b"large" * 5000]["unique_key"] == "MINE"
    assert by_body[b"three"]["unique_key"] == RowKeys(*KEYS).key(2)


def test_a_request_that_a_broker_does_not_take_is_sent_as_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "_AGAIN_S", 0)
    with wire_broker(tmp_path, max_message_size=1 << 16) as broker:
        bodies = [b"%02d" % number * 10_000 for number in range(11)]
        assert send_table(broker, pa.table({"topic": ["orders"] * 11, "body": bodies})) == 11
        rows = stored(broker)
        assert sorted(row["body"] for row in rows) == bodies
        assert {row["unique_key"] for row in rows} == {RowKeys(*KEYS).key(number) for number in range(11)}


def test_many_rows_go_to_all_queues_and_have_keys_by_their_numbers(broker: Broker) -> None:
    assert send_table(broker, numbered(2500)) == 2500
    rows = stored(broker)
    assert sorted(int(row["body"]) for row in rows) == list(range(2500))
    assert {row["queue_id"] for row in rows} == {0, 1}
    assert {row["unique_key"] for row in rows} == {RowKeys(*KEYS).key(number) for number in range(2500)}


def test_a_repeated_task_sends_the_same_unique_keys(broker: Broker) -> None:
    send_table(broker, numbered(50))
    send_table(broker, numbered(50))
    rows = stored(broker)
    assert len(rows) == 100
    assert len({(row["unique_key"], row["body"]) for row in rows}) == 50


def test_rows_of_a_sharding_key_are_in_one_queue_in_their_order(broker: Broker) -> None:
    send_table(broker, numbered(60, sharding_key=[f"k-{n % 5}" for n in range(60)]))
    by_key: dict[str, list[tuple[int, int]]] = {}
    for row in stored(broker):
        by_key.setdefault(dict(row["properties"])["__SHARDINGKEY"], []).append((row["queue_id"], int(row["body"])))
    assert len(by_key) == 5
    for rows in by_key.values():
        assert len({queue for queue, _ in rows}) == 1
        assert [number for _, number in rows] == sorted(number for _, number in rows)
    assert len({rows[0][0] for rows in by_key.values()}) == 2


def test_the_option_topic_takes_all_rows_and_a_topic_is_made_by_the_first(broker: Broker) -> None:
    send_table(broker, numbered(3), topic="made-now")
    send_table(broker, numbered(3).drop_columns(["topic"]), topic="made-now")
    assert len(stored(broker, "made-now")) == 6
    assert stored(broker) == []


def test_what_no_broker_takes_is_told_with_its_row(broker: Broker) -> None:
    bodies = [b"x"] * 450 + [b""] + [b"x"]
    with pytest.raises(MessageIllegalError, match=r"row 450 of this partition: the body is empty"):
        send_table(broker, pa.table({"topic": ["orders"] * 452, "body": bodies}))
    with pytest.raises(MessageIllegalError, match="no column 'topic'"):
        check_sink_schema(pa.schema([("body", pa.binary())]), options(broker))
    with pytest.raises(MessageIllegalError, match="must be string"):
        check_sink_schema(
            pa.schema([("topic", pa.string()), ("body", pa.binary()), ("sharding_key", pa.int32())]), options(broker)
        )


@pytest.mark.parametrize(
    ("error", "attempts", "told"),
    [
        (RemotingError("the connection ended"), 4, MQClientError),
        (MQBrokerError("b:1", 2, "system busy"), 4, MQClientError),
        (MQBrokerError("b:1", 13, "illegal"), 2, MQBrokerError),  # the three rows, and the first one alone
        (MQBrokerError("b:1", 29, "wrong"), 1, MQBrokerError),
    ],
)
def test_a_send_is_tried_again_where_that_may_help(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int, told: type[Exception]
) -> None:
    tried = []

    def failing(cluster: Cluster, group: str, queue: Any, request: Any, timeout_s: float) -> list[SendResult]:
        tried.append(queue.queue_id)
        raise error

    monkeypatch.setattr(Cluster, "send", failing)
    with pytest.raises(told):
        send_table(broker, numbered(3))
    assert len(tried) == attempts
    assert len(set(tried)) == min(attempts, 2)  # another queue each time
    tried.clear()
    with pytest.raises(told):
        send_table(broker, numbered(3, sharding_key=["a", "a", "a"]))
    assert len(set(tried)) == 1


def test_a_send_that_failed_once_arrives(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = Cluster.send, []

    def failing_first(cluster: Cluster, *arguments: Any) -> list[SendResult]:
        tried.append(arguments)
        if len(tried) == 1:
            raise RemotingError("the connection ended")
        return real(cluster, *arguments)

    monkeypatch.setattr(Cluster, "send", failing_first)
    send_table(broker, numbered(3))
    assert [row["body"] for row in stored(broker)] == [b"0", b"1", b"2"]


def test_a_topic_that_no_broker_has_for_a_moment_is_asked_for_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = Cluster.publish_queues, []

    def away_first(cluster: Cluster, topic: str) -> tuple[QueueKey, ...]:
        asked.append(topic)
        if len(asked) == 1:
            raise MQClientError("topic 'orders' has no queue that takes messages")
        return real(cluster, topic)

    monkeypatch.setattr(Cluster, "publish_queues", away_first)
    send_table(broker, numbered(3))
    assert len(stored(broker)) == 3


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_row_with_a_time_waits_although_others_are_sent_with_it(broker: Broker, name: str) -> None:
    hour_ms = 3_600_000
    values = {"DELAY": 18, "TIMER_DELAY_SEC": 3600, "TIMER_DELAY_MS": hour_ms}
    value = values.get(name, time.time_ns() // 1_000_000 + hour_ms)
    properties = pa.array([[(name, str(value))], None], pa.map_(pa.string(), pa.string()))
    send_table(broker, numbered(2, properties=properties))
    assert [row["body"] for row in stored(broker)] == [b"1"]


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG"])
def test_a_row_whose_request_was_met_is_not_kept_back_again(broker: Broker, name: str) -> None:
    hour_ms = 3_600_000
    values = {"DELAY": 18, "TIMER_DELAY_SEC": 3600, "TIMER_DELAY_MS": hour_ms, "TRAN_MSG": "true"}
    value = values.get(name, time.time_ns() // 1_000_000 + hour_ms)
    request = [(name, str(value)), ("PGROUP", "shop"), ("region", "eu")]
    properties = pa.array([[*request, ("REAL_TOPIC", "orders"), ("REAL_QID", "0")]], pa.map_(pa.string(), pa.string()))
    send_table(broker, numbered(1, properties=properties))
    (row,) = stored(broker)
    assert row["body"] == b"0"
    names = {name for name, _ in row["properties"]}
    assert "region" in names
    assert not names & {name, "PGROUP", "REAL_TOPIC", "REAL_QID"}


def test_a_row_begins_no_transaction(broker: Broker) -> None:
    properties = pa.array([[("TRAN_MSG", "true"), ("PGROUP", "shop")]], pa.map_(pa.string(), pa.string()))
    send_table(broker, numbered(1, properties=properties))
    assert [row["body"] for row in stored(broker)] == [b"0"]
