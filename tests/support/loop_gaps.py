"""Longest time for which the work of its own thread holds up a loop: a busy machine makes that no longer."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoopGaps:
    """The longest turn of a loop: `worst`, in s of CPU of its thread; `turns` are counted."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.turns = 0
        self._last = time.thread_time()
        self._handle: asyncio.Handle | None = None

    def tick(self) -> None:
        now = time.thread_time()
        self.worst = max(self.worst, now - self._last)
        self.turns += 1
        self._last = now
        self._handle = asyncio.get_running_loop().call_later(0.001, self.tick)

    def stop(self) -> None:
        self.tick()
        assert self._handle is not None
        self._handle.cancel()


@contextmanager
def loop_gaps() -> Iterator[LoopGaps]:
    """Watch the running loop; in its thread. Objects of all other tests are not looked at by a garbage collection."""
    gaps = LoopGaps()
    gc.disable()
    gaps.tick()
    try:
        yield gaps
    finally:
        gaps.stop()
        gc.enable()
