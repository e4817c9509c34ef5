"""One queue of a push consumer whose share changes and whose offset is moved, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reput.client import Message, MessageClientExt, MessageQueue, PushConsumer
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.process_queue import ProcessQueue
from reput.client.consuming.queue_locks import QueueLocks
from reput.remoting.codes import RequestCode
from reput.remoting.queue_tables import decode_queue_table
from reput.service.rebalance_lock_manager import RebalanceLockManager
from tests.support.patience import impatient
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import Faults, ModelBroker

TOPIC, NAMESRV = "orders", "10.0.0.100:9876"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


class Scene:
    """A consumer of one queue with five messages, whose first one is handled until `may_end`."""

    def __init__(self, loop: VirtualLoop, **options: Any) -> None:
        chance = random.Random(0)
        self.commits: list[int] = []
        self.broker = ModelBroker(
            loop, "broker-a", "10.0.0.1:10911", chance, "g", (TOPIC,),
            lambda queue, offset, _: self.commits.append(offset) if queue == QUEUE else None,
        )  # fmt: skip
        self.name_server = ModelNameServer(loop, NAMESRV, chance, [self.broker], 1)
        for server in (self.broker, self.name_server):
            server.start()
        for _ in range(5):
            self.broker.put(QUEUE, Message(TOPIC, b"x"))
        self.handled: list[int] = []
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.consumer = PushConsumer(
            NAMESRV, group="g", topics={TOPIC: "*"}, consume_from="first", on_message=self._handle, **options
        )

    async def _handle(self, message: MessageClientExt) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.handled.append(message.queue_offset)

    async def until_begun(self) -> None:
        """The first message is being handled, and the share changes by `assign` alone from now on."""
        await self.begun.wait()
        assert self.consumer._group is not None
        self.consumer._group.stop_rebalance()

    def assign(self, *queues: MessageQueue) -> None:
        self.consumer._queues.assign(queues)

    async def second_broker(self) -> ModelBroker:
        """One more broker of the topic, broker-b, of which the consumer knows."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        broker = ModelBroker(loop, "broker-b", "10.0.0.2:10911", random.Random(0), "g", (TOPIC,))
        broker.start()
        self.name_server.add(broker)
        assert self.consumer._group is not None
        await self.consumer._group.client.routes.refresh()
        return broker


def play(act: Callable[[Scene], Coroutine[Any, Any, None]], **options: Any) -> Scene:
    async def played() -> Scene:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        scene = Scene(loop, **options)
        async with scene.consumer:
            await scene.until_begun()
            await act(scene)
        return scene

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(0))) as runner:
        return runner.run(played())


def test_a_reset_while_a_queue_that_came_back_waits_for_its_end_is_not_undone_by_what_was_handled_before() -> None:
    async def act(scene: Scene) -> None:
        scene.assign()
        scene.assign(QUEUE)
        scene.broker.reset_members(QUEUE, 3)
        await asyncio.sleep(1)
        assert not scene.handled
        scene.may_end.set()
        await asyncio.sleep(10)

    scene = play(act, orderly=True)
    assert scene.handled == [0, 3, 4]
    assert scene.commits[-1] == 5
    assert 1 not in scene.commits


