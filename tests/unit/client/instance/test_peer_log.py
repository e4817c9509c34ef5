"""A client whose servers are away logs a few lines, however long that is and whatever it does meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from reput.client import Message, Producer, PullConsumer, PushConsumer
from reput.client.instance.mq_client_api import MQClientAPI
from reput.client.instance.peer_log import PeerLog, peers
from reput.errors import MQBrokerError, MQClientError, RemotingError, ReputError
from reput.events import Event
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from tests.support import async_tests
from tests.support.clients import cluster
from tests.support.skipping_loop import SkippingLoop
from tests.support.sockets import free_ports, serving

AWAY_S = 40


class Lines(logging.Handler):
    """The events that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.events: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(record.msg)

    def take(self) -> list[Any]:
        events, self.events = self.events, []
        return events


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, lines = logging.getLogger("reput.client"), Lines()
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def failure(*peers: str, kind: type[ReputError] = RemotingError) -> ReputError:
    error = kind("no answer")
    error.peer = ";".join(peers)
    return error


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> SkippingLoop:
    """The loop of the test, whose time is that of logs, too."""
    loop = SkippingLoop()
    monkeypatch.setattr(async_tests, "new_event_loop", lambda: loop)
    monkeypatch.setattr(peers, "_clock", loop.time)
    return loop


async def test_clients_without_servers_log_two_lines_a_server_and_one_in_ten_seconds(
    tmp_path: Path, lines: Lines, loop: SkippingLoop
) -> None:
    got = asyncio.Event()

    async def handle(_: object) -> None:
        got.set()

    async with AsyncExitStack() as clients, AsyncExitStack() as servers:
        namesrv, brokers = await servers.enter_async_context(cluster(tmp_path, "a"))
        at: dict[str, Any] = {"namesrv": namesrv.address, "consume_from": "first"}
        topics = {"orders": "*"}
        producer = await clients.enter_async_context(Producer(namesrv.address, group="shop"))
        await producer.send(Message("orders", b"one"))
        pull = await clients.enter_async_context(PullConsumer(group="pull", topics=topics, **at))
        for orderly, group in ((False, "push"), (True, "orderly")):
            await clients.enter_async_context(
                PushConsumer(group=group, topics=topics, orderly=orderly, on_message=handle, **at)
            )
        assert len(await pull.poll(timeout=30)) == 1
        await got.wait()
        addresses = namesrv.address, brokers["a"].controller.address
        await servers.aclose()
        loop.skips = True
        until = loop.time() + AWAY_S
        failed = 0
        while loop.time() < until:
            try:
                await producer.send(Message("orders", b"two"))
            except MQClientError:
                failed += 1
            await asyncio.sleep(0.05)
        assert failed > 100
        events = lines.take()
        for address in addresses:
            about = [event for event in events if address in str(event)]
            assert 2 < len(about) <= 2 + AWAY_S / 10, list(map(str, about))
            assert any("left_out" in event.fields for event in about)
        assert [str(event) for event in events if not any(address in str(event) for address in addresses)] == []


def test_a_peer_has_two_lines_of_different_messages_and_then_one_in_ten_seconds(lines: Lines) -> None:
    clock = Clock()
    log = PeerLog(clock)
    seen = []
    for _ in range(40):  # a second each
        log.failed("a pull failed", failure("a:1"), queue=1)
        log.failed("a pull failed", failure("a:1"), queue=2)
        log.failed("no heartbeat", failure("a:1"))
        seen += [(clock.now - 1000, str(event)) for event in lines.take()]
        clock.now += 1
    assert seen == [
        (0, 'a pull failed queue=1 error="no answer"'),
        (0, 'no heartbeat error="no answer" left_out="a pull failed: 1"'),
        (10, 'a pull failed queue=1 error="no answer" left_out="a pull failed: 18, no heartbeat: 9"'),
        (20, 'a pull failed queue=1 error="no answer" left_out="a pull failed: 19, no heartbeat: 10"'),
        (30, 'a pull failed queue=1 error="no answer" left_out="a pull failed: 19, no heartbeat: 10"'),
    ]


def test_each_peer_has_its_own_lines_and_a_line_of_several_counts_for_each(lines: Lines) -> None:
    log = PeerLog(Clock())
    for peers_of in (("a:1",), ("b:1",), ("a:1", "b:1"), ("a:1", "b:1"), ()):
        log.failed(f"{len(peers_of)} failed", failure(*peers_of, kind=MQClientError))
    log.failed("another", failure("a:1"))  # it has two already
    assert [event.message for event in lines.take()] == ["1 failed", "1 failed", "2 failed", "0 failed"]


def test_a_peer_that_answers_again_is_a_line_if_it_was_one_that_it_did_not(lines: Lines) -> None:
    clock = Clock()
    log = PeerLog(clock)
    log.silent("a:1")
    log.answered("a:1")  # nobody was told of it
    log.silent("a:1")
    log.failed("a pull failed", failure("a:1"))
    log.failed("a pull failed", failure("a:1"))
    clock.now += 14
    for _ in range(3):
        log.answered("a:1")
    log.failed("a pull failed", MQBrokerError("a:1", 16, "no permission"))  # an answer, too
    log.answered("a:1")
    _, back, refused = lines.take()
    assert str(back) == 'a server answers again address=a:1 seconds=14 left_out="a pull failed: 1"'
    assert refused.message == "a pull failed"


def test_a_peer_that_comes_and_goes_has_four_lines_in_ten_seconds(lines: Lines) -> None:
    clock = Clock()
    log = PeerLog(clock)
    for step in range(1000):
        log.silent("a:1")
        log.failed(f"message {step % 7}", failure("a:1"))
        log.answered("a:1")
        clock.now += 0.1
    events = lines.take()
    assert events[-1].message == "a server answers again"
    assert 10 < len(events) <= 4 * 10


async def test_a_request_tells_who_has_not_answered_and_who_answers_again(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    remoting = RemotingClient()
    api = MQClientAPI(remoting)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"

    async def ask() -> None:
        try:
            await api.call(address, RequestCode.HEART_BEAT)
        except RemotingError as error:
            peers.failed("no heartbeat", error)

    await ask()
    await ask()

    def answer(_: object, command: RemotingCommand) -> RemotingCommand:
        return command.response()

    async with serving({RequestCode.HEART_BEAT: answer}, port=port):
        await ask()
        await ask()
    remoting.close()
    first, back = lines.take()
    assert (first.message, back.message) == ("no heartbeat", "a server answers again")
    assert isinstance(back, Event)
    assert back.fields["left_out"] == "no heartbeat: 1"
