"""The batch reader, called as Spark calls it, at a broker of this process."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from reput import Broker
from reput.client.instance.send_request import send_request
from reput.errors import ConfigError, CorruptRecordError, DataLossError, MQClientError, RemotingError
from reput.formats.message import Message
from reput.remoting.command import RemotingCommand
from reput.spark.compat import EqualTo, GreaterThan
from reput.spark.wire import pulls as pulls_module
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from reput.spark.wire.reader import FilteringWireReader, WireReader
from reput.transport.blocking_client import BlockingConnection
from tests.support.master_and_slave import NUMBERS, Pair, fill, hurry, lose, name_server, until_copied
from tests.support.wire import MESSAGES, send_numbers, wire_broker

ALL = list(range(MESSAGES))


def reader(broker: Broker, **options: object) -> WireReader:
    given: dict[str, object] = {"namesrv": broker.namesrv, "subscribe": "orders"} | options
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return WireReader(read_options(texts), ("body",))


def numbers(one: WireReader) -> list[int]:
    """The bodies of all tasks, each task by a copy of the reader as in another process."""
    found = []
    for partition in one.partitions():
        copy: WireReader = pickle.loads(pickle.dumps(one))
        found += [int(body) for batch in copy.read(partition) for body in batch["body"].to_pylist()]
    return sorted(found)


def test_all_messages_of_topics_by_name_and_by_pattern(orders: Broker) -> None:
    assert numbers(reader(orders)) == ALL
    assert numbers(reader(orders, subscribe="orders,refunds")) == sorted([*ALL, 0, 1, 2])
    assert numbers(reader(orders, subscribe=None, subscribePattern="re.*")) == [0, 1, 2]
    assert numbers(reader(orders, subscribe=None, subscribePattern=".*")) == sorted([*ALL, 0, 1, 2])  # no system topic


def test_tasks_of_any_size_read_each_message_once(orders: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert numbers(reader(orders, maxRecordsPerPartition=33)) == ALL
    assert numbers(reader(orders, minPartitions=9)) == ALL
    monkeypatch.setattr(pulls_module, "_BLOCK_BYTES", 1)
    assert numbers(reader(orders)) == ALL


def test_a_range_of_offsets(orders: Broker) -> None:
    begin = json.dumps({"orders": {"broker-a:0": 10, "broker-a:1": -2}})
    end = json.dumps({"orders": {"broker-a:0": 20, "broker-a:1": -1}})
    expected = sorted([*range(20, 40, 2), *range(1, MESSAGES, 2)])
    assert numbers(reader(orders, startingOffsets=begin, endingOffsets=end)) == expected
    assert numbers(reader(orders, startingOffsets="latest")) == []


def test_offsets_name_each_queue_and_no_other(orders: Broker) -> None:
    with pytest.raises(ConfigError, match="does not name: orders broker-a:1"):
        numbers(reader(orders, startingOffsets=json.dumps({"orders": {"broker-a:0": 1}})))
    three = {f"broker-a:{number}": 1 for number in range(3)}
    with pytest.raises(ConfigError, match="the topics; queues that nobody has: orders broker-a:2"):
        numbers(reader(orders, endingOffsets=json.dumps({"orders": three})))


def test_a_range_of_times_begins_with_its_first_moment_and_ends_before_its_last(orders: Broker) -> None:
    one = WireReader(reader(orders)._options, ("body", "store_timestamp"))
    rows = [row for partition in one.partitions() for batch in one.read(partition) for row in batch.to_pylist()]
    times = {int(row["body"]): int(row["store_timestamp"].timestamp() * 1000 + 0.5) for row in rows}
    begin, end = times[0], times[1]
    within = sorted(number for number, ms in times.items() if begin <= ms < max(end, begin + 1))
    assert within
    found = numbers(reader(orders, startingTimestamp=begin, endingTimestamp=max(end, begin + 1)))
    assert found == within
    assert numbers(reader(orders, endingTimestamp=begin)) == sorted(n for n, ms in times.items() if ms < begin)
    assert numbers(reader(orders, endingTimestamp=max(times.values()) + 1)) == ALL


def test_times_that_a_broker_finds_only_roughly_lose_no_message(
    orders: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Cluster.at
    monkeypatch.setattr(Cluster, "at", lambda *asked: max(real(*asked) - 1, 0))  # as RocketMQ before 5.0
    far_ms = 4_000_000_000_000
    assert numbers(reader(orders, endingTimestamp=far_ms)) == ALL
    assert numbers(reader(orders, startingTimestamp=far_ms)) == []


def test_a_broker_that_gives_more_than_was_asked_for_adds_no_row(
    orders: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pulls_module.pulled_from
    monkeypatch.setattr(pulls_module, "pulled_from", lambda offset, count: real(offset, 1024))  # as a whole batch
    assert numbers(reader(orders, maxRecordsPerPartition=33)) == ALL


def test_pushed_filters_leave_queues_and_ranges_out(orders: Broker) -> None:
    one = FilteringWireReader(reader(orders)._options, ("body",))
    one.pushFilters([EqualTo(("queue_id",), 1), GreaterThan(("queue_offset",), 200)])
    assert numbers(one) == list(range(401, MESSAGES, 2))  # Spark itself leaves out the one at 200
    one = FilteringWireReader(reader(orders)._options, ("body",))
    one.pushFilters([EqualTo(("topic",), "refunds")])
    assert one.partitions() == []


def test_messages_that_went_after_they_were_planned_are_an_error_or_a_warning(
    tmp_path: Path, orders: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with wire_broker(tmp_path) as few:
        send_numbers(few.namesrv, range(100))
        planned = reader(orders, subscribe="orders").partitions()  # 250 messages of each queue
        with pytest.raises(DataLossError, match="messages 50 to 249 were there when they were planned"):
            list(reader(few).read(planned[0]))
        kept = [
            int(body)
            for batch in reader(few, failOnDataLoss="false").read(planned[0])
            for body in batch["body"].to_pylist()
        ]
        assert kept == list(range(0, 100, 2))
        assert "messages 50 to 249" in caplog.text
        far = json.dumps({"orders": {"broker-a:0": 999, "broker-a:1": 0}})
        with pytest.raises(DataLossError, match="begins at 999, and it has 0 to 49"):
            reader(few, startingOffsets=far).partitions()
        assert numbers(reader(few, startingOffsets=far, failOnDataLoss="false")) == list(range(1, 100, 2))


def test_a_damaged_message_is_an_error_or_left_out(orders: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = reader(orders).partitions()[0]
    real = pulls_module.pull_result

    def damaged(address: str, answer: object) -> object:
        result = real(address, answer)  # type: ignore[arg-type]
        body = result.body.replace(b"228\x06orders", b"229\x06orders")  # a unique key may have these digits, too
        return type(result)(body, *(getattr(result, name) for name in REST))

    monkeypatch.setattr(pulls_module, "pull_result", damaged)
    with pytest.raises(CorruptRecordError, match="the body has another CRC"):
        list(reader(orders).read(planned))
    kept = sum(batch.num_rows for batch in reader(orders, failOnDataLoss="false").read(planned))
    assert kept == MESSAGES // 2 - 1


REST = ("next_begin_offset", "min_offset", "max_offset", "is_moved", "suggested_broker_id")


def test_a_connection_that_ends_in_the_middle_is_made_again(orders: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls_module, "_AGAIN_S", 0)
    real, calls = BlockingConnection.answer, []

    def ending(connection: BlockingConnection, opaque: int, timeout_s: float) -> RemotingCommand:
        if connection.address == orders.address:
            calls.append(connection)
            if len(calls) in (11, 16):
                raise RemotingError("the connection ended before the answer came")
        return real(connection, opaque, timeout_s)

    monkeypatch.setattr(BlockingConnection, "answer", ending)
    one = reader(orders, maxRecordsPerPartition=125)
    assert numbers(one) == ALL
    assert len(set(calls)) == 1 + 4 + 2  # of the planner, of four tasks, and another one for each that ended


def test_a_connection_that_ends_while_answers_are_given_up_loses_no_message(
    orders: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls_module, "_AGAIN_S", 0)
    planned = reader(orders).partitions()[0]
    pulled_from, answer = pulls_module.pulled_from, BlockingConnection.answer
    asked, answers = [], []

    def fewer(offset: int, count: int) -> dict[str, str]:
        asked.append(offset)
        return pulled_from(offset, 5 if len(asked) == 4 else count)

    def ending(connection: BlockingConnection, opaque: int, timeout_s: float) -> RemotingCommand:
        if connection.address == orders.address:
            answers.append(opaque)
            if len(answers) == 5:  # the fourth was short: this is the first of those that do not join it
                raise RemotingError("the connection ended before the answer came")
        return answer(connection, opaque, timeout_s)

    monkeypatch.setattr(pulls_module, "pulled_from", fewer)
    monkeypatch.setattr(BlockingConnection, "answer", ending)
    found = [int(body) for batch in reader(orders).read(planned) for body in batch["body"].to_pylist()]
    assert asked.count(96) == 2  # the messages of the short answer were pulled again
    assert found == list(range(0, MESSAGES, 2))


def test_who_does_not_answer_is_told(orders: Broker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no name server knows a topic missing"):
        reader(orders, subscribe="missing,orders").partitions()
    with wire_broker(tmp_path) as gone:
        one = reader(gone)
    with pytest.raises(MQClientError, match="no name server answers"):
        one.partitions()


def test_a_broker_that_is_away_for_long_fails_the_task(orders: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls_module, "_AGAIN_S", 0)
    planned = reader(orders).partitions()[0]

    def refused(cluster: Cluster, address: str) -> object:
        raise RemotingError(f"{address}: Connection refused")

    monkeypatch.setattr(Cluster, "open", refused)
    with pytest.raises(RemotingError, match="Connection refused"):
        list(reader(orders).read(planned))


def test_a_batch_without_the_queues_of_a_lost_broker_fails(tmp_path: Path) -> None:
    with wire_broker(tmp_path) as first:
        send_numbers(first.namesrv, range(4))
        lose(first.namesrv, "broker-b", "orders", "of-b")
        for options in ({}, {"subscribe": "of-b"}, {"subscribe": None, "subscribePattern": "of-.*"}):
            with pytest.raises(RemotingError, match=r"broker-b of topic .*: no name server knows where it is"):
                numbers(reader(first, **options))
        cluster = Cluster(reader(first)._options.access)
        assert {queue.broker_name for queue in cluster.publish_queues("orders")} == {"broker-a"}
        first_send = cluster.publish_queues("of-b")  # it makes the topic at the broker that is there
        assert {cluster.address(queue) for queue in first_send} == {first.address}
        assert "broker-b" not in cluster.topics(read_options({"namesrv": first.namesrv, "subscribePattern": ".*"}))
        cluster.close()


def test_a_slave_is_read_while_its_master_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hurry(monkeypatch)
    with name_server(tmp_path) as namesrv:
        pair = Pair(tmp_path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            until_copied(master, slave)
            master.close()
            cluster = Cluster(reader(master)._options.access)
            assert {cluster.latest(queue) for queue in cluster.queues(["orders"])} == {5}
            told = f"a slave answers, as its master is away broker=broker-a slave={slave.address}"
            assert caplog.text.count(told) == 1
            with pytest.raises(RemotingError, match="the master of broker-a is away, and a slave changes nothing"):
                cluster.send("p", *cluster.queues(["orders"])[:1], send_request(Message("orders", b"x"), "k", 0), 3.0)
            cluster.close()
            assert numbers(reader(master)) == list(NUMBERS)
            later = json.dumps({"orders": {"broker-a:0": 9, "broker-a:1": 5}})
            for option in ("startingOffsets", "endingOffsets"):  # the master may have them
                with pytest.raises(
                    RemotingError, match="the options name 9; its master is away, and its slave ends at 5"
                ):
                    numbers(reader(master, failOnDataLoss="false", **{option: later}))
