"""A client whose start fails, at any of its parts, leaves nothing, and starts the next time; in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

import pytest

from reput.client import Message, MessageClientExt, Producer, PullConsumer, PushConsumer
from reput.client.consuming.consume_concurrently import ConsumeConcurrently
from reput.client.consuming.consume_orderly import ConsumeOrderly
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.offset_store import LocalFileOffsetStore
from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.topic_routes import TopicRoutes
from reput.client.producing import produce_accumulator, transactions
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import ModelBroker

NAMESRV, TOPIC = "10.0.0.100:9876", "orders"
CONSUMER = {"group": "g", "topics": {TOPIC: "*"}, "consume_from": "first", "trace": True}
Client = Producer | PushConsumer | PullConsumer

#: What each start begins: (a client's options, who has the part, its name).
PARTS: dict[type[Client], list[tuple[dict[str, Any], Any, str]]] = {
    PushConsumer: [
        ({"broadcasting": True}, LocalFileOffsetStore, "load"),
        ({}, Producer, "_begin"),  # of the traces
        ({}, ClientInstance, "start"),
        ({}, TopicRoutes, "subscribe_queues"),
        ({}, ConsumerGroup, "start"),
        ({}, ConsumeConcurrently, "start"),
        ({"orderly": True}, ConsumeOrderly, "start"),
        ({}, PushConsumer, "_questions"),
    ],
    PullConsumer: [
        ({}, Producer, "_begin"),  # of the traces
        ({}, TopicRoutes, "subscribe_queues"),
        ({}, ConsumerGroup, "start"),
    ],
    Producer: [
        ({"check_transaction": lambda _: None}, transactions.Transactions, "__init__"),
        ({"auto_batch": True}, produce_accumulator.ProduceAccumulator, "__init__"),
        ({}, ClientInstance, "start"),
        ({}, Producer, "_begin"),
    ],
}


class Scene:
    """A broker with a message, and the clients that it knows."""

    def __init__(self, loop: VirtualLoop) -> None:
        chance = random.Random(0)
        self.broker = ModelBroker(loop, "broker-a", "10.0.0.1:10911", chance, "g", (TOPIC, "RMQ_SYS_TRACE_TOPIC"))
        self.broker.put(self.broker.first_queue(TOPIC), Message(TOPIC, b"x"))
        for server in (self.broker, ModelNameServer(loop, NAMESRV, chance, [self.broker], 1)):
            server.start()

    async def check_nothing_is_left(self) -> None:
        await asyncio.sleep(40)  # the answers that no client waits for any more
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (self.broker.members, self.broker.producers) == ({}, {})
        assert not self.broker.connections


def failing(part: Callable[..., Any], *, is_done: bool, failures: list[Exception]) -> Callable[..., Any]:
    """The part, whose first call fails, before its work or after it."""

    async def awaited(*arguments: Any, **more: Any) -> Any:
        if failures and not is_done:
            raise failures.pop()
        result = await part(*arguments, **more)
        if failures:
            raise failures.pop()
        return result

    def called(*arguments: Any, **more: Any) -> Any:
        if failures and not is_done:
            raise failures.pop()
        result = part(*arguments, **more)
        if failures:
            raise failures.pop()
        return result

    return awaited if iscoroutinefunction(part) else called


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(
    ("kind", "options", "owner", "part"),
    [
        pytest.param(kind, options, owner, part, id=f"{kind.__name__}-{owner.__name__}.{part}")
        for kind, parts in PARTS.items()
        for options, owner, part in parts
    ],
)
def test_a_client_whose_start_fails_at_any_part_leaves_nothing_and_starts_again(
    kind: type[Client], options: dict[str, Any], owner: Any, part: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_loop(function: Callable[..., Any], *arguments: Any) -> Any:
        return None

    async def written(path: str, data: bytes) -> None:
        return None

    monkeypatch.setattr(asyncio, "to_thread", in_loop)  # of the file of offsets, which is not there
    monkeypatch.setattr("reput.client.consuming.offset_store._write_in_thread", written)
    handled: list[MessageClientExt] = []

    async def handle(message: MessageClientExt) -> None:
        handled.append(message)

    async def played() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        scene = Scene(loop)
        more: dict[str, Any] = {"group": "p", "trace": True, "topics": [TOPIC]} if kind is Producer else dict(CONSUMER)
        if kind is PushConsumer:
            more["on_message"] = handle
        client = kind(NAMESRV, **more, **options)
        failures: list[Exception] = [KeyError("no")]
        monkeypatch.setattr(owner, part, failing(getattr(owner, part), is_done=is_done, failures=failures))
        with pytest.raises(KeyError, match="no"):
            await client.start()
        assert not failures
        await scene.check_nothing_is_left()
        await client.start()
        if isinstance(client, Producer):
            await client.send(Message(TOPIC, b"y"))
        elif isinstance(client, PullConsumer):
            handled.extend(await client.poll(timeout=40))
        else:
            await asyncio.sleep(40)
        await client.close()
        await scene.check_nothing_is_left()
        assert len(handled) == (kind is not Producer)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(0))) as runner:
        runner.run(played())