@pytest.mark.parametrize("orderly", [False, True])
def test_a_reset_goes_before_all_that_was_pulled_before_it(orderly: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.broker.reset_members(QUEUE, 4)
        await asyncio.sleep(1)
        scene.may_end.set()
        await asyncio.sleep(10)

    scene = play(act, orderly=orderly, concurrency=1)
    assert scene.handled == [0, 4]
    assert scene.commits[-1] == 5
    assert 1 not in scene.commits


def test_a_queue_that_is_given_up_leaves_nothing_once_its_handler_has_ended_which_is_committed() -> None:
    async def act(scene: Scene) -> None:
        scene.assign()
        await asyncio.sleep(10)
        assert scene.consumer._queues.get(QUEUE) is not None
        assert scene.broker.holder(QUEUE) is not None
        scene.may_end.set()
        await asyncio.sleep(1)
        assert scene.consumer._queues.get(QUEUE) is None
        assert scene.broker.holder(QUEUE) is None

    scene = play(act, orderly=True)
    assert (scene.handled, scene.broker.offsets[QUEUE]) == ([0], 1)


def test_a_consumer_that_is_closed_right_after_it_lost_a_queue_commits_and_unlocks_it() -> None:
    async def act(scene: Scene) -> None:
        scene.may_end.set()
        await asyncio.sleep(1)
        assert len(scene.broker.locks) == 2  # that of the retry topic's queue, too
        scene.assign()

    scene = play(act, orderly=True)
    assert len(scene.broker.locks) == 0
    assert scene.commits[-1] == 5


def test_a_queue_that_another_member_had_locked_goes_on_where_that_one_has_committed() -> None:
    """Java's clients go on with their own offset, and commit it: what the other one has handled is handled again."""

    async def act(scene: Scene) -> None:
        other = "another member"
        scene.broker.locks = RebalanceLockManager()  # as a broker that was killed, and came back at once
        scene.broker.locks.try_lock_batch("g", [QUEUE], other, scene.broker._now_ms())
        await asyncio.sleep(21)  # the lock is refused at its renewal
        scene.broker.offsets[QUEUE] = 4
        scene.may_end.set()
        await asyncio.sleep(10)
        assert scene.handled == [0]
        assert scene.broker.offsets[QUEUE] == 4
        scene.broker.locks.unlock_batch("g", [QUEUE], other)
        await asyncio.sleep(10)

    scene = play(act, orderly=True)
    assert scene.handled == [0, 4]
    assert scene.broker.offsets[QUEUE] == 5


def test_a_lock_that_ends_while_its_broker_is_silent_is_asked_for_again_and_nothing_is_handled_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient(3.0, monkeypatch)  # as in the product

    async def act(scene: Scene) -> None:
        scene.broker.faults = Faults(late_s=1e6)
        await asyncio.sleep(61)
        scene.may_end.set()
        await asyncio.sleep(10)
        assert scene.handled == [0]
        scene.broker.faults = Faults()
        await asyncio.sleep(40)

    scene = play(act, orderly=True)
    assert scene.handled == [0, 1, 2, 3, 4]
    assert scene.broker.offsets[QUEUE] == 5


def test_queues_at_a_broker_are_given_back_though_another_one_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(3.0, monkeypatch)  # as in the product
    here = [MessageQueue(TOPIC, "broker-a", number) for number in range(8)]
    there = [MessageQueue(TOPIC, "broker-b", number) for number in range(8)]

    async def act(scene: Scene) -> None:
        silent = await scene.second_broker()
        scene.may_end.set()
        scene.assign(*here, *there)
        await asyncio.sleep(10)
        for queue in here:
            scene.broker.put(queue, Message(TOPIC, b"x"))
        for queue in there:
            silent.put(queue, Message(TOPIC, b"x"))
        await asyncio.sleep(0.1)
        silent.faults = Faults(late_s=1e6)
        scene.assign()
        await asyncio.sleep(2)
        assert [scene.broker.holder(queue) for queue in here] == [None] * 8
        assert [scene.broker.offsets[queue] for queue in here] == [scene.broker.end(queue) for queue in here]

    play(act, orderly=True)


def test_locks_at_a_broker_are_renewed_in_time_though_another_one_answers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one has many queues, and each waits for an answer of its own before the next one asks."""
    impatient(3.0, monkeypatch)  # as in the product

    async def act(scene: Scene) -> None:
        silent = await scene.second_broker()
        scene.may_end.set()
        scene.assign(QUEUE, *(MessageQueue(TOPIC, "broker-b", number) for number in range(16)))
        await asyncio.sleep(2)
        silent.faults = Faults(late_s=1e6)
        one = scene.consumer._queues.get(QUEUE)
        assert one is not None
        for _ in range(120):
            await asyncio.sleep(1)
            assert one.locked_s(asyncio.get_running_loop().time()) is not None

    play(act, orderly=True)


@pytest.mark.parametrize("to", [0, 3])
@pytest.mark.parametrize(
    ("waits_for", "comes_back"),
    [  # while its unlock is on its way, and it does not come back, it is another member's: the broker tells that one
        ("its handler", False),
        ("its handler", True),
        ("its commit", False),
        ("its commit", True),
        ("its unlock", True),
    ],
)
def test_a_reset_that_comes_while_a_queue_is_left_is_not_undone(
    waits_for: str, comes_back: bool, to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As brokers of RocketMQ 4 tell it: to the members alone, who commit it."""
    impatient(3.0, monkeypatch)  # as in the product

    async def act(scene: Scene) -> None:
        scene.assign()
        if waits_for != "its handler":
            held = RequestCode.UPDATE_CONSUMER_OFFSET if waits_for == "its commit" else RequestCode.UNLOCK_BATCH_MQ
            scene.broker.answers_late[held] = 2.0
            scene.may_end.set()
            await asyncio.sleep(1)
        if comes_back:
            scene.assign(QUEUE)
        scene.broker.reset_members(QUEUE, to)
        await asyncio.sleep(0.5)
        scene.may_end.set()
        await asyncio.sleep(20)
        assert scene.broker.offsets[QUEUE] == (5 if comes_back else to)
        assert (scene.broker.holder(QUEUE) is None) is not comes_back

    scene = play(act, orderly=True)
    assert scene.handled == ([0, *range(to, 5)] if comes_back else [0])


@pytest.mark.parametrize("orderly", [False, True])
def test_an_error_of_ours_in_a_pull_is_logged_and_the_queue_begins_again(
    orderly: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(scene: Scene) -> None:
        decode, failures = ConsumerGroup.decode, [KeyError("no")]

        def decoded(self: ConsumerGroup, body: bytes, queue: MessageQueue) -> list[MessageClientExt]:
            if queue == QUEUE and failures:
                raise failures.pop()
            return decode(self, body, queue)

        monkeypatch.setattr(ConsumerGroup, "decode", decoded)
        scene.may_end.set()
        await asyncio.sleep(1)
        scene.broker.put(QUEUE, Message(TOPIC, b"x"))
        await asyncio.sleep(10)

    scene = play(act, orderly=orderly)
    assert scene.handled == [0, 1, 2, 3, 4, 5]
    assert scene.commits[-1] == 6
    assert caplog.text.count("work of a client in the background failed") == 1


def test_the_offset_of_a_broadcasting_consumer_stays_while_it_has_not_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    async def write(path: str, data: bytes) -> None:
        written.append(data)

    async def in_loop(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr("reput.client.consuming.offset_store._write_in_thread", write)
    monkeypatch.setattr(asyncio, "to_thread", in_loop)

    async def act(scene: Scene) -> None:
        scene.may_end.set()
        await asyncio.sleep(10)
        scene.assign()
        await asyncio.sleep(1)
        scene.assign(QUEUE)
        await asyncio.sleep(10)

    scene = play(act, broadcasting=True, offsets_path=str(tmp_path / "offsets.json"))
    assert scene.handled == [0, 1, 2, 3, 4]
    assert [decode_queue_table(data, "offsetTable")[QUEUE] for data in written] == [5]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_member_that_could_not_pull_asks_again_where_to_begin(orderly: bool) -> None:
    """Another member may have had the queue while this one was cut off: its offset went back under it."""

    async def history() -> Scene:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        scene = Scene(loop, orderly=orderly)
        scene.may_end.set()
        scene.broker.refuses.add(RequestCode.PULL_MESSAGE)
        async with scene.consumer:
            await asyncio.sleep(5)
            scene.broker.offsets[QUEUE] = 3  # by another member
            scene.broker.refuses.clear()
            await asyncio.sleep(10)
        return scene

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(0))) as runner:
        scene = runner.run(history())
    assert scene.handled == [3, 4]
    assert scene.broker.offsets[QUEUE] == 5


@pytest.mark.parametrize("becomes", [None, 2])
async def test_a_queue_that_is_left_or_moved_while_its_broker_tells_where_another_member_is(
    becomes: int | None,
) -> None:
    """It stays left, or where it was moved to; an error ended the renewal of all locks at the broker."""
    one = ProcessQueue(QUEUE)
    one.offset = 5

    async def answer(*_: object) -> None:
        return None

    async def lock(*_: object) -> set[MessageQueue]:
        return {QUEUE}

    async def committed(_: MessageQueue) -> int:
        if becomes is None:
            one.forget()
        else:
            one.move(becomes)
        return 9

    client = SimpleNamespace(master=lambda _: "address", client_id="c", spawn=lambda work: work.close())
    group = SimpleNamespace(
        client=client, api=SimpleNamespace(lock=lock), name="g", queues=[one], connect=answer, committed=committed
    )
    locks = QueueLocks(cast("ConsumerGroup", group))
    await locks.lock(one)
    assert locks.is_held(one)
    assert one.offset == becomes
