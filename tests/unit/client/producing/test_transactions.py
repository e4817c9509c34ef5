"""Transactions of a producer against a broker in the same loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reput.client import LocalTransactionState, Message, MessageClientExt, MQClientError, Producer, PullConsumer
from reput.errors import ConfigError
from tests.support.broker import with_topic
from tests.support.clients import cluster

COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW,
)  # fmt: skip
#: A broker asks at once.
ASKS = {"transaction_check_interval": 100, "transaction_time_out": 100}


async def consumed(namesrv: str, count: int) -> list[bytes]:
    """So many different messages: a broker may ask again before it has the answer, and deliver twice."""
    found: dict[bytes, None] = {}
    async with PullConsumer(namesrv, group="p", topics={"orders": "*"}, consume_from="first") as consumer:
        while len(found) < count:
            found |= dict.fromkeys(one.body for one in await consumer.poll(timeout=30))
    return list(found)


async def test_consumers_see_what_was_committed_and_the_broker_asks_for_what_nobody_told(tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def check(message: MessageClientExt) -> LocalTransactionState:
        asked.append(message.body)
        return COMMIT if message.body == b"later" else ROLLBACK

    async with (
        cluster(tmp_path, "broker-a", **ASKS) as (namesrv, brokers),
        Producer(namesrv.address, group="g", check_transaction=check) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        for body, state in ((b"gone", ROLLBACK), (b"kept", COMMIT), (b"later", UNKNOW), (b"never", UNKNOW)):
            later = {} if state is UNKNOW else {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}  # its end is told before
            message = Message("orders", body, properties=later)
            result = await producer.send_in_transaction(message, lambda _, state=state: state)
            assert result.state is state
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(Message("orders", b"raised"), lambda _: COMMIT // 0)
        assert await consumed(namesrv.address, 2) == [b"kept", b"later"]
        while {*asked} != {b"later", b"never", b"raised"}:
            await asyncio.sleep(0.01)


async def test_a_transaction_is_run_once_its_message_is_stored(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", auto_create_topic_enable=False) as (namesrv, _):
        ran: list[Message] = []

        async def execute(message: Message) -> LocalTransactionState:
            ran.append(message)
            return COMMIT

        async with Producer(namesrv.address, group="g") as producer:
            with pytest.raises(MQClientError, match="check_transaction"):
                await producer.send_in_transaction(Message("orders", b"x"), execute)
        async with Producer(namesrv.address, group="g", check_transaction=lambda _: UNKNOW) as producer:
            with pytest.raises(MQClientError, match="topic 'orders' has no queue"):
                await producer.send_in_transaction(Message("orders", b"x"), execute)
        assert ran == []


async def test_a_check_that_fails_is_asked_again(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def check(message: MessageClientExt) -> LocalTransactionState:
        asked.append(message.body)
        if len(asked) == 1:
            raise ValueError("no")
        return COMMIT

    async with (
        cluster(tmp_path, "broker-a", **ASKS) as (namesrv, brokers),
        Producer(namesrv.address, group="g", check_transaction=check) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        await producer.send_in_transaction(Message("orders", b"x"), lambda _: UNKNOW)
        assert await consumed(namesrv.address, 1) == [b"x"]
        assert len(asked) >= 2


async def test_none_of_a_transaction_s_function_says_that_it_does_not_know(tmp_path: Path) -> None:
    """As null of Java's."""
    async with (
        cluster(tmp_path, "broker-a", **ASKS) as (namesrv, brokers),
        Producer(namesrv.address, group="g", check_transaction=lambda _: COMMIT) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        result = await producer.send_in_transaction(Message("orders", b"x"), lambda _: None)  # type: ignore[arg-type]
        assert result.state is UNKNOW
        assert await consumed(namesrv.address, 1) == [b"x"]


@pytest.mark.parametrize("answer", [True, False, 8, "COMMIT_MESSAGE"])
async def test_what_is_no_outcome_is_an_error_and_the_broker_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    told = f"outcome of a transaction {answer!r}: expected COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW"
    answers = iter([answer, COMMIT])
    async with (
        cluster(tmp_path, "broker-a", **ASKS) as (namesrv, brokers),
        Producer(namesrv.address, group="g", check_transaction=lambda _: next(answers, COMMIT)) as producer,
    ):
        await with_topic(await brokers["broker-a"].client(), "orders")
        with pytest.raises(ConfigError, match=told):
            await producer.send_in_transaction(Message("orders", b"x"), lambda _: answer)
        assert await consumed(namesrv.address, 1) == [b"x"]
    assert told in caplog.text


@pytest.mark.parametrize("makes_topics", [True, False])
async def test_a_producer_that_comes_back_and_sends_nothing_is_asked(tmp_path: Path, makes_topics: bool) -> None:
    """By brokers that make topics by themselves, as Java's; by others, where the topics are given."""
    keys = ASKS | {"auto_create_topic_enable": makes_topics}
    async with cluster(tmp_path, "broker-a", **keys) as (namesrv, brokers):
        await with_topic(await brokers["broker-a"].client(), "orders")
        async with Producer(namesrv.address, group="g", check_transaction=lambda _: UNKNOW) as dying:
            await dying.send_in_transaction(Message("orders", b"x"), lambda _: UNKNOW)
        topics = [] if makes_topics else ["orders"]
        async with Producer(namesrv.address, group="g", check_transaction=lambda _: COMMIT, topics=topics):
            assert await consumed(namesrv.address, 1) == [b"x"]
