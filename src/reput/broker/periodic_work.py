"""PeriodicWork: what the broker does again and again in its loop, until it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from reput.events import Event

logger = logging.getLogger("reput.broker")


async def sleep_unless(stopped: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until an event is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopped.wait()


class PeriodicWork:
    """Tasks of the loop; used in the loop's thread."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def every(self, seconds: float, work: Callable[[], object]) -> None:
        """Call something after so long, and again; what it gives back is waited for, if it can be."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    result = work()
                    if isinstance(result, Awaitable):
                        await result
                except Exception:  # a bug, which is not to end all that comes later
                    logger.exception(Event("work that is done again and again has failed"))

        self.begin(repeat())

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run until the stop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Do nothing more."""
        for task in self._tasks:
            task.cancel()
