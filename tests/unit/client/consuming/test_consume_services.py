"""What becomes of a message whose handler ends late, or waits for a free place, when its queue goes or is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from reput.client.consuming.consume_concurrently import ConsumeConcurrently
from reput.client.consuming.consume_orderly import ConsumeOrderly
from reput.client.consuming.consumed_queue import ConsumedQueue, PullLimits
from reput.client.consuming.process_queue import ProcessQueueTable
from reput.remoting.queue_tables import QueueKey

QUEUES = [QueueKey("orders", "broker-a", number) for number in range(3)]


class Scene:
    """A group whose brokers have one message in each queue, and take all that is sent back."""

    def __init__(self, handle: Callable[[Any], Awaitable[bool]]) -> None:
        self.name, self.is_broadcasting, self.client, self.api = "g", False, self, self
        self.namespace = SimpleNamespace(wrap=lambda topic: topic)
        self.handler = SimpleNamespace(handle=handle)
        self.sent_back: list[int] = []
        self.may_return = asyncio.Event()
        self.may_return.set()
        self.committed: list[int] = []
        self.pulls: list[int] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.queues: ProcessQueueTable[ConsumedQueue]
        self.client_id = "c"

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    def serve(self, service: Any) -> None:
        self.queues = ProcessQueueTable(
            lambda queue: ConsumedQueue(
                self,
                queue,
                self,
                service,
                PullLimits(),
                SimpleNamespace(pulled=lambda *_: None),  # type: ignore[arg-type]
            )
        )
        service.start()

    def now_ms(self) -> int:
        return 0

    def master(self, _: str) -> str:
        return "address"

    async def connect(self, _: QueueKey) -> None:
        return None

    async def send_back(self, _: str, header: Any) -> None:
        await self.may_return.wait()
        self.sent_back.append(header.delay_level)

    async def lock(self, _: str, group: str, client_id: str, queues: list[QueueKey]) -> set[QueueKey]:
        return set(queues)

    async def unlock(self, *_: Any) -> None:
        return None

    async def begin(self, _: Any) -> int:
        return 0

    async def persist(self, _: str | None = None) -> None:
        self.committed += [one.offset for one in self.queues if one.offset is not None]

    async def pull(self, one: ConsumedQueue, offset: int, *, count: int, commits: bool) -> Any:
        self.pulls.append(offset)
        if offset:
            await asyncio.Event().wait()
        return SimpleNamespace(is_moved=False, next_begin_offset=1, body=b"")

    def decode(self, _: bytes, queue: QueueKey) -> list[Any]:
        return [
            SimpleNamespace(
                queue=queue, queue_offset=0, store_size=1, commit_log_offset=0, message_id="i", topic="orders",
                reconsume_times=0,
            )
        ]  # fmt: skip

    async def settle(self) -> None:
        """Let all that can go on do so."""
        for _ in range(50):
            await asyncio.sleep(0)

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


async def test_a_message_that_is_late_when_its_queue_goes_is_not_committed() -> None:
    async def handle(_: Any) -> bool:
        await asyncio.Event().wait()
        return True

    scene = Scene(handle)
    service = ConsumeConcurrently(scene, scene.handler, 1, 16, 1000.0)  # type: ignore[arg-type]
    scene.serve(service)
    scene.queues.assign(QUEUES[:1])
    await scene.settle()
    (running,) = service._running
    scene.queues.assign([])
    assert await service._expire(running)
    await scene.settle()
    assert (scene.sent_back, set(scene.committed)) == ([], {0})
    scene.end()


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_message_goes_back_once_though_its_handler_ends_meanwhile(is_done: bool) -> None:
    may_end = asyncio.Event()

    async def handle(_: Any) -> bool:
        await may_end.wait()
        return is_done

    scene = Scene(handle)
    service = ConsumeConcurrently(scene, scene.handler, 1, 16, 1000.0)  # type: ignore[arg-type]
    scene.serve(service)
    scene.queues.assign(QUEUES[:1])
    await scene.settle()
    scene.may_return.clear()
    (running,) = service._running
    expiring = asyncio.create_task(service._expire(running))
    await scene.settle()
    may_end.set()
    await scene.settle()
    scene.may_return.set()
    assert await expiring
    await scene.settle()
    assert scene.sent_back == [3]
    scene.end()


class Orderly:
    """Three queues with one message each, of which one is handled at a time."""

    def __init__(self, max_reconsume_times: int | None = None) -> None:
        self.begun: list[int] = []
        self.may_end = asyncio.Event()
        self.scene = Scene(self._handle)
        self.service = ConsumeOrderly(self.scene, self.scene.handler, 1, max_reconsume_times)  # type: ignore[arg-type]
        self.scene.serve(self.service)
        self.scene.queues.assign(QUEUES)

    async def _handle(self, message: Any) -> bool:
        self.begun.append(message.queue.queue_id)
        await self.may_end.wait()
        return False


async def test_no_handler_begins_after_a_stop_though_it_waited_for_a_free_place() -> None:
    one = Orderly()
    await one.scene.settle()
    assert len(one.begun) == 1
    stopping = asyncio.create_task(one.service.stop(60.0))
    await one.scene.settle()
    one.may_end.set()
    await stopping
    assert len(one.begun) == 1
    one.scene.end()


async def test_no_message_of_before_a_reset_is_handled_or_a_dead_letter_after_it() -> None:
    one = Orderly(max_reconsume_times=0)
    await one.scene.settle()
    for queue in one.scene.queues:
        queue.move(50)
    one.may_end.set()
    await one.scene.settle()
    assert len(one.begun) == 1
    assert one.scene.sent_back == []
    one.scene.end()


async def test_a_queue_that_is_closed_pulls_no_more_though_it_was_moved_before() -> None:
    one = Orderly()
    await one.scene.settle()
    before = list(one.scene.pulls)
    for queue in one.scene.queues:
        queue.move(7)
        queue.close()
    one.may_end.set()
    await one.scene.settle()
    assert one.scene.pulls == before
    assert len(list(one.scene.queues)) == 3  # they are unlocked together
    one.scene.end()
