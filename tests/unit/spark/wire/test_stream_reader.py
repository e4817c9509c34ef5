"""The stream reader, called as Spark calls it, at brokers of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.client.instance.name_servers import NameServers
from reput.client.sync import PullConsumer
from reput.errors import ConfigError, DataLossError, MQClientError, RemotingError
from reput.remoting.queue_tables import QueueKey
from reput.spark.compat import ReadAllAvailable, ReadMaxRows
from reput.spark.schema import spark_schema
from reput.spark.wire import cluster as cluster_module
from reput.spark.wire import pulls as pulls_module
from reput.spark.wire.stream_reader import WireStreamReader
from tests.support.broker import make_topic
from tests.support.sockets import free_ports
from tests.support.startless_query import StartlessQuery
from tests.support.wire import send_numbers, wire_broker

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def fresh_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes are asked for each time, so that no test waits for a second."""
    monkeypatch.setattr(cluster_module, "_ROUTES_S", 0.0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with wire_broker(tmp_path / "broker") as broker:
        yield broker


def stream(broker: Broker, **options: object) -> WireStreamReader:
    given: dict[str, object] = {"namesrv": broker.namesrv, "subscribe": "orders"} | options
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return WireStreamReader(texts, spark_schema(["body"]))


def stored(offset: Any) -> Any:
    """An offset as it comes back from the checkpoint."""
    return json.loads(json.dumps(offset))


def numbers(one: WireStreamReader, start: Any, end: Any) -> list[int]:
    partitions = one.partitions(start, end)
    return sorted(int(body) for part in partitions for batch in one.read(part) for body in batch["body"].to_pylist())


def test_batches_follow_each_other_and_are_the_same_after_a_restart(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(10))
    one = stream(broker)
    first = stored(one.latestOffset(one.initialOffset(), ALL))
    assert first == {"orders": {"broker-a:0": [0, 5], "broker-a:1": [0, 5]}}
    assert one.latestOffset(first, ALL) == first  # nothing new: no batch
    send_numbers(broker.namesrv, range(10, 14))
    second = stored(one.latestOffset(first, ALL))
    assert second == {"orders": {"broker-a:0": 7, "broker-a:1": 7}}
    for again in (one, stream(broker)):
        assert numbers(again, {}, first) == list(range(10))
        assert numbers(again, first, second) == list(range(10, 14))


def test_a_stream_from_the_latest_offset_begins_there_also_after_a_restart(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(10))
    one = stream(broker, startingOffsets="latest")
    first = stored(one.latestOffset({}, ALL))
    send_numbers(broker.namesrv, range(10, 14))
    second = stored(one.latestOffset(first, ALL))
    assert numbers(stream(broker, startingOffsets="latest"), {}, first) == []
    assert numbers(one, first, second) == list(range(10, 14))


def test_a_limit_is_kept_until_all_is_read(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(50))
    send_numbers(broker.namesrv, range(50, 60), queues=1)
    one = stream(broker, maxOffsetsPerTrigger=12)
    limit = one.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 12
    found: list[int] = []
    start: Any = {}
    while (end := stored(one.latestOffset(start, limit))) != start:
        batch = numbers(one, start, end)
        assert 0 < len(batch) <= 12
        found += batch
        assert one.reportLatestOffset() == {"orders": {"broker-a:0": 35, "broker-a:1": 25}}
        start = end
    assert sorted(found) == list(range(60))


def test_available_now_ends_where_the_queues_ended(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(10))
    one = stream(broker)
    one.prepareForTriggerAvailableNow()
    send_numbers(broker.namesrv, range(10, 20))
    make_topic(broker.address, "orders", 3)
    end = one.latestOffset({}, ALL)
    assert numbers(one, {}, end) == list(range(10))
    assert one.latestOffset(end, ALL) == end


def test_a_queue_that_comes_later_is_read_from_its_first_message_on(broker: Broker) -> None:
    one = stream(broker, startingOffsets="latest", subscribe=None, subscribePattern="orders|new")
    first = stored(one.latestOffset({}, ALL))
    make_topic(broker.address, "orders", 3)
    make_topic(broker.address, "new", 1)
    send_numbers(broker.namesrv, range(9), queues=3)
    send_numbers(broker.namesrv, range(100, 102), topic="new", queues=1)
    second = stored(one.latestOffset(first, ALL))
    assert second["orders"]["broker-a:2"] == [0, 3]
    assert numbers(stream(broker), first, second) == [*range(9), 100, 101]


def test_a_broker_that_is_away_is_waited_for_between_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with wire_broker(tmp_path / "a") as first_broker:
        port = free_ports(1)[0]
        second: dict[str, Any] = {"broker_name": "broker-b", "namesrv_addr": first_broker.namesrv, "port": port}
        with wire_broker(tmp_path / "b", **second):
            send_numbers(first_broker.namesrv, range(4))
            one = stream(first_broker)
            start = stored(one.latestOffset({}, ALL))
            assert set(start["orders"]) == {f"broker-{name}:{number}" for name in "ab" for number in range(2)}
        send_numbers(first_broker.namesrv, range(4, 6))
        end = stored(one.latestOffset(start, ALL))
        assert end["orders"]["broker-b:0"] == start["orders"]["broker-b:0"]
        assert caplog.text.count("a queue waits for its broker") == 2
        assert numbers(one, start, end) == [4, 5]
        with wire_broker(tmp_path / "b", **second):
            send_numbers(first_broker.namesrv, range(6, 8), broker_name="broker-b")
            last = stored(one.latestOffset(end, ALL))
            assert numbers(one, end, last) == [6, 7]


def test_a_broker_that_is_away_at_the_start_fails_the_query(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(cluster: object, queue: object) -> int:
        raise RemotingError("no connection")

    one = stream(broker)
    start = stored(one.latestOffset({}, ALL))
    monkeypatch.setattr(cluster_module.Cluster, "latest", away)
    with pytest.raises(RemotingError, match="no connection"):
        one.latestOffset({}, ALL)
    assert one.latestOffset(start, ALL) == start


def test_lost_messages_are_an_error_or_a_warning(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    send_numbers(broker.namesrv, range(10))
    start = {"orders": {"broker-a:0": 9, "broker-a:1": 4}}
    with pytest.raises(DataLossError, match="queue 0 of broker-a: the next message is 9, and the queue has 0 to 4"):
        stream(broker).latestOffset(start, ALL)
    lax = stream(broker, failOnDataLoss="false")
    end = stored(lax.latestOffset(start, ALL))
    assert end == {"orders": {"broker-a:0": [5, 5], "broker-a:1": 5}}
    assert numbers(lax, start, end) == [9]
    assert "the next message is 9" in caplog.text


def test_lost_messages_are_told_to_a_query_that_ends_by_itself_too(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(10))
    one = stream(broker)
    one.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="queue 0 of broker-a: the next message is 9, and the queue has 0 to 4"):
        one.latestOffset({"orders": {"broker-a:0": 9, "broker-a:1": 4}}, ALL)


def test_a_queue_waits_for_a_slave_that_lags(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send_numbers(broker.namesrv, range(10))
    monkeypatch.setattr(cluster_module, "MASTER_ID", 7)  # the broker is nobody's master
    one = stream(broker)
    start = {"orders": {"broker-a:0": 9, "broker-a:1": 4}}
    assert stored(one.latestOffset(start, ALL)) == {"orders": {"broker-a:0": 9, "broker-a:1": 5}}
    assert "its master is away, and its slave ends at 5" in caplog.text
    end = {"orders": {"broker-a:0": 9, "broker-a:1": 6}}
    monkeypatch.setattr(pulls_module, "_AGAIN_S", 0.0)
    with pytest.raises(RemotingError, match="a slave that lags: its queue ends at 5"):
        numbers(one, start, end)


def test_a_stream_goes_on_while_no_name_server_answers(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(servers: NameServers, topic: str, *, with_lost: bool) -> None:
        raise MQClientError("no name server answers")

    one = stream(broker)
    start = stored(one.latestOffset({}, ALL))
    send_numbers(broker.namesrv, range(10))
    monkeypatch.setattr(NameServers, "route", away)
    assert one.latestOffset(start, ALL) == {"orders": {"broker-a:0": 5, "broker-a:1": 5}}
    with pytest.raises(MQClientError, match="no name server answers"):
        stream(broker).latestOffset(start, ALL)


def test_a_group_shows_how_far_the_stream_is(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(10))
    one = stream(broker, group="spark-orders")
    end = one.latestOffset({}, ReadMaxRows(8))
    assert len(numbers(one, {}, end)) == 8
    one.commit(end)
    with PullConsumer(broker.namesrv, group="spark-orders") as consumer:
        queues = [QueueKey("orders", "broker-a", number) for number in range(2)]
        assert set(consumer.queues("orders")) == set(queues)
        assert [consumer.committed(queue) for queue in queues] == [4, 4]
    one.stop()


@pytest.mark.parametrize("offsets", ["earliest", "latest"])
def test_each_message_comes_once_although_no_start_is_told(broker: Broker, offsets: str) -> None:
    send_numbers(broker.namesrv, range(4))
    query = StartlessQuery(lambda: stream(broker, startingOffsets=offsets))
    query.run(available_now=True)
    expected = set(range(4)) if offsets == "earliest" else set()
    for number, (available_now, dies) in enumerate([(True, True), (False, True), (True, False), (False, False)]):
        new = range(10 * number + 10, 10 * number + 16)
        send_numbers(broker.namesrv, new)
        expected |= set(new)
        query.run(available_now=available_now, batches=1 if dies else None, dies=dies)
    make_topic(broker.address, "orders", 3)
    send_numbers(broker.namesrv, range(60, 66), queues=3)
    query.run(available_now=True)
    assert sorted(map(int, query.all_rows)) == sorted(expected | set(range(60, 66)))


def test_a_query_that_ends_by_itself_does_not_forget_a_queue_that_is_away(tmp_path: Path) -> None:
    with wire_broker(tmp_path / "a") as first_broker:
        second: dict[str, Any] = {"broker_name": "broker-b", "namesrv_addr": first_broker.namesrv}
        second["port"] = free_ports(1)[0]
        query = StartlessQuery(lambda: stream(first_broker))
        with wire_broker(tmp_path / "b", **second):
            send_numbers(first_broker.namesrv, range(4), broker_name="broker-b")
            query.run(available_now=True)
        ends = list(query.ends)
        send_numbers(first_broker.namesrv, range(4, 6))
        with pytest.raises(RemotingError, match="broker-b"):
            query.run(available_now=True)
        assert query.ends == ends
        query.run(available_now=False)
        with wire_broker(tmp_path / "b", **second):
            send_numbers(first_broker.namesrv, range(6, 8), broker_name="broker-b")
            query.run(available_now=True)
    assert sorted(map(int, query.all_rows)) == list(range(8))


def test_messages_that_are_lost_are_told_by_a_query_that_ends_by_itself(broker: Broker) -> None:
    send_numbers(broker.namesrv, range(10))
    query = StartlessQuery(lambda: stream(broker))
    query.ends, query.commits = [{"orders": {"broker-a:0": 9, "broker-a:1": 4}}], 1
    with pytest.raises(DataLossError, match="queue 0 of broker-a: the next message is 9, and the queue has 0 to 4"):
        query.run(available_now=True)
    assert len(query.ends) == 1


def test_options_and_checkpoints_of_others_are_told(broker: Broker) -> None:
    with pytest.raises(ConfigError, match="no option 'path'"):
        stream(broker, path="/store").initialOffset()
    with pytest.raises(ConfigError, match="no queue such as"):
        stream(broker).latestOffset({"/data/store": {"offset": 5}}, ALL)
