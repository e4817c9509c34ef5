"""Push consumers against brokers in the same loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reput.client import (
    ConsumeStatus,
    Message,
    MessageClientExt,
    MessageQueue,
    MQClientError,
    Producer,
    PullConsumer,
    PullLimits,
    PushConsumer,
)
from reput.client.consuming.consume_orderly import ConsumeOrderly
from reput.client.consuming.consumer_api import ConsumerAPI
from reput.client.consuming.queue_locks import QueueLocks
from reput.errors import ConfigError, StoreFullError
from reput.remoting.codes import RequestCode
from reput.transport.connection import Connection
from tests.support.broker import Served, with_topic
from tests.support.clients import cluster, stored
from tests.support.proxy import proxy_to

#: Every retry comes a second after its failure.
QUICK = {"message_delay_level": " ".join(["1s"] * 18)}


async def send_to_queue(namesrv: str, *bodies: bytes, queue_id: int = 0, name: str = "broker-a") -> None:
    async with Producer(namesrv, group="filler") as producer:
        queue = MessageQueue("orders", name, queue_id)
        await producer.send_batch([Message("orders", body, tags=body.decode()[:1]) for body in bodies], queue=queue)


async def topic(broker: Served, queues: int = 1) -> None:
    await with_topic(await broker.client(), "orders", queues)


class Seen:
    """A handler that keeps what it was given."""

    def __init__(self, fails: Callable[[MessageClientExt], bool] = lambda message: False) -> None:
        self.messages: list[MessageClientExt] = []
        self._fails = fails
        self._more = asyncio.Event()

    async def __call__(self, message: MessageClientExt) -> None:
        self.messages.append(message)
        self._more.set()
        if self._fails(message):
            raise ValueError("no")

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.messages]

    async def wait(self, count: int) -> None:
        """Return when so many messages have come."""
        while len(self.messages) < count:
            self._more.clear()
            await self._more.wait()


def consumer(namesrv: str, on_message: Any, **more: Any) -> PushConsumer:
    given = {"group": "c", "topics": {"orders": "*"}, "consume_from": "first"} | more
    return PushConsumer(namesrv, on_message=on_message, **given)


async def committed(broker: Served, group: str = "c", queue_id: int = 0) -> str:
    client = await broker.client()
    answer = await client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic="orders", queueId=queue_id,
        setZeroIfNotFound=False,
    )  # fmt: skip
    return (answer.ext_fields or {}).get("offset", "none")


async def test_each_message_is_handled_and_counts_when_the_consumer_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1", b"2")
        seen = Seen()
        async with consumer(namesrv.address, seen) as running:
            await seen.wait(2)
            await send_to_queue(namesrv.address, b"3")
            await seen.wait(3)
            while {queue.topic for queue in running.assignment} != {"orders", "%RETRY%c"}:
                await asyncio.sleep(0.01)
        assert seen.bodies == [b"1", b"2", b"3"]
        assert await committed(brokers["broker-a"]) == "3"
        again = Seen()
        async with consumer(namesrv.address, again):
            await send_to_queue(namesrv.address, b"4")
            await again.wait(1)
        assert again.bodies == [b"4"]


async def test_a_plain_function_runs_in_threads(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1", b"2")
        both = threading.Barrier(3)
        names: set[str] = set()

        def handle(message: MessageClientExt) -> None:
            names.add(threading.current_thread().name)
            both.wait(30)

        async with consumer(namesrv.address, handle):
            await asyncio.to_thread(both.wait, 30)
        assert len(names) == 2
        assert all(name.startswith("reput-consume") for name in names)
        assert await committed(brokers["broker-a"]) == "2"


@pytest.mark.parametrize("orderly", [False, True])
async def test_what_a_decorated_handler_returns_is_awaited_before_its_message_is_done(
    tmp_path: Path, orderly: bool
) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1", b"2")
        seen = Seen()
        async with consumer(namesrv.address, lambda message: seen(message), orderly=orderly):
            await seen.wait(2)
        assert seen.bodies == [b"1", b"2"]
        assert await committed(brokers["broker-a"]) == "2"


async def test_a_handler_that_returns_a_generator_has_failed(tmp_path: Path) -> None:
    """A call of it runs nothing: its messages would count as handled."""
    async with cluster(tmp_path, "broker-a", **QUICK) as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1")
        seen = Seen()

        async def handle(message: MessageClientExt) -> Any:
            await seen(message)
            return (one for one in [message]) if message.reconsume_times == 0 else None

        async with consumer(namesrv.address, handle):
            await seen.wait(2)
        assert [one.reconsume_times for one in seen.messages] == [0, 1]


@pytest.mark.parametrize("how", ["raises", "returns"])
async def test_a_message_that_failed_comes_again_with_its_topic_and_then_is_done(tmp_path: Path, how: str) -> None:
    async with cluster(tmp_path, "broker-a", **QUICK) as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"bad", b"good")
        seen = Seen()

        async def handle(message: MessageClientExt) -> ConsumeStatus | None:
            await seen(message)
            if message.body == b"bad" and message.reconsume_times < 2:
                if how == "raises":
                    raise ValueError("no")
                return ConsumeStatus.RECONSUME_LATER
            return None

        async with consumer(namesrv.address, handle):
            await seen.wait(4)
        bad = [one for one in seen.messages if one.body == b"bad"]
        assert [one.reconsume_times for one in bad] == [0, 1, 2]
        assert {one.topic for one in bad} == {"orders"}
        assert len({one.message_id for one in bad}) == 1
        assert await committed(brokers["broker-a"]) == "2"


async def test_a_message_that_failed_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", **QUICK) as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"bad")
        seen = Seen(lambda message: True)
        async with consumer(namesrv.address, seen, max_reconsume_times=1):
            await seen.wait(2)
            async with PullConsumer(
                namesrv.address, group="dlq", topics={"%DLQ%c": "*"}, consume_from="first"
            ) as letters:
                (letter,) = await letters.poll(timeout=30)
                assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"bad", "orders")
        assert len(seen.messages) == 2


async def test_a_dead_letter_that_is_sent_to_the_retry_topic_comes_to_its_group_with_its_topic(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"bad")
        seen = Seen(lambda message: "RETRY_TOPIC" not in message.properties)
        async with consumer(namesrv.address, seen, max_reconsume_times=0):
            async with (
                PullConsumer(namesrv.address, group="dlq", topics={"%DLQ%c": "*"}, consume_from="first") as letters,
                Producer(namesrv.address, group="dlq") as producer,
            ):
                (letter,) = await letters.poll(timeout=30)
                kept = {"RETRY_TOPIC": letter.properties["RETRY_TOPIC"]}
                await producer.send(Message("%RETRY%c", letter.body, tags=letter.tags, properties=kept))
            await seen.wait(2)
        assert [(one.topic, one.body, one.tags) for one in seen.messages] == [("orders", b"bad", "b")] * 2
        assert [one.body for one in await stored(brokers["broker-a"], "orders")] == [b"bad"]


async def test_members_share_queues_and_one_that_leaves_hands_its_own_over(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"], 4)
        first, second = Seen(), Seen()
        async with consumer(namesrv.address, first) as one:
            async with consumer(namesrv.address, second) as other:
                while [len(orders(each)) for each in (one, other)] != [2, 2]:
                    await asyncio.sleep(0.01)
                for queue_id in range(4):
                    await send_to_queue(namesrv.address, b"%d" % queue_id, queue_id=queue_id)
                await asyncio.gather(first.wait(2), second.wait(2))
            while len(orders(one)) != 4:
                await asyncio.sleep(0.01)
            for queue_id in range(4):
                await send_to_queue(namesrv.address, b"again", queue_id=queue_id)
            await first.wait(6)
        assert sorted(first.bodies[:2] + second.bodies) == [b"0", b"1", b"2", b"3"]
        assert first.bodies[2:] == [b"again"] * 4


async def test_a_lock_whose_answer_a_member_does_not_await_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = asyncio.Event()
    plain = ConsumerAPI.lock

    async def lock(api: ConsumerAPI, *asked: Any) -> set[MessageQueue]:
        await plain(api, *asked)
        locked.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1")
        seen = Seen()
        with monkeypatch.context() as patched:
            patched.setattr(ConsumerAPI, "lock", lock)
            async with consumer(namesrv.address, seen, orderly=True):
                await locked.wait()
        assert not seen.messages
        async with consumer(namesrv.address, seen, orderly=True):  # the broker would keep the lock for a minute
            async with asyncio.timeout(30):
                await seen.wait(1)


async def test_a_queue_whose_lock_was_refused_at_a_renewal_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1")
        seen = Seen()
        async with consumer(namesrv.address, seen, orderly=True) as running:
            await seen.wait(1)
            locks = locks_of(running)
            with monkeypatch.context() as patched:
                patched.setattr(ConsumerAPI, "lock", nobody_has_it)
                await locks._lock(locks._held())
            assert not locks._held()
            await send_to_queue(namesrv.address, b"2")
            async with asyncio.timeout(30):
                await seen.wait(2)
            assert {queue.topic for queue in running.assignment} >= {"orders"}
        assert await committed(brokers["broker-a"]) == "2"


def locks_of(running: PushConsumer) -> QueueLocks:
    assert isinstance(running._service, ConsumeOrderly)
    assert running._service._locks is not None
    return running._service._locks


async def nobody_has_it(*_: Any) -> set[MessageQueue]:
    return set()


async def test_the_answer_to_a_renewal_does_not_come_behind_an_unlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    begun, may_end = asyncio.Event(), asyncio.Event()
    plain, plain_unlock = ConsumerAPI.lock, ConsumerAPI.unlock

    async def lock(api: ConsumerAPI, *asked: Any) -> set[MessageQueue]:
        found = await plain(api, *asked)
        begun.set()
        await may_end.wait()
        order.append("lock")
        return found

    async def unlock(api: ConsumerAPI, *asked: Any) -> None:
        order.append("unlock")
        await plain_unlock(api, *asked)

    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1")
        seen = Seen()
        async with consumer(namesrv.address, seen, orderly=True) as running:
            await seen.wait(1)
            locks = locks_of(running)
            queues = locks._held()
            monkeypatch.setattr(ConsumerAPI, "lock", lock)
            monkeypatch.setattr(ConsumerAPI, "unlock", unlock)
            renewal = asyncio.create_task(locks._lock(queues))
            await begun.wait()
            given_back = asyncio.create_task(locks.unlock(queues))
            await asyncio.sleep(0)
            may_end.set()
            await asyncio.gather(renewal, given_back)
            assert (order, locks._held()) == (["lock", "unlock"], [])


async def test_a_queue_that_comes_back_while_its_handler_runs_begins_when_it_has_ended(tmp_path: Path) -> None:
    """And stays locked until then, however often the queue comes and goes."""
    running, most = 0, 0
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: MessageClientExt) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.set()
        await may_end.wait()
        running -= 1
        await seen(message)

    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1", b"2")
        seen, queue = Seen(), MessageQueue("orders", "broker-a", 0)
        async with consumer(namesrv.address, handle, orderly=True) as one:
            await begun.wait()
            group = one._group
            assert group is not None
            group.stop_rebalance()
            for queues in (set[MessageQueue](), {queue}, set[MessageQueue](), {queue}):
                one._queues.assign(queues)
                for _ in range(20):
                    await asyncio.sleep(0)
                assert locks_of(one).is_held(one._queues.known(queue))
            may_end.set()
            await seen.wait(2)
        assert (most, seen.bodies) == (1, [b"1", b"2"])
        assert await committed(brokers["broker-a"]) == "2"


@pytest.mark.parametrize("orderly", [False, True])
async def test_members_that_come_and_go_all_the_time_lose_nothing(tmp_path: Path, orderly: bool) -> None:
    """Each member stays until it has handled some messages, while a producer sends; orderly ones keep the order."""

    async def member(namesrv: str, seen: Seen) -> None:
        while len({one.body for one in seen.messages}) < 400:
            handled = asyncio.Event()

            async def handle(message: MessageClientExt, handled: asyncio.Event = handled) -> None:
                await seen(message)
                handled.set()

            async with consumer(namesrv, handle, orderly=orderly, concurrency=2):
                try:
                    async with asyncio.timeout(1):  # a member without a queue of its own goes, too
                        await handled.wait()
                except TimeoutError:
                    continue

    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"], 4)
        seen = Seen()
        members = [asyncio.create_task(member(namesrv.address, seen)) for _ in range(4)]
        for begin in range(0, 100, 10):
            for queue_id in range(4):
                bodies = [b"%d-%d" % (queue_id, number) for number in range(begin, begin + 10)]
                await send_to_queue(namesrv.address, *bodies, queue_id=queue_id)
        await asyncio.gather(*members)
        for queue_id in range(4):
            firsts = list(dict.fromkeys(one.body for one in seen.messages if one.queue.queue_id == queue_id))
            expected = [b"%d-%d" % (queue_id, number) for number in range(100)]
            assert (firsts if orderly else sorted(firsts, key=expected.index)) == expected


def orders(one: PushConsumer) -> set[MessageQueue]:
    return {queue for queue in one.assignment if queue.topic == "orders"}


async def test_no_more_is_pulled_than_the_limits_say_until_messages_are_handled(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, *(b"%d" % number for number in range(100)))
        gate = asyncio.Event()
        seen = Seen()

        async def handle(message: MessageClientExt) -> None:
            await seen(message)
            await gate.wait()

        limits = PullLimits(count=20, batch=10)
        async with consumer(namesrv.address, handle, limits=limits, concurrency=5) as running:
            await seen.wait(5)
            (queue,) = orders(running)
            consumed = running._queues.known(queue)
            while consumed._room.is_set() or len(consumed.messages) < 20:
                await asyncio.sleep(0.01)
            assert (len(seen.messages), len(consumed.messages)) == (5, 20)
            gate.set()
            await seen.wait(100)
        assert await committed(brokers["broker-a"]) == "100"


@pytest.mark.parametrize("limits", [PullLimits(bytes=1, batch=1), PullLimits(span=1, batch=2)])
async def test_bytes_and_a_slow_message_limit_a_queue_too(tmp_path: Path, limits: PullLimits) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, *(b"%d" % number for number in range(10)))
        seen = Seen()
        async with consumer(namesrv.address, seen, limits=limits):
            await seen.wait(10)
        assert sorted(seen.bodies) == [b"%d" % number for number in range(10)]


async def test_messages_of_a_queue_are_handled_in_order_and_one_that_fails_holds_up_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"], 2)
        await send_to_queue(namesrv.address, b"a1", b"a2", b"a3", queue_id=0)
        await send_to_queue(namesrv.address, b"b1", b"b2", queue_id=1)
        seen = Seen(lambda message: message.body == b"a2" and message.reconsume_times < 1)
        async with consumer(namesrv.address, seen, orderly=True):
            await seen.wait(6)
        assert [body for body in seen.bodies if body[:1] == b"a"] == [b"a1", b"a2", b"a2", b"a3"]
        assert [body for body in seen.bodies if body[:1] == b"b"] == [b"b1", b"b2"]
        assert await committed(brokers["broker-a"]) == "3"


async def test_an_orderly_message_that_fails_too_often_is_a_dead_letter_and_the_next_one_comes(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"bad", b"good")
        seen = Seen(lambda message: message.body == b"bad")
        async with consumer(namesrv.address, seen, orderly=True, max_reconsume_times=0):
            await seen.wait(2)
        assert seen.bodies == [b"bad", b"good"]
        async with PullConsumer(namesrv.address, group="dlq", topics={"%DLQ%c": "*"}, consume_from="first") as letters:
            assert [one.body for one in await letters.poll(timeout=30)] == [b"bad"]


async def test_a_queue_is_handled_by_one_orderly_member_at_a_time(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"], 2)
        await send_to_queue(namesrv.address, b"1", b"2", queue_id=1)
        gate, begun = asyncio.Event(), asyncio.Event()
        ended: list[bytes] = []

        async def slow(message: MessageClientExt) -> None:
            begun.set()
            await gate.wait()
            ended.append(message.body)

        second = Seen()
        async with consumer(namesrv.address, slow, orderly=True) as one:
            await begun.wait()
            async with consumer(namesrv.address, second, orderly=True) as other:
                while [len(orders(each)) for each in (one, other)] != [1, 1]:
                    await asyncio.sleep(0.01)
                moved = MessageQueue("orders", "broker-a", 1) in orders(other)
                assert second.bodies == []
                gate.set()
                if moved:
                    await second.wait(1)
                    assert ended == [b"1"]
                    assert second.bodies == [b"2"]


async def test_every_broadcasting_member_gets_all_messages_and_goes_on_by_its_file(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"], 2)
        paths = [str(tmp_path / name / "offsets.json") for name in "ab"]
        both = [Seen(lambda message: True), Seen()]
        async with (
            consumer(namesrv.address, both[0], broadcasting=True, offsets_path=paths[0]),
            consumer(namesrv.address, both[1], broadcasting=True, offsets_path=paths[1]),
        ):
            await send_to_queue(namesrv.address, b"1", queue_id=0)
            await send_to_queue(namesrv.address, b"2", queue_id=1)
            await asyncio.gather(*(each.wait(2) for each in both))
        assert [sorted(each.bodies) for each in both] == [[b"1", b"2"]] * 2
        again = Seen()
        async with consumer(namesrv.address, again, broadcasting=True, offsets_path=paths[0]):
            await send_to_queue(namesrv.address, b"3", queue_id=0)
            await again.wait(1)
        assert again.bodies == [b"3"]
        assert await committed(brokers["broker-a"]) == "none"


async def test_a_file_that_holds_no_offsets_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text('{"offsetTable":7}')
    with pytest.raises(ConfigError, match="no offsets of a consumer"):
        await consumer("127.0.0.1:9", Seen(), broadcasting=True, offsets_path=str(path)).start()
    assert path.read_text() == '{"offsetTable":7}'


async def test_a_handler_that_does_not_end_is_cancelled_and_its_message_comes_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1")
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def endless(message: MessageClientExt) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with consumer(namesrv.address, endless, close_timeout=0.01):
            await begun.wait()
        assert cancelled.is_set()
        seen = Seen()
        async with consumer(namesrv.address, seen):
            await seen.wait(1)


@pytest.mark.parametrize("by_server", [False, True])
async def test_an_operator_who_resets_an_offset_moves_a_consumer_that_runs_and_what_it_handles_again_is_committed(
    tmp_path: Path, by_server: bool
) -> None:
    async with cluster(tmp_path, "broker-a", use_server_side_reset_offset=by_server) as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"1", b"2")
        seen = Seen()
        async with consumer(namesrv.address, seen) as running:
            await seen.wait(2)
            while await committed(brokers["broker-a"]) != "2":  # or a reset would change nothing at the end
                await running._offsets.persist()
            client = await brokers["broker-a"].client()
            answer = await client.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="c", timestamp=0, isForce=True
            )
            assert answer.code == 0, answer
            await seen.wait(4)
        assert seen.bodies == [b"1", b"2", b"1", b"2"]
        assert await committed(brokers["broker-a"]) == "2"


async def test_a_consumer_goes_on_after_its_network_was_cut(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        async with proxy_to(brokers["broker-a"].controller.address) as proxy:
            seen = Seen()
            running = consumer(namesrv.address, seen)
            async with running:
                group = running._group
                assert group is not None
                group.client.routes.address = lambda *_: proxy.address  # type: ignore[method-assign]
                await send_to_queue(namesrv.address, b"1")
                await seen.wait(1)
                proxy.cut()
                await send_to_queue(namesrv.address, b"2")
                await seen.wait(2)
            assert set(seen.bodies) == {b"1", b"2"}


async def test_a_slow_network_in_small_pieces_keeps_each_message_and_their_order(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        async with (
            proxy_to(brokers["broker-a"].controller.address) as proxy,
            Producer(namesrv.address, group="p") as producer,
        ):
            proxy.piece, proxy.delay_s = 300, 0.001
            assert producer._client is not None
            producer._client.routes.master = lambda *_: proxy.address  # type: ignore[method-assign]
            seen = Seen()
            running = consumer(namesrv.address, seen, orderly=True)
            async with running:
                assert running._group is not None
                running._group.client.routes.address = lambda *_: proxy.address  # type: ignore[method-assign]
                bodies = [b"%d" % number for number in range(100)]
                queue = MessageQueue("orders", "broker-a", 0)
                await asyncio.gather(*(producer.send(Message("orders", body), queue=queue) for body in bodies))
                await seen.wait(100)
            assert sorted(seen.bodies) == sorted(bodies)
            assert [one.queue_offset for one in seen.messages] == list(range(100))


async def test_a_consumer_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no topic"):
        consumer("127.0.0.1:9", Seen(), topics={})
    with pytest.raises(MQClientError, match="no name server answers"):
        await consumer("127.0.0.1:9", Seen()).start()
    async with cluster(tmp_path, "broker-a") as (namesrv, _):
        running = consumer(namesrv.address, Seen())
        async with running:
            with pytest.raises(MQClientError, match="started already"):
                await running.start()
        await running.close()
        with pytest.raises(MQClientError, match="was closed: make another one"):
            await running.start()


async def test_a_message_that_is_handled_for_too_long_comes_again_and_counts(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", **QUICK) as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"slow", b"good")
        seen: list[tuple[bytes, int]] = []
        again, free = asyncio.Event(), asyncio.Event()

        async def handle(message: MessageClientExt) -> None:
            seen.append((message.body, message.reconsume_times))
            if message.reconsume_times:
                again.set()
            elif message.body == b"slow":
                await free.wait()
                raise ValueError("no")  # which does not count any more

        async with consumer(namesrv.address, handle, consume_timeout=0.2) as running:
            await again.wait()
            running._queues.known(MessageQueue("orders", "broker-a", 0))._keep_offset()
            await running._offsets.persist()
            assert await committed(brokers["broker-a"]) == "2"
            free.set()
        assert sorted(seen) == [(b"good", 0), (b"slow", 0), (b"slow", 1)]
        assert len(await stored(brokers["broker-a"], "SCHEDULE_TOPIC_XXXX", 18)) == 1  # it was sent back once


def test_a_timeout_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="consume_timeout 0: expected seconds, more than 0"):
        consumer("127.0.0.1:9876", lambda message: None, consume_timeout=0)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_handler_whose_own_work_was_cancelled_has_failed_and_its_worker_goes_on(
    tmp_path: Path, orderly: bool
) -> None:
    async with cluster(tmp_path, "broker-a", **QUICK) as (namesrv, brokers):
        await topic(brokers["broker-a"])
        await send_to_queue(namesrv.address, b"a")
        seen = Seen()

        async def handle(message: MessageClientExt) -> None:
            await seen(message)
            if len(seen.messages) == 1:
                work = asyncio.ensure_future(asyncio.Event().wait())
                work.cancel()
                await work

        async with consumer(namesrv.address, handle, concurrency=1, orderly=orderly):
            await seen.wait(2)
        assert seen.bodies == [b"a", b"a"]


async def test_offsets_that_a_disk_did_not_take_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        path = str(tmp_path / "offsets.json")
        seen = Seen()
        async with consumer(namesrv.address, seen, broadcasting=True, offsets_path=path) as running:
            await send_to_queue(namesrv.address, b"1")
            await seen.wait(1)
            while running._queues.known(MessageQueue("orders", "broker-a", 0)).offset != 1:
                await asyncio.sleep(0.01)
            with monkeypatch.context() as patch:
                patch.setattr("reput.client.consuming.offset_store._write", full_disk)
                with pytest.raises(StoreFullError):
                    await running._offsets.persist()
        again = Seen()
        async with consumer(namesrv.address, again, broadcasting=True, offsets_path=path):
            await send_to_queue(namesrv.address, b"2")
            await again.wait(1)
        assert again.bodies == [b"2"]


async def test_a_broker_that_ends_each_connection_is_asked_a_second_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        asked = 0

        async with consumer(namesrv.address, Seen()) as running:
            assert running._group is not None
            client = running._group.client
            connect = client.remoting._connect

            async def ended(address: str) -> Connection:
                nonlocal asked
                asked += 1
                connection = await connect(address)
                connection.abort()
                return connection

            monkeypatch.setattr(client.remoting, "_connect", ended)
            for connection in client.remoting.connections.values():
                connection.abort()
            await asyncio.sleep(2)
        assert asked < 20


async def test_offsets_are_written_when_python_has_ended_its_thread_pools(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as (namesrv, brokers):
        await topic(brokers["broker-a"])
        path = tmp_path / "offsets.json"
        seen = Seen()
        running = consumer(namesrv.address, seen, broadcasting=True, offsets_path=str(path))
        await running.start()
        await send_to_queue(namesrv.address, b"1")
        await seen.wait(1)
        while running._queues.known(MessageQueue("orders", "broker-a", 0)).offset != 1:
            await asyncio.sleep(0.01)
        with ThreadPoolExecutor() as ended:
            asyncio.get_running_loop().set_default_executor(ended)
        await running.close()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        assert path.exists()


def full_disk(path: str, data: bytes) -> None:
    error = StoreFullError(f"{path}: no room")
    error.peer = path  # or a test that looks for such a line in the log would wait for the next one
    raise error
