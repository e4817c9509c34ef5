"""RequestQueue: requests of one kind that are not answered yet, bounded as the queue of a thread pool of RocketMQ's."""

from __future__ import annotations

import logging

from reput.events import Event
from reput.transport.channel import Channel

logger = logging.getLogger("reput.transport")

_MOST_BYTES = 64 << 20


class RequestQueue:
    """Counts what waits, by connection: more than fits is to be refused before anything is done for it.

    One connection may have as many requests in the queue as are still free, so at most half of it, and there is always
    room for another one.

    Args:
        name: For the log: what waits here.
        capacity: Requests that may wait.
        max_bytes: Memory that they may hold, but for one request.
    """

    def __init__(self, name: str, capacity: int, max_bytes: int = _MOST_BYTES) -> None:
        self._name = name
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._count = self._size = 0
        self._count_of: dict[Channel, int] = {}
        self._has_refused = False

    def __len__(self) -> int:
        """Requests that wait."""
        return self._count

    def is_full(self, connection: Channel) -> bool:
        """Whether a further request of a connection is to be refused."""
        return self._size >= self._max_bytes or self._count_of.get(connection, 0) >= self._capacity - self._count

    def refuses(self, connection: Channel) -> bool:
        """`is_full`, asked for a request that is refused then: the log tells of it."""
        is_full = self.is_full(connection)
        if is_full and not self._has_refused:
            self._has_refused = True
            logger.warning(
                Event("requests refused as busy", client=connection.remote, of=self._name, waiting=self._count)
            )
        return is_full

    def enter(self, connection: Channel, count: int, size: int) -> None:
        """Note requests of a connection that wait from now on, and how many bytes of memory they hold."""
        self._count += count
        self._size += size
        self._count_of[connection] = self._count_of.get(connection, 0) + count

    def leave(self, connection: Channel, count: int, size: int) -> None:
        """Note requests that wait no more."""
        self._count -= count
        self._size -= size
        left = self._count_of.pop(connection) - count
        if left:
            self._count_of[connection] = left
        if not self._count:
            self._has_refused = False
