"""A broker for the tests of Spark over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from reput import Broker
from reput.client import SendResult
from reput.client.sync import Producer
from reput.formats.message import Message
from reput.formats.message_id import decode_message_id
from reput.remoting.codes import RequestCode
from reput.remoting.queue_tables import QueueKey
from tests.support.asking import ask, until
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
    """Send numbers as bodies: number n to queue n modulo `queues`, with its tag and its key.

    They are dispatched when this returns: a broker answers before, and a queue's end does not count them yet.
    """
    with Producer(namesrv, group="filler") as producer:
        for remainder in range(queues):
            batch = [
                Message(topic, b"%d" % n, tags="odd" if n % 2 else "even", keys=[f"k-{n}"])
                for n in numbers
                if n % queues == remainder
            ]
            if batch:
                *_, last = producer.send_batch(batch, queue=QueueKey(topic, broker_name, remainder))
                _wait_dispatched(topic, remainder, last)


def _wait_dispatched(topic: str, queue_id: int, sent: SendResult) -> None:
    host, _ = decode_message_id(sent.offset_message_id)
    address = f"{ip_address(host[:-4])}:{int.from_bytes(host[-4:], 'big')}"

    def is_dispatched() -> bool:
        answer = ask(address, RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        return int((answer.ext_fields or {})["offset"]) > sent.queue_offset

    until(is_dispatched)
