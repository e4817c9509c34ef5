"""A broker for the tests of Spark over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reput import Broker
from reput.client.sync import Producer
from reput.formats.message import Message
from reput.remoting.queue_tables import QueueKey
from tests.support.broker import make_topic

#: Messages of the topic orders; their bodies are the numbers from 0 on.
MESSAGES = 500
_KEYS: dict[str, Any] = {
    "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "broker_name": "broker-a", "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 16 << 20, "max_hash_slot_num": 1000, "max_index_num": 4000,
}  # fmt: skip


@contextmanager
def wire_broker(path: Path, **keys: Any) -> Iterator[Broker]:
    """A broker named broker-a, with the topics orders (2 queues) and refunds (1 queue)."""
    with Broker.start(path, **(_KEYS | keys)) as broker:
        make_topic(broker.address, "orders", 2)
        make_topic(broker.address, "refunds", 1)
        yield broker


@contextmanager
def orders_broker(path: Path) -> Iterator[Broker]:
    """A broker with 500 messages in orders, in turn in its queues, and 3 in refunds."""
    with wire_broker(path) as broker:
        send_numbers(broker.namesrv, range(MESSAGES))
        send_numbers(broker.namesrv, range(3), topic="refunds", queues=1)
        yield broker


def send_numbers(
    namesrv: str, numbers: Sequence[int], *, topic: str = "orders", queues: int = 2, broker_name: str = "broker-a"
) -> None:
    """Send numbers as bodies: number n to queue n modulo `queues`, with its tag and its key."""
    with Producer(namesrv, group="filler") as producer:
        for remainder in range(queues):
            batch = [
                Message(topic, b"%d" % n, tags="odd" if n % 2 else "even", keys=[f"k-{n}"])
                for n in numbers
                if n % queues == remainder
            ]
            if batch:
                producer.send_batch(batch, queue=QueueKey(topic, broker_name, remainder))
