"""docs/upgrade.md: a broker is stopped, and another process goes on with its store, while clients work."""

from __future__ import annotations

import threading
from pathlib import Path

from reput import Broker, Message, ReputError
from reput.client import MessageClientExt
from reput.client.sync import Producer, PushConsumer
from reput.jobs.audit import audit
from reput.jobs.runner import LocalRunner
from tests.support.asking import until
from tests.support.broker import SMALL
from tests.support.sockets import free_ports

LOCAL = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}


class Shop(threading.Thread):
    """Sends one message after the other, each until it is stored.

    Attributes:
        stored: Bodies that were answered.
        error: What ended it early.
    """

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        self.stored: list[bytes] = []
        self.error: BaseException | None = None
        self._namesrv, self._is_closed = namesrv, threading.Event()

    def run(self) -> None:
        try:
            with Producer(self._namesrv, group="shop") as producer:
                while not self._is_closed.is_set():
                    self._send(producer, b"%d" % len(self.stored))
        except BaseException as error:
            self.error = error

    def _send(self, producer: Producer, body: bytes) -> None:
        while True:
            try:
                producer.send(Message("orders", body))
            except ReputError as error:
                if not error.retriable:
                    raise
                self._is_closed.wait(0.1)
            else:
                self.stored.append(body)
                return

    def wait(self, count: int) -> None:
        """Return when so many more are stored."""
        end = len(self.stored) + count
        until(lambda: self.error is not None or len(self.stored) >= end)
        assert self.error is None

    def close(self) -> None:
        self._is_closed.set()
        self.join()
        assert self.error is None


def test_nothing_is_lost_when_a_broker_is_stopped_and_started_under_its_clients(tmp_path: Path) -> None:
    port, namesrv_port = free_ports(2)

    def start() -> Broker:
        return Broker.start(tmp_path / "store", port=port, namesrv_port=namesrv_port, **SMALL, **LOCAL)

    got: set[bytes] = set()

    def handle(message: MessageClientExt) -> None:
        got.add(message.body)

    broker = start()
    try:
        shop = Shop(broker.namesrv)
        shop.start()
        shop.wait(1)  # the topic is there
        with PushConsumer(
            broker.namesrv, group="billing", topics={"orders": "*"}, on_message=handle, consume_from="first"
        ):
            shop.wait(100)
            for _ in range(2):
                broker.close()
                broker = start()
                shop.wait(100)
            shop.close()
            until(lambda: got >= set(shop.stored))
    finally:
        broker.close()
    assert {one.finding_class for one in audit(tmp_path / "store", runner=LocalRunner()).findings} <= {"harmless"}
