"""Work that is done in a second thread, one step ahead of who needs it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces, each made by another thread while the caller has the one before.

    So a piece may use again what the last but one has used, and nothing of the last one.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="reput-prefetch") as pool:
        upcoming = pool.submit(next, pieces, None)
        while (piece := upcoming.result()) is not None:
            upcoming = pool.submit(next, pieces, None)
            yield piece
