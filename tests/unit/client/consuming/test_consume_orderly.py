"""ConsumeOrderly without a broker: when messages come, and when they are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

from reput.client.consuming.consume_orderly import ConsumeOrderly
from reput.client.consuming.consumed_queue import ConsumedQueue, PullLimits
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler
from reput.client.consuming.offset_store import LocalFileOffsetStore
from reput.client.instance.message_client_ext import MessageClientExt, decode_messages
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.record import encode_record
from reput.remoting.queue_tables import QueueKey

QUEUE = QueueKey("orders", "broker-a", 0)
HOST = encode_host("127.0.0.1:10911")


def message(offset: int) -> MessageClientExt:
    record = encode_record(
        Message("orders", b"x"), queue_id=0, queue_offset=offset, commit_log_offset=100 * offset, store_timestamp=0,
        store_host=HOST, born_timestamp=0, born_host=HOST,
    )  # fmt: skip
    (found,) = decode_messages(record, QUEUE, None)
    return found


async def test_a_message_that_comes_as_the_last_handler_ends_is_handled() -> None:
    """In the same turn of the loop: after the end of the handler, and before a callback of its task."""

    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(loop.create_task(work))
        return tasks[-1]

    async def no_answer(_: QueueKey) -> int:
        return await asyncio.Event().wait()

    client = SimpleNamespace(spawn=spawn, now_ms=lambda: 0)
    group = cast("ConsumerGroup", SimpleNamespace(client=client, is_broadcasting=True, first_offset=no_answer))
    handled: list[int] = []
    may_end = asyncio.Event()

    async def handle(message: MessageClientExt) -> None:
        handled.append(message.queue_offset)
        await may_end.wait()

    offsets, handler = LocalFileOffsetStore(group, "none"), MessageHandler(handle, 1, lambda: None)
    consume = ConsumeOrderly(group, handler, 1, None)
    consumed = ConsumedQueue(group, QUEUE, offsets, consume, PullLimits(), handler.statistics)
    consumed.want()

    def pulled(offset: int) -> None:
        consumed.messages.put([message(offset)], offset + 1)
        consume.take(consumed, [message(offset)])

    await asyncio.sleep(0)
    pulled(0)
    while not handled:
        await asyncio.sleep(0)
    may_end.set()
    loop.call_soon(pulled, 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert handled == [0, 1]
    assert consumed.offset == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
