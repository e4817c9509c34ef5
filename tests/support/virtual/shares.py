"""The queues that each consumer was given last, as the group shares them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from reput.client.consuming.process_queue import ProcessQueueTable
from reput.remoting.queue_tables import QueueKey

_given: WeakKeyDictionary[ProcessQueueTable[Any], set[QueueKey]] = WeakKeyDictionary()


def given_to(table: ProcessQueueTable[Any]) -> set[QueueKey]:
    return _given.get(table, set())


@contextmanager
def shares_as_given() -> Iterator[None]:
    """Note what is given to each table."""
    plain = ProcessQueueTable.assign

    def assign(table: ProcessQueueTable[Any], queues: Iterable[QueueKey], topics: Container[str] | None = None) -> None:
        queues = set(queues)
        others = set() if topics is None else {one for one in given_to(table) if one.topic not in topics}
        _given[table] = others | queues
        plain(table, queues, topics)

    with patch.object(ProcessQueueTable, "assign", assign):
        yield
