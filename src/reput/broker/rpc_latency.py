"""RpcLatency: how long requests take, from where they are taken to their answer (`RemotingMetricsManager`)."""

from __future__ import annotations

import time
from typing import NamedTuple

from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.histogram import Histogram
from reput.transport.requests import Answer

#: In ms.
_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)


class RpcKey(NamedTuple):
    """Key of a latency: by codes, whether a request was held for messages, and whether nobody waits for the answer."""

    request_code: int
    response_code: int
    is_long_polling: bool
    is_one_way: bool


class RpcLatency:
    """Times of a broker's requests.

    Attributes:
        times_ms: The times.
    """

    def __init__(self) -> None:
        self.times_ms: Histogram[RpcKey] = Histogram(_BOUNDS_MS)

    def answered(
        self, command: RemotingCommand, answer: Answer, since_s: float, *, is_long_polling: bool = False
    ) -> None:
        """Count a request that is done, unless its answer comes later; `since_s`: of `time.perf_counter`."""
        if answer is None and not command.is_one_way:
            return
        code = answer.code if isinstance(answer, RemotingCommand) else ResponseCode.SUCCESS
        key = RpcKey(command.code, code, is_long_polling, command.is_one_way)
        self.times_ms.add(key, (time.perf_counter() - since_s) * 1000)

    def sent(self, sends: dict[int, int], since_s: float, code: int = ResponseCode.SUCCESS) -> None:
        """Count sends of one batch, by their codes."""
        elapsed_ms = (time.perf_counter() - since_s) * 1000
        for request_code, count in sends.items():
            if count:
                self.times_ms.add(RpcKey(request_code, code, False, False), elapsed_ms, count)
