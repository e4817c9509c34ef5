"""ReadAnswers: answers to the frames of one read of a connection."""

from __future__ import annotations

import time

from reput.broker.appends.send_path import SendPath
from reput.broker.rpc_latency import RpcLatency
from reput.broker.sends.send_message_processor import SEND_CODES
from reput.kernels.wire.send_frames import SendFrames
from reput.transport.connection import Connection
from reput.transport.requests import WRITE_AT


class ReadAnswers:
    """Answers in the order of their frames: what may go leaves in one write, sends that wait are `DurableAnswers`.

    Args:
        send_path, rpc_latency: The broker's.
        kernel: Takes sends, and makes their answers.
    """

    def __init__(self, send_path: SendPath, rpc_latency: RpcLatency | None, kernel: SendFrames) -> None:
        self._kernel = kernel
        self._waits, self._durable = send_path.waits, send_path.answers
        self._latency = rpc_latency
        self._since_s = 0.0
        self._sends: dict[int, int] = dict.fromkeys(SEND_CODES, 0)
        self._has_sends = False
        self._end_offset = 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def begin(self) -> None:
        """A read begins."""
        self._has_sends = False
        if self._latency is not None:
            self._since_s = time.perf_counter()

    def count_sends(self, end_offset: int) -> None:
        """Count what the kernel has just taken; the log ends at an offset with it."""
        self._has_sends = True
        for code, count in self._kernel.sends.items():
            self._sends[code] += count
        self._end_offset = end_offset

    def take_sends(self, connection: Connection) -> None:
        """Take the kernel's answers, before that of another request."""
        if self._waits:
            if self._has_sends:
                self._durable.add_frames(connection, self._kernel.take_answers(), self._sends, self._end_offset)
                self._has_sends = False
                self._sends = dict.fromkeys(SEND_CODES, 0)
        elif self._kernel.answered:
            self.keep(self._kernel.take_answers())
            if self._latency is not None:
                self._latency.sent(self._sends, self._since_s)
                self._sends = dict.fromkeys(SEND_CODES, 0)

    def take(self, connection: Connection, code: int, count: int, answers: bytes, end_offset: int) -> None:
        """Take answers to `count` requests of one code, whose records end at an offset of the log."""
        if self._waits:
            self._durable.add_frames(connection, answers, {code: count}, end_offset)
            return
        self.keep(answers)
        if self._latency is not None:
            self._latency.sent({code: count}, self._since_s)

    def keep(self, answers: bytes) -> None:
        """Keep whole frames for the next write."""
        self._unsent.append(answers)
        self._unsent_bytes += len(answers)

    @property
    def are_large(self) -> bool:
        """Whether what is kept is worth a write."""
        return self._unsent_bytes >= WRITE_AT

    def write(self, connection: Connection) -> None:
        """Write what is kept."""
        if self._unsent:
            connection.write(b"".join(self._unsent))
            self._unsent.clear()
            self._unsent_bytes = 0
