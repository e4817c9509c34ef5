"""Reput's client in a process of its own: a line of JSON on stdin says what to do, one on stdout what came of it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from reput.client import Message, Producer, PullConsumer

#: As of RocketMQ's client beside it (`lab.bench.broker.load`).
_BODY = bytes(range(128))
#: Rows of a table that is sent.
_ROWS = 10_000
_PATIENCE_S = 10.0
#: That a query asks for.
_COLUMNS = ("topic", "queue_id", "queue_offset", "store_timestamp", "body")


async def send(namesrv: str, topic: str, tasks: int, batch: int, seconds: float, *, auto_batch: bool = False) -> int:
    """Send from several tasks, each one request after the other; messages."""
    messages = [Message(topic, _BODY, tags="TagA", keys=["key-1"]) for _ in range(batch)]

    async with Producer(namesrv, group="bench", auto_batch=auto_batch) as producer:
        if batch == 1:
            return await _repeated(lambda: producer.send(messages[0]), tasks, seconds)
        return batch * await _repeated(lambda: producer.send_batch(messages), tasks, seconds)


async def send_rows(namesrv: str, topic: str, seconds: float) -> int:
    """Send tables; messages."""
    import pyarrow as pa

    one = pa.table({"topic": [topic], "body": [_BODY], "tags": ["TagA"], "keys": [["key-1"]]})
    rows = pa.concat_tables([one] * _ROWS).combine_chunks()
    async with Producer(namesrv, group="bench") as producer:
        return _ROWS * await _repeated(lambda: producer.send_arrow(rows), 1, seconds)


async def _repeated(call: Callable[[], Awaitable[object]], tasks: int, seconds: float) -> int:
    """Calls that tasks made, each one after the other."""
    until = time.perf_counter() + seconds
    done = 0

    async def repeat() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await call()
            done += 1

    await asyncio.gather(*(repeat() for _ in range(tasks)))
    return done


async def poll(namesrv: str, topic: str, group: str, count: int, *, as_arrow: bool) -> int:
    """Consume a number of messages that are there, by a new group; messages."""
    done = 0
    async with PullConsumer(namesrv, group=group, topics={topic: "*"}, consume_from="first") as consumer:
        while done < count:
            if as_arrow:
                found = len(await consumer.poll_arrow(_PATIENCE_S))
            else:
                messages = await consumer.poll(1000, _PATIENCE_S)
                found = len([(one.body, one.tags, one.keys) for one in messages])
            if not found:
                break
            done += found
    return done


async def spark_task(namesrv: str, topic: str) -> int:
    """Read a topic as a task of Spark's does, without Spark around it; messages."""
    from reput.spark.wire.options import read_options
    from reput.spark.wire.reader import WireReader

    reader = WireReader(read_options({"namesrv": namesrv, "subscribe": topic}), _COLUMNS)
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))


_JOBS: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {
    "send": send,
    "send_rows": send_rows,
    "poll": poll,
    "spark_task": spark_task,
}


def main() -> None:
    """Do what the lines say, until there is none."""
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        job = _JOBS[asked.pop("job")]
        begun, processor = time.perf_counter(), time.process_time()
        messages = asyncio.run(job(**asked))
        told = {
            "messages": messages,
            "seconds": time.perf_counter() - begun,
            "processor_seconds": time.process_time() - processor,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
