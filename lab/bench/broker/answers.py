"""Requests as bytes that were made before, over one connection from Python: a client that costs little."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from lab.bench.broker.sides import connect

#: Each answer has both once; the second one says SUCCESS. Both have nine bytes. What a broker asks has another flag.
_ANSWER, _GOOD = b'"flag":1,', b'"code":0,'
_KEPT = len(_ANSWER) - 1
_READ_SIZE = 1 << 18


class Count(NamedTuple):
    """Answers to frames; of them good ones; seconds."""

    answers: int
    good: int
    seconds: float


class Answers:
    """Answers that a connection brings. They are not read but looked through for what each has once.

    That costs a hundredth of a microsecond.

    Attributes:
        count, good: All that have come, and of them good ones.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._kept = b""
        self.count = self.good = 0

    def receive(self) -> int:
        """Wait for bytes; how many answers they ended.

        Raises TimeoutError where an answer does not come.
        """
        data = self._connection.recv(_READ_SIZE)
        if not data:
            raise ConnectionError("the broker closed the connection")
        found = self._kept + data
        self._kept = found[-_KEPT:]
        come = found.count(_ANSWER)
        self.good += found.count(_GOOD)
        self.count += come
        return come

    def receive_all(self, count: int) -> None:
        """Wait until this number of answers has come."""
        while self.count < count:
            self.receive()


def send(address: str, frames: Sequence[bytes], in_flight: int, seconds: float) -> Count:
    """Send frames of one size for some seconds, each answer followed by one more, and count the answers.

    Raises TimeoutError where an answer does not come.
    """
    size = len(frames[0])
    ring = memoryview(b"".join([*frames, *frames[:in_flight]]))
    position = 0
    with connect(address) as connection:
        answers = Answers(connection)
        begun = time.perf_counter()
        end = begun + seconds
        sent = more = in_flight
        while answers.count < sent:
            connection.sendall(ring[position * size : (position + more) * size])
            position = (position + more) % len(frames)
            come = answers.receive()
            more = come if time.perf_counter() < end else 0
            sent += more
        return Count(answers.count, answers.good, time.perf_counter() - begun)
