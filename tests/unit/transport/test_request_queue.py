"""RequestQueue: when requests are refused."""

from __future__ import annotations

import asyncio

import pytest

from reput.transport.connection import Connection
from reput.transport.request_queue import RequestQueue
from tests.support.async_tests import run
from tests.support.sockets import Serving


def connections(count: int) -> list[Connection]:
    """Connections that nobody has made."""

    async def make() -> list[Connection]:
        assert asyncio.get_running_loop()
        return [Connection(Serving({})) for _ in range(count)]

    return run(make())


def fill(queue: RequestQueue, connection: Connection) -> int:
    """Enter requests until the queue refuses one; returns how many."""
    count = 0
    while not queue.is_full(connection):
        queue.enter(connection, 1, 10)
        count += 1
    return count


def test_each_connection_gets_half_of_what_is_left() -> None:
    queue = RequestQueue("requests", 16)
    one, two, three, four = connections(4)
    assert [fill(queue, one), fill(queue, two), fill(queue, three), fill(queue, four)] == [8, 4, 2, 1]
    assert len(queue) == 15
    for connection, count in ((one, 8), (two, 4), (three, 2)):
        queue.leave(connection, count, 10 * count)
    assert fill(queue, four) == 7
    assert len(queue) == 8


def test_a_queue_of_one_takes_one() -> None:
    queue = RequestQueue("requests", 1)
    one, two = connections(2)
    assert fill(queue, one) == 1
    assert queue.is_full(two)
    queue.leave(one, 1, 10)
    assert fill(queue, two) == 1


def test_the_bytes_of_all_connections_are_bounded() -> None:
    queue = RequestQueue("requests", 100, max_bytes=25)
    one, two = connections(2)
    assert fill(queue, one) == 3
    assert queue.is_full(two)
    queue.leave(one, 1, 10)
    assert not queue.is_full(two)


def test_the_first_refusal_is_logged_until_the_queue_was_empty(caplog: pytest.LogCaptureFixture) -> None:
    queue = RequestQueue("sends", 1)
    (one,) = connections(1)
    for turn in range(2):
        fill(queue, one)
        assert queue.is_full(one)
        assert len(caplog.records) == turn  # to ask is no refusal
        assert queue.refuses(one)
        assert queue.refuses(one)
        queue.leave(one, 1, 10)
    assert not queue.refuses(one)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
