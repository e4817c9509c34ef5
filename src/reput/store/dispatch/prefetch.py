"""Prefetch: a second thread works one step ahead of its caller."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made by another thread while the caller has the item before.

    So an item may reuse the memory of the last item but one, and not the memory of the last item.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="reput-prefetch") as pool:
        upcoming = pool.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = pool.submit(next, items, None)
            yield item
