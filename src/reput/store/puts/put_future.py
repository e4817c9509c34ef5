"""Future of `async_put_message`, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from reput.store.results import PutMessageResult


class PutFuture(Future[PutMessageResult]):
    """Result of a put that is not waited for: `await` it, give it to `asyncio.gather`, or call `result()`.

    The append is done, so it cannot be cancelled: a task that is cancelled stops waiting, and the message stays stored.
    """

    def __await__(self) -> Generator[Any, None, PutMessageResult]:
        """Wait in the running event loop; raises StorePoisonedError when the sync failed."""
        from asyncio import wrap_future  # a store in a program without asyncio does not load it

        return wrap_future(self).__await__()
