"""Calls of an unmodified Python program at a gRPC proxy: main.py PROXY TOPIC.

Topics and groups are TOPIC-normal and so on. Prints one JSON object: ids of what was sent, what consumers got.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import time
from collections.abc import Callable
from typing import Any

import rocketmq
from rocketmq.v5.exception.client_exception import InternalErrorException

MOST_S = 60
PROXY, PREFIX = sys.argv[1:]


def configuration() -> Any:
    return rocketmq.ClientConfiguration(PROXY, rocketmq.Credentials(), request_timeout=10)


def new_message(kind: str, body: str, **fields: object) -> Any:
    message = rocketmq.Message()
    message.topic, message.body = f"{PREFIX}-{kind}", body.encode()
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def viewed(message: Any) -> dict[str, Any]:
    return {
        "body": message.body.decode(), "tag": message.tag, "keys": list(message.keys),
        "attempt": message.delivery_attempt, "id": message.message_id,
    }  # fmt: skip


def send(producer: Any) -> dict[str, str]:
    """The ids by bodies."""
    messages = [new_message("normal", f"m-{i}", tag="abc"[i % 3]) for i in range(9)]
    for i, message in enumerate(messages):
        message.keys = f"key-{i}"
        message.keys = "every"  # one more
    messages += [new_message("fifo", f"{'xy'[i % 2]}-{i:02d}", message_group="xy"[i % 2]) for i in range(20)]
    return {one.body.decode(): producer.send(one).message_id for one in messages}


class Commits(rocketmq.TransactionChecker):  # type: ignore[misc]
    """Commits what the broker asks for."""

    def check(self, message: Any) -> Any:
        return rocketmq.TransactionResolution.COMMIT


def transact() -> None:
    """Leave one transaction open, which the broker asks for."""
    producer = rocketmq.Producer(configuration(), topics=[f"{PREFIX}-transaction"], checker=Commits())
    producer.startup()
    for body in ("commit", "rollback", "checked"):
        transaction = producer.begin_transaction()
        producer.send(new_message("transaction", body), transaction)
        if body != "checked":
            getattr(transaction, body)()


def receive(count: int) -> list[dict[str, Any]]:
    """Ack all messages. The first comes again, since it is made visible instead."""
    subscription = {f"{PREFIX}-normal": rocketmq.FilterExpression()}
    consumer = rocketmq.SimpleConsumer(configuration(), f"{PREFIX}-simple", subscription, await_duration=5)
    consumer.startup()
    told: list[dict[str, Any]] = []
    deadline = time.monotonic() + MOST_S
    while len(told) < count:
        try:
            got = consumer.receive(16, 30) or []
        except InternalErrorException as error:
            # The library does not wait until the proxy has its settings, whatever broker is behind that; ask again.
            if '"settings" is null' not in str(error):
                raise
            got = []
        assert got or time.monotonic() < deadline, f"only these came: {told}"
        for message in got:
            told.append(viewed(message))
            if len(told) == 1:
                consumer.change_invisible_duration(message, 1)
            else:
                consumer.ack(message)
    consumer.shutdown()
    return told


class Listener(rocketmq.MessageListener):  # type: ignore[misc]
    """Hands messages over to a queue."""

    def __init__(self) -> None:
        self.got: queue.Queue[dict[str, Any]] = queue.Queue()

    def consume(self, message: Any) -> Any:
        self.got.put(viewed(message))
        return rocketmq.ConsumeResult.SUCCESS


def push(kind: str, tags: str, count: int, began: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """The first messages that a group gets, in the order in which they come."""
    listener = Listener()
    subscription = {f"{PREFIX}-{kind}": rocketmq.FilterExpression(tags)}
    consumer = rocketmq.PushConsumer(configuration(), f"{PREFIX}-{kind}", listener, subscription)
    consumer.startup()
    began()
    return [listener.got.get(timeout=MOST_S) for _ in range(count)]


def delay(producer: Any) -> int:
    """Milliseconds from its time until a message came."""
    due = int(time.time()) + 3  # the library takes whole seconds
    push("delay", "*", 1, lambda: producer.send(new_message("delay", "later", delivery_timestamp=due)))
    return int(time.time() * 1000) - due * 1000


def main() -> None:
    transact()
    producer = rocketmq.Producer(configuration(), topics=[f"{PREFIX}-{kind}" for kind in ("normal", "fifo", "delay")])
    producer.startup()
    told = {
        "sent": send(producer),
        "received": receive(10),
        "pushed": push("normal", "a || c", 6),
        "ordered": push("fifo", "*", 20),
        "late_ms": delay(producer),
        "transaction": push("transaction", "*", 2),
    }
    print(json.dumps(told), flush=True)
    os._exit(0)  # threads of the library may go on


main()
