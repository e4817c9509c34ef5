"""Rows of Arrow tables, sent by a producer to brokers in the same loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reput.client import Message, MQBrokerError, MQClientError, Producer
from reput.client.producing import batch_sender
from reput.errors import MessageIllegalError, RemotingTimeoutError
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingConnection
from tests.support.broker import with_topic
from tests.support.clients import cluster, stored
from tests.support.proxy import proxy_to

PROPERTIES = pa.map_(pa.string(), pa.string())


def rows_of(topic: str, count: int, **columns: pa.Array) -> pa.Table:
    return pa.table({"topic": [topic] * count, "body": [b"%d" % i for i in range(count)], **columns})


async def test_rows_are_stored_as_the_messages_that_they_say_and_the_result_tells_where(tmp_path: Path) -> None:
    table = pa.table(
        {
            "topic": ["orders", "orders", "returns"],
            "queue_id": pa.array([1, 0, 0], pa.int32()),
            "body": [b"one", b"two", b"three"],
            "tags": ["paid", None, None],
            "keys": [["o-1", "u-1"], [], None],
            "properties": pa.array([[("a", "b")], None, [("ü", "§")]], PROPERTIES),
            "born_timestamp": pa.array([5, 6, 7], pa.timestamp("ms")),
            "flag": pa.array([0, 7, 0], pa.int32()),
            "unique_key": ["id-1", None, None],
            "queue_offset": pa.array([9, 9, 9]),  # a broker assigns it
        }
    )

    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        for topic in ("orders", "returns"):
            await with_topic(await brokers["broker-a"].client(), topic, 2)
        sent = await producer.send_arrow(table)
        orders = await stored(brokers["broker-a"], "orders", 2)
        (third,) = await stored(brokers["broker-a"], "returns", 2)
        two, one = orders
        assert (one.body, one.tags, one.keys, one.properties["a"], one.queue_id) == (
            b"one", "paid", ("o-1", "u-1"), "b", 1,
        )  # fmt: skip
        assert (two.body, two.tags, two.keys, two.flag, two.queue_id) == (b"two", None, (), 7, 0)
        assert (third.body, third.properties["ü"]) == (b"three", "§")
        assert [message.born_timestamp for message in (one, two, third)] == [5, 6, 7]
        assert sent.to_pylist() == [
            {
                "message_id": message.unique_key, "broker_name": "broker-a", "queue_id": message.queue_id,
                "queue_offset": 0, "status": "SEND_OK",
            }
            for message in (one, two, third)
        ]  # fmt: skip
        assert one.unique_key == "id-1"
        assert two.unique_key != third.unique_key


async def test_rows_of_a_queue_keep_their_order_however_many_batches_they_take(tmp_path: Path) -> None:
    """Each row has a time of birth of its own, so each is a batch."""
    count = 500
    queue_ids = pa.array([i * i % 3 for i in range(count)], pa.int32())
    table = rows_of("orders", count, queue_id=queue_ids, born_timestamp=pa.array(range(count)))

    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders", 3)
        sent = await producer.send_arrow(table)
        messages = await stored(brokers["broker-a"], "orders", 3)
        assert len(messages) == count
        places = {
            (queue_id, offset): b"%d" % i
            for i, (queue_id, offset) in enumerate(
                zip(sent["queue_id"].to_pylist(), sent["queue_offset"].to_pylist(), strict=True)
            )
        }
        assert {(one.queue_id, one.queue_offset): one.body for one in messages} == places
        for queue_id in range(3):
            bodies = [int(one.body) for one in messages if one.queue_id == queue_id]
            assert bodies == sorted(bodies)


async def test_what_is_under_way_is_bounded_and_a_large_batch_goes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "_MOST_BYTES", 1000)
    most = 0
    send = BlockingConnection.send

    def watched(connection: BlockingConnection, *commands: RemotingCommand, timeout_s: float) -> list[int]:
        nonlocal most
        most = max(most, len(commands))
        return send(connection, *commands, timeout_s=timeout_s)

    monkeypatch.setattr(BlockingConnection, "send", watched)

    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders", 8)
        bodies = [bytes(5000) if i == 3 else bytes(300) for i in range(8)]
        sent = await producer.send_arrow(pa.table({"topic": ["orders"] * 8, "body": bodies, "queue_id": range(8)}))
        assert sent["queue_id"].to_pylist() == list(range(8))
        assert len(await stored(brokers["broker-a"], "orders", 8)) == 8
        assert 1 < most < 4


async def test_rows_without_a_queue_go_to_all_of_them_in_a_few_batches(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "orders", 2)
        sent = await producer.send_arrow(rows_of("orders", 400))
        assert len(set(sent["message_id"].to_pylist())) == 400
        for name, one in brokers.items():
            counts = [len(await stored(one, "orders", 1)), len(await stored(one, "orders", 2))]
            assert counts == [100, 200], name


async def test_rows_with_a_sharding_key_go_where_single_sends_go(tmp_path: Path) -> None:
    keys = [f"ö-{i % 7}" for i in range(60)]
    properties = pa.array([None if i % 2 else [("n", str(i))] for i in range(60)], PROPERTIES)
    table = rows_of("orders", 60, sharding_key=pa.array(keys), properties=properties)

    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "orders", 4)
        sent = (await producer.send_arrow(table.slice(7, 50))).to_pylist()
        messages = {
            (name, one.queue_id, one.queue_offset): one
            for name, broker in brokers.items()
            for one in await stored(broker, "orders", 4)
        }
        for i, row in enumerate(sent, start=7):
            message = messages[row["broker_name"], row["queue_id"], row["queue_offset"]]
            assert message.body == b"%d" % i
            assert message.properties.get("n") == (None if i % 2 else str(i))
            assert message.properties["__SHARDINGKEY"] == keys[i]
            single = await producer.send(Message("orders", b"x"), sharding_key=keys[i])
            assert (single.queue.broker_name, single.queue_id) == (row["broker_name"], row["queue_id"])
        with pytest.raises(MessageIllegalError, match="row 0: sharding_key is null"):
            await producer.send_arrow(rows_of("orders", 1, sharding_key=pa.array([None], pa.string())))
        with pytest.raises(MessageIllegalError, match="give one of them"):
            await producer.send_arrow(table.append_column("queue_id", pa.array([0] * 60)))


@pytest.mark.parametrize("rows", [{"topic": ["orders"], "body": [b"x"]}, [b"x"], None])
async def test_what_is_no_table_is_named(tmp_path: Path, rows: Any) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, _), Producer(namesrv.address, group="g") as producer:
        error = f"send_arrow takes a pyarrow Table or RecordBatch, not {type(rows).__name__}; pa.Table.from_pandas"
        with pytest.raises(MessageIllegalError, match=error):
            await producer.send_arrow(rows)


async def test_a_topic_that_is_not_there_is_made_and_no_row_makes_an_empty_result(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g", namespace="ns") as producer,
    ):
        nothing = await producer.send_arrow(rows_of("fresh", 0))
        sent = await producer.send_arrow(rows_of("fresh", 8).to_batches()[0])
        assert (nothing.schema, len(nothing), len(sent)) == (sent.schema, 0, 8)
        messages = await stored(brokers["broker-a"], "ns%fresh", 4)
        assert sorted(one.body for one in messages) == [b"%d" % i for i in range(8)]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"bodies": pa.array(range(3))}, "unknown column 'bodies'; did you mean 'body'"),
        ({"topic": pa.array([1, 2, 3])}, "column 'topic' is int64, and must be string"),
        ({"queue_id": pa.array([0, None, 0], pa.int32())}, "row 1: queue_id is null; give all rows one, or none"),
        ({"body": pa.array([b"x", b"", b"y"])}, "row 1: the body is empty"),
        ({"tags": pa.array(["a", "b", "c\x01"])}, "row 2: tags: a separator character"),
        ({"topic": pa.array(["orders", "orders", "or ders"])}, "topic 'or ders' holds ' '"),
        ({"topic": pa.array(["orders", "orders", "%RETRY%g"])}, "topic '%RETRY%g': a retry topic takes no batches"),
        (
            {"properties": pa.array([None, None, [("DELAY", "3")]], PROPERTIES)},
            "row 2: the property DELAY: no broker looks for a time inside of a batch; send this message with send",
        ),
        ({"queue_id": pa.array([1, 1, 5], pa.int32())}, "topic 'orders' has no queue 5 that takes messages; it has 0"),
        ({"queue_id": pa.array([0, 0, 0], pa.int32())}, "the brokers broker-a, broker-b all have a queue 0"),
    ],
)
async def test_rows_that_brokers_refuse_are_named_before_any_is_sent(
    tmp_path: Path, columns: dict[str, pa.Array], error: str
) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders", 2)
        await with_topic(await brokers["broker-b"].client(), "orders", 1)
        table = rows_of("orders", 3)
        values: dict[str, Any] = {name: table[name] for name in table.column_names} | columns
        with pytest.raises((MessageIllegalError, MQClientError)) as raised:
            await producer.send_arrow(pa.table(values))
        assert error in str(raised.value)
        assert await stored(brokers["broker-a"], "orders", 2) == await stored(brokers["broker-b"], "orders") == []


async def test_rows_whose_time_has_come_are_sent_on(tmp_path: Path) -> None:
    """As `poll_arrow` gives them: a broker delivers a message with what it asked for, and with REAL_TOPIC."""
    met = [("DELAY", "18"), ("TIMER_DELAY_MS", "3600000"), ("REAL_TOPIC", "old"), ("REAL_QID", "0")]
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers), Producer(namesrv.address, group="g") as producer:
        await with_topic(await brokers["broker-a"].client(), "orders")
        await producer.send_arrow(rows_of("orders", 2, properties=pa.array([None, met], PROPERTIES)))
        assert [one.body for one in await stored(brokers["broker-a"], "orders")] == [b"0", b"1"]


async def test_rows_go_to_another_broker_where_one_is_stopped(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        for one in brokers.values():
            await with_topic(await one.client(), "orders", 2)
        await producer.queues("orders")
        await brokers["broker-a"].stop()
        sent = await producer.send_arrow(rows_of("orders", 100))
        assert set(sent["broker_name"].to_pylist()) == {"broker-b"}
        assert len(await stored(brokers["broker-b"], "orders", 2)) == 100


async def test_a_batch_that_a_broker_does_not_take_is_sent_as_smaller_ones(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", max_message_size=1 << 16) as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        bodies = [b"%02d" % i * 10_000 for i in range(11)]
        sent = await producer.send_arrow(pa.table({"topic": ["orders"] * 11, "body": bodies}))
        messages = await stored(brokers["broker-a"], "orders")
        assert [one.body for one in messages] == bodies
        assert sent["queue_offset"].to_pylist() == list(range(11))
        assert sent["message_id"].to_pylist() == [one.unique_key for one in messages]


async def test_what_no_attempt_stored_is_an_error_with_the_rows_that_are_stored(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", max_message_size=1 << 16) as (namesrv, brokers),
        Producer(namesrv.address, group="g", retries=1) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        large = pa.table({"topic": ["orders"], "body": [bytes(1 << 17)]})
        batches = [*rows_of("orders", 3).to_batches(), *large.to_batches()]
        with pytest.raises(MQBrokerError) as refused:
            await producer.send_arrow(pa.Table.from_batches(batches))
        assert (refused.value.code, refused.value.stored_messages) == (ResponseCode.MESSAGE_ILLEGAL, 3)
        await brokers["broker-a"].stop()
        with pytest.raises(MQClientError, match=r"3 of 3 rows were not sent after 2 attempts: .*; .*") as failed:
            await producer.send_arrow(rows_of("orders", 3))
        assert failed.value.retriable


async def test_a_batch_without_an_answer_is_sent_again_with_the_same_unique_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = BlockingConnection.answers
    lost: list[RemotingCommand] = []

    def answers_once_lost(connection: BlockingConnection, timeout_s: float) -> list[RemotingCommand]:
        found = answers(connection, timeout_s)
        if not lost:
            lost.extend(found)
            raise RemotingTimeoutError("no answer in time")
        return found

    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g") as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        monkeypatch.setattr(BlockingConnection, "answers", answers_once_lost)
        sent = await producer.send_arrow(rows_of("orders", 3))
        ids = [one.unique_key for one in await stored(brokers["broker-a"], "orders")]
        assert ids == 2 * sent["message_id"].to_pylist()
        assert sent["queue_offset"].to_pylist() == [3, 4, 5]


async def test_answers_to_nothing_and_answers_that_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = BlockingConnection.answers
    odd = [
        lambda found: [RemotingCommand(0, 123_456, 1), *found],
        lambda found: [RemotingCommand(0, one.opaque, 1) for one in found],  # without the fields
    ]

    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        Producer(namesrv.address, group="g", retries=0) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        monkeypatch.setattr(BlockingConnection, "answers", lambda one, seconds: odd[0](answers(one, seconds)))
        assert len(await producer.send_arrow(rows_of("orders", 3))) == 3
        monkeypatch.setattr(BlockingConnection, "answers", lambda one, seconds: odd[1](answers(one, seconds)))
        with pytest.raises(MQClientError, match="an answer that cannot be read"):
            await producer.send_arrow(rows_of("orders", 3))


async def test_a_cancelled_send_of_rows_leaves_no_thread_behind(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a") as (namesrv, brokers),
        proxy_to(brokers["broker-a"].controller.address) as proxy,
        Producer(namesrv.address, group="g", timeout=0.2) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        await producer.queues("orders")
        producer._open_client().routes.master = lambda name: proxy.address  # type: ignore[method-assign]
        proxy.hold()
        sending = asyncio.create_task(producer.send_arrow(rows_of("orders", 3)))
        while not proxy.connections:
            await asyncio.sleep(0.001)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        proxy.go_on()
        producer._timeout = 30
        assert len(await producer.send_arrow(rows_of("orders", 3))) == 3
