"""What a test asks its broker."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from pathlib import Path

import pytest

from reput.broker import embedded
from reput.client import LocalTransactionState, Message, MessageClientExt
from reput.client.sync import Producer, PullConsumer
from reput.errors import ConfigError
from reput.testing import LocalBroker, broker
from tests.support.asking import call
from tests.support.broker import make_topic, send_command


def send_orders(rocketmq: LocalBroker, *bodies: bytes, topic: str = "orders", delay_ms: int | None = None) -> None:
    with Producer(rocketmq.namesrv, group="shop") as producer:
        for body in bodies:
            producer.send(Message(topic, body, tags="paid"), delay_ms=delay_ms)


def bodies_of(rocketmq: LocalBroker, count: int, topic: str = "orders") -> list[bytes]:
    """The bodies of a topic's messages, once there are so many."""
    until = time.monotonic() + 30
    while len(found := rocketmq.messages(topic)) < count:
        assert time.monotonic() < until, found
    return [message.body for message in found]


def test_messages_are_told_in_the_order_of_their_sends() -> None:
    with broker() as rocketmq:
        folder = Path(rocketmq.in_loop(lambda state: state.store.path))
        send_orders(rocketmq, *(b"%d" % i for i in range(10)))
        found = rocketmq.messages("orders")
        assert [message.body for message in found] == [b"%d" % i for i in range(10)]
        assert {message.tags for message in found} == {"paid"}
        assert {message.queue_id for message in found} == {0, 1, 2, 3}
    assert not folder.exists()


def test_a_broker_that_no_variable_has_runs_until_it_is_closed() -> None:
    (started,) = (broker().__enter__() for _ in range(1))
    address = broker().address
    gc.collect()
    assert call(address, send_command("orders", b"x")).code == 0
    (dropped,) = (one for one in embedded._open if one.address == address)
    for one in (started, dropped):
        folder = Path(one.in_loop(lambda state: state.store.path))
        one.close()
        assert not folder.exists()


def test_a_start_that_is_refused_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="noSuchKey"):
        broker(noSuchKey=1)  # type: ignore[call-arg]
    assert list(tmp_path.iterdir()) == []


def test_a_wait_ends_when_a_group_has_consumed_all_and_else_says_how_far_it_is() -> None:
    with broker() as rocketmq:
        send_orders(rocketmq, b"one")
        with pytest.raises(
            TimeoutError, match=r"group 'g' has not consumed topic 'orders' in 0 s: queue \d at 0 of 1$"
        ):
            rocketmq.wait_consumed("g", "orders", timeout=0)
        with PullConsumer(rocketmq.namesrv, group="g", topics={"orders": "*"}, consume_from="first") as consumer:
            assert len(consumer.poll(timeout=30)) == 1
            consumer.commit()
            rocketmq.wait_consumed("g", "orders")


def test_a_topic_that_is_not_there_is_an_error_with_those_that_are() -> None:
    with broker() as rocketmq:
        with pytest.raises(ConfigError, match=r"there is no topic 'orders'; topics of this broker: none$"):
            rocketmq.messages("orders")
        assert rocketmq.messages("TRANS_CHECK_MAX_TIME_TOPIC") == []  # one of RocketMQ's own, which has no message
        send_orders(rocketmq, b"one")
        for ask in (rocketmq.messages, lambda topic: rocketmq.wait_consumed("g", topic)):
            with pytest.raises(ConfigError, match=r"there is no topic 'order'; topics of this broker: orders$"):
                ask("order")


def test_a_clock_that_is_put_forward_brings_what_is_delayed_until_then() -> None:
    with broker() as rocketmq:
        send_orders(rocketmq, b"level", delay_ms=3_600_000)
        send_orders(rocketmq, b"timer", delay_ms=3_000_000)
        assert rocketmq.messages("orders") == []
        rocketmq.advance(3500)
        assert bodies_of(rocketmq, 1) == [b"timer"]
        rocketmq.advance(100)
        assert bodies_of(rocketmq, 2) == [b"timer", b"level"]
        stored = [message.store_timestamp for message in rocketmq.messages("orders")]
        assert stored[0] >= time.time() * 1000 + 3_400_000
        assert stored[1] >= stored[0] + 100_000
        send_orders(rocketmq, b"later", delay_ms=60_000)  # from the time that it is now
        send_orders(rocketmq, b"now")
        assert bodies_of(rocketmq, 3)[2:] == [b"now"]
        rocketmq.advance(60)
        assert bodies_of(rocketmq, 4)[3:] == [b"later"]
        with pytest.raises(ConfigError, match="never goes back"):
            rocketmq.advance(-1)


