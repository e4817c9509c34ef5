"""The client without asyncio, against a broker in a thread."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import reput.client
import reput.client.options
import reput.client.sync
from reput import Broker
from reput.client import LocalTransactionState, Message, MessageClientExt, MQClientError
from reput.client.sync import Producer, PullConsumer, PushConsumer, _tell
from reput.testing import broker as local_broker
from tests.support.broker import SMALL, make_topic
from tests.support.sockets import free_ports

HERE = {**SMALL, "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 2)
        yield broker.namesrv


@pytest.mark.parametrize("name", ["Producer", "PushConsumer", "PullConsumer"])
def test_each_option_of_the_client_in_asyncio_is_typed_here(name: str) -> None:
    client = inspect.signature(getattr(reput.client, name).__init__).parameters
    face = inspect.signature(getattr(reput.client.sync, name).__init__).parameters
    assert set(face) - {"options"} <= set(client)
    options = {key: one for key, one in client.items() if key not in face}
    told = getattr(reput.client.options, f"{name}Options")
    typed = {key: text for kind in (reput.client.options.ClientOptions, told) for key, text in hints(kind).items()}
    assert typed == {key: one.annotation for key, one in options.items()}
    assert all(one.default is not inspect.Parameter.empty for one in options.values())


def hints(kind: Any) -> dict[str, str]:
    """The annotations of a TypedDict as they are written."""
    return {key: one.__forward_arg__ for key, one in kind.__annotations__.items()}


def test_messages_are_sent_pulled_and_handled_without_a_loop(namesrv: str) -> None:
    handled: list[bytes] = []
    done = threading.Event()

    def handle(message: MessageClientExt) -> None:
        handled.append(message.body)
        if len(handled) == 5:
            done.set()

    with Producer(namesrv, group="g") as producer:
        result = producer.send(Message("orders", b"1"))
        assert result.queue_offset == 0
        assert len(producer.queues("orders")) == 2
        producer.send_oneway(Message("orders", b"2"), sharding_key="k")
        producer.send_batch([Message("orders", b"3"), Message("orders", b"4")])
        producer.send(Message("orders", b"5"), sharding_key="k")
        with PushConsumer(
            namesrv, group="c", topics={"orders": "*"}, on_message=handle, consume_from="first"
        ) as consumer:
            assert done.wait(30)
            assert {queue.topic for queue in consumer.assignment} >= {"orders"}
    assert sorted(handled) == [b"1", b"2", b"3", b"4", b"5"]
    with PullConsumer(namesrv, group="p") as pull:
        queues = pull.queues("orders")
        pull.assign(queues)
        for queue in queues:
            pull.seek_to_begin(queue)
        found: list[bytes] = []
        while len(found) < 5:
            found += [one.body for one in pull.poll(timeout=30)]
        pull.commit()
        assert sum(pull.committed(queue) or 0 for queue in queues) == 5
        assert sum(pull.position(queue) or 0 for queue in queues) == 5
        pull.pause(*queues)
        pull.resume(*queues)
        pull.seek(queues[0], 0)
        pull.seek_to_end(queues[1])
        table = pull.poll_arrow(timeout=30, columns=["queue_id"])
        assert set(table["queue_id"].to_pylist()) == {queues[0].queue_id}
        assert pull.assignment == set(queues)
    assert sorted(found) == sorted(handled)


def test_many_threads_use_one_producer(namesrv: str) -> None:
    with Producer(namesrv, group="g") as producer:
        results: list[tuple[int, int]] = []

        def send() -> None:
            for _ in range(20):
                result = producer.send(Message("orders", b"x"))
                results.append((result.queue_id, result.queue_offset))

        threads = [threading.Thread(target=send) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(results)) == 100


def test_a_client_that_ends_leaves_no_thread_behind(namesrv: str) -> None:
    with (
        Producer(namesrv, group="g") as producer,
        PushConsumer(namesrv, group="c", topics={"orders": "*"}, on_message=lambda message: None),
    ):
        producer.send(Message("orders", b"x"))
    producer.close()
    for thread in threading.enumerate():
        if thread.name.startswith(("reput-client", "reput-consume")):
            thread.join(30)
            assert not thread.is_alive()


def test_a_client_that_is_not_open_or_cannot_start_says_so(namesrv: str) -> None:
    producer = Producer(namesrv, group="g")
    with pytest.raises(MQClientError, match="not started"):
        producer.send(Message("orders", b"x"))
    with producer, pytest.raises(MQClientError, match="started already"):
        producer.start()
    with pytest.raises(MQClientError, match="closed"):
        producer.send(Message("orders", b"x"))
    with pytest.raises(MQClientError, match="was closed: make another one"):
        producer.start()
    consumer = PullConsumer("127.0.0.1:9", group="p", topics={"orders": "*"})
    with pytest.raises(MQClientError, match="no name server answers"):
        consumer.start()


def test_clients_that_found_no_name_server_start_once_it_is_there() -> None:
    """A producer looks for one when it sends, so its start does not fail."""
    (port,) = free_ports(1)
    handled: SimpleQueue[bytes] = SimpleQueue()
    address, topics = f"127.0.0.1:{port}", {"orders": "*"}
    pull = PullConsumer(address, group="a", topics=topics, consume_from="first")
    push = PushConsumer(
        address, group="b", topics=topics, consume_from="first", on_message=lambda message: handled.put(message.body)
    )
    with Producer(address, group="c") as producer:
        for consumer in (pull, push):
            for _ in range(2):
                with pytest.raises(MQClientError, match="no name server answers"):
                    consumer.start()
        with local_broker(namesrv_port=port):
            producer.send(Message("orders", b"x"))
            with pull, push:
                assert [message.body for message in pull.poll(timeout=30)] == [b"x"]
                assert handled.get(timeout=30) == b"x"


def test_a_forked_process_is_told_to_make_a_client_of_its_own(namesrv: str) -> None:
    with Producer(namesrv, group="g") as producer:
        producer.send(Message("orders", b"x"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(Message("orders", b"child"))
            except MQClientError as error:
                code = 0 if "before the process forked" in str(error) else 2
                producer.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(Message("orders", b"y")).queue_offset >= 0


def test_transactions_and_replies_need_no_loop_either(namesrv: str) -> None:
    with (
        Producer(namesrv, group="g", check_transaction=lambda _: LocalTransactionState.ROLLBACK_MESSAGE) as producer,
        Producer(namesrv, group="replier") as replier,
        PushConsumer(
            namesrv, group="c", topics={"orders": "*"}, consume_from="first",
            on_message=lambda message: replier.reply(message, b"yes") if message.body == b"really?" else None,
        ),
    ):  # fmt: skip
        ended = producer.send_in_transaction(
            Message("orders", b"in a transaction"), lambda _: LocalTransactionState.COMMIT_MESSAGE
        )
        assert ended.state is LocalTransactionState.COMMIT_MESSAGE
        assert producer.request(Message("orders", b"really?"), timeout=30).body == b"yes"


def test_a_check_of_a_transaction_may_use_its_producer() -> None:
    with local_broker() as one:

        def check(message: MessageClientExt) -> LocalTransactionState:
            producer.send(Message("audit", message.body))
            return LocalTransactionState.COMMIT_MESSAGE

        with Producer(one.namesrv, group="g", check_transaction=check) as producer:
            producer.send_in_transaction(Message("orders", b"half"), lambda _: LocalTransactionState.UNKNOW)
            one.advance(7)
            with PullConsumer(one.namesrv, group="c", topics={"orders": "*"}, consume_from="first") as consumer:
                assert [message.body for message in consumer.poll(timeout=30)] == [b"half"]
        assert [message.body for message in one.messages("audit")] == [b"half"]


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), BaseException("x")])
def test_whatever_a_handler_raises_its_message_comes_again_and_the_consumer_goes_on(
    tmp_path: Path, error: BaseException, is_coroutine: bool
) -> None:
    handled = threading.Semaphore(0)
    times: list[int] = []

    def handle(message: MessageClientExt) -> None:
        times.append(message.reconsume_times)
        handled.release()
        if len(times) == 1:
            raise error

    async def handle_in_loop(message: MessageClientExt) -> None:
        handle(message)

    with local_broker(str(tmp_path), message_delay_level=" ".join(["1s"] * 18)) as one:
        with Producer(one.namesrv, group="g") as producer:
            producer.send(Message("orders", b"x"))
        with PushConsumer(
            one.namesrv, group="c", topics={"orders": "*"}, consume_from="first", concurrency=1,
            on_message=handle_in_loop if is_coroutine else handle,
        ):  # fmt: skip
            assert handled.acquire(timeout=30)
            assert handled.acquire(timeout=30)
    assert times == [0, 1]


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3)])
def test_a_transaction_whose_functions_raise_what_no_future_takes_ends(error: BaseException) -> None:
    checked = threading.Semaphore(0)

    def pay(_: Message) -> LocalTransactionState:
        raise error

    def check(_: MessageClientExt) -> LocalTransactionState:
        checked.release()
        raise error

    with local_broker() as one, Producer(one.namesrv, group="g", check_transaction=check) as producer:
        with pytest.raises((RuntimeError, SystemExit)):
            producer.send_in_transaction(Message("orders", b"half"), pay)
        one.advance(7)
        assert checked.acquire(timeout=30)
        assert producer.send(Message("orders", b"x")).queue_offset >= 0


def test_a_coroutine_that_would_wait_for_its_own_loop_is_told(namesrv: str) -> None:
    with Producer(namesrv, group="g") as producer:

        async def called() -> None:
            producer.send(Message("orders", b"x"))

        with pytest.raises(MQClientError, match="a coroutine in this client's loop waits for the client"):
            producer._run(called())
        producer.send(Message("orders", b"y"))


@pytest.mark.parametrize("arrow", [False, True])
def test_a_poll_that_is_interrupted_as_its_messages_come_loses_none(namesrv: str, arrow: bool) -> None:
    """By Ctrl-C: before the caller has them, and also where the interrupt and the messages come at the same time."""
    with Producer(namesrv, group="g") as producer:
        queue = producer.queues("orders")[0]
        producer.send(Message("orders", b"first"), queue=queue)
    with PullConsumer(namesrv, group="p", topics={"orders": "*"}, consume_from="first") as consumer:
        polled = consumer.poll_arrow if arrow else consumer.poll
        while not [one for one in consumer.assignment if consumer.position(one) is not None]:
            time.sleep(0.01)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("reput.client.sync.Future", InterruptedFuture)
            for kind in (Moment.BEFORE, Moment.AFTER):
                InterruptedFuture.moment = kind
                with pytest.raises(KeyboardInterrupt):
                    polled(timeout=30)
        consumer.commit()
        assert consumer.committed(queue) in (None, 0)
        assert [one.body for one in consumer.poll(timeout=30)] == [b"first"]


@pytest.mark.parametrize("way", ["poll", "poll_arrow", "tail"])
def test_who_waits_for_messages_is_told_that_another_thread_closes_the_client(namesrv: str, way: str) -> None:
    consumer = PullConsumer(namesrv, group="p", topics={"orders": "*"})
    consumer.start()
    errors: list[Exception] = []

    def wait() -> None:
        try:
            list(consumer.tail()) if way == "tail" else getattr(consumer, way)(timeout=1e6)
        except MQClientError as error:
            errors.append(error)

    def is_waiting() -> bool:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return any(getattr(task.get_coro(), "__name__", "") == "_tell" for task in others)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not consumer._call(is_waiting):
        time.sleep(0.01)
    consumer.close()
    waiting.join()
    told = "this client is not started, or closed: use it inside of `async with`, or of `with` if it is of "
    assert [str(error) for error in errors] == [f"{told}reput.client.sync"]


@pytest.mark.parametrize("moment", ["start", "close"])
def test_a_start_or_a_close_that_is_interrupted_leaves_no_member(namesrv: str, moment: str) -> None:
    """Else some of the queues would be nobody's."""
    handled: SimpleQueue[int] = SimpleQueue()

    def made() -> PushConsumer:
        return PushConsumer(
            namesrv, group="c", topics={"orders": "*"}, consume_from="first",
            on_message=lambda message: handled.put(message.queue_id),
        )  # fmt: skip

    consumer = made()
    if moment == "close":
        consumer.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reput.client.sync.Future", InterruptedFuture)
        InterruptedFuture.moment = Moment.BEFORE
        with pytest.raises(KeyboardInterrupt):
            getattr(consumer, moment)()
    assert "reput-client" not in [thread.name for thread in threading.enumerate()]
    with consumer if moment == "start" else made(), Producer(namesrv, group="g") as producer:
        for queue in producer.queues("orders"):
            producer.send(Message("orders", b"x"), queue=queue)
        assert {handled.get(timeout=30) for _ in range(2)} == {0, 1}


async def test_a_result_that_comes_as_its_caller_gives_up_is_given_back() -> None:
    async def work() -> int:
        return 7

    told, unwanted = Future[int](), list[int]()
    assert told.cancel()
    await _tell(work(), told, unwanted.append)
    assert unwanted == [7]


class Moment(Enum):
    """When a wait for a result is interrupted: while the result is on its way, or after it has come."""

    BEFORE, AFTER = 1, 2


class InterruptedFuture(Future[Any]):
    """A result whose caller is interrupted."""

    moment = Moment.BEFORE
    _is_told = False

    def result(self, timeout: float | None = None) -> Any:
        if self._is_told:
            return super().result()
        self._is_told = True
        if InterruptedFuture.moment is Moment.AFTER:
            super().result(timeout)
        raise KeyboardInterrupt
