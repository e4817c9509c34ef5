"""An event loop in which waits take no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock goes on by what it would wait for; once `skips` is set, as other threads cannot skip.

    What sockets of this machine answer is ready at once, and comes before the wait ends.
    """

    def __init__(self) -> None:
        self.skips = False
        self._skipped_s = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: SkippingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if not self._loop.skips or timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self._loop.skip(timeout)
        return found