def test_a_clock_that_is_put_forward_asks_for_the_ends_of_transactions() -> None:
    asked = threading.Event()

    def check(message: MessageClientExt) -> LocalTransactionState:
        asked.set()
        return LocalTransactionState.COMMIT_MESSAGE

    with broker() as rocketmq, Producer(rocketmq.namesrv, group="payers", check_transaction=check) as producer:
        producer.send_in_transaction(Message("orders", b"paid"), lambda _: LocalTransactionState.UNKNOW)
        rocketmq.advance(7)
        assert asked.wait(20)  # the broker asks by itself after 30 s
        assert bodies_of(rocketmq, 1) == [b"paid"]


def test_a_transaction_is_asked_for_behind_others_that_have_just_ended() -> None:
    def end(message: Message) -> LocalTransactionState:
        return {b"paid": LocalTransactionState.COMMIT_MESSAGE, b"not": LocalTransactionState.ROLLBACK_MESSAGE}.get(
            message.body, LocalTransactionState.UNKNOW
        )

    def check(_: MessageClientExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    with broker() as rocketmq, Producer(rocketmq.namesrv, group="payers", check_transaction=check) as producer:
        for body in (b"paid", b"not", b"asked"):
            producer.send_in_transaction(Message("orders", body), end)
        rocketmq.advance(7)
        assert bodies_of(rocketmq, 2) == [b"paid", b"asked"]


def test_brokers_of_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    with broker(str(tmp_path)) as one, broker(maxMessageSize=100) as other:
        send_orders(one, b"one")
        send_orders(other, b"other")
        assert (bodies_of(one, 1), bodies_of(other, 1)) == ([b"one"], [b"other"])
    assert (tmp_path / "commitlog").is_dir()
    with broker(str(tmp_path)) as again:
        assert bodies_of(again, 1) == [b"one"]


def test_messages_are_plain_and_those_of_all_queues() -> None:
    """Also of queues that take no messages any more: a topic has fewer to write than to read then."""
    with broker() as rocketmq:
        large = b"x" * 10_000  # a producer compresses it
        make_topic(rocketmq.address, "orders", 8)
        with Producer(rocketmq.namesrv, group="shop") as producer:
            queues = {queue.queue_id: queue for queue in producer.queues("orders")}
            producer.send(Message("orders", large), queue=queues[1])
            producer.send(Message("orders", b"seven"), queue=queues[7])
        make_topic(rocketmq.address, "orders", 8, writable=4)
        assert bodies_of(rocketmq, 2) == [large, b"seven"]
        with pytest.raises(TimeoutError, match="queue 1 at 0 of 1, queue 7 at 0 of 1"):
            rocketmq.wait_consumed("g", "orders", timeout=0)


@pytest.mark.parametrize(
    ("method", "fine", "name", "values"),
    [
        ("messages", {}, "topic", [None, 5, b"orders", ["orders"]]),
        ("wait_consumed", {"topic": "orders", "timeout": 0}, "group", [None, 5, "", "billing.v2", b"g"]),
        ("wait_consumed", {"group": "g", "timeout": 0}, "topic", [None, 5, b"orders", ["orders"]]),
        ("wait_consumed", {"group": "g", "topic": "orders"}, "timeout", [None, "1", -1, True, float("nan"), 10**400]),
        ("advance", {}, "seconds", [None, "1", -1, True, float("nan"), float("inf"), -float("inf"), 2**70, 10**400]),
    ],
)
def test_each_argument_of_a_test_broker_is_checked_when_it_is_given(
    method: str, fine: dict[str, object], name: str, values: list[object]
) -> None:
    """A timeout of NaN waited for ever, and a clock that was put too far ended the broker."""
    with broker() as rocketmq:
        send_orders(rocketmq, b"one")
        for value in values:
            with pytest.raises(ConfigError, match=f"^{name} "):
                getattr(rocketmq, method)(**fine, **{name: value})
        assert [message.body for message in rocketmq.messages("orders")] == [b"one"]
