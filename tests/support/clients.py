"""Clients against brokers that run in the loop of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from reput.formats.message_ext import MessageExt
from reput.remoting.codes import ResponseCode
from tests.support.broker import Served, messages_of, serving_broker
from tests.support.namesrv import Asked, asked_name_server

#: Answers to a pull at the end of a queue, and of a topic or a queue that is not there.
_ALL_READ = (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER)


@asynccontextmanager
async def cluster(path: Path, *names: str, **keys: object) -> AsyncIterator[tuple[Asked, dict[str, Served]]]:
    """A name server, and brokers of these names that are registered there."""
    async with asked_name_server(path) as namesrv:
        served: dict[str, Served] = {}
        contexts = []
        try:
            for name in names:
                context = serving_broker(path / name, namesrv_addr=namesrv.address, broker_name=name, **keys)
                contexts.append(context)
                served[name] = await context.__aenter__()
            yield namesrv, served
        finally:
            for context in reversed(contexts):
                await context.__aexit__(None, None, None)


async def stored(broker: Served, topic: str, queues: int = 1) -> list[MessageExt]:
    """The messages of a topic, a queue after the other."""
    client = await broker.client()
    found: list[MessageExt] = []
    for queue_id in range(queues):
        offset = 0
        while (answer := await client.pull(topic, offset, queueId=queue_id)).code == 0:
            found += messages_of(answer)
            offset = found[-1].queue_offset + 1
        assert answer.code in _ALL_READ, answer
    return found
