"""DiskReads: reads that may wait for the disk, in threads of their own, so that a slow one delays no write."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from reput.errors import RemotingCommandError, RemotingError
from reput.remoting.codes import ResponseCode
from reput.transport.connection import Connection

_T = TypeVar("_T")

_THREADS = 8
#: Reads that run and wait, in all and of one connection; a request beyond that is answered SYSTEM_BUSY. What a
#: connection reads at once is less than what it may leave unread.
_MOST, _MOST_OF_CONNECTION = 1000, 100


class DiskReads:
    """Runs reads of the requests of connections; used in the loop's thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "reput-broker-read")
        self._of: Counter[Connection] = Counter()
        self._count = 0

    async def run(self, connection: Connection, read: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in a thread.

        Raises:
            RemotingCommandError: Too many reads wait (SYSTEM_BUSY).
            RemotingError: The connection was closed before the read began.
        """
        if self._count >= _MOST or self._of[connection] >= _MOST_OF_CONNECTION:
            remark = "[OVERLOAD]system busy, start flow control for a while"
            raise RemotingCommandError(ResponseCode.SYSTEM_BUSY, remark)

        def read_if_open() -> _T:
            if not connection.is_open:
                raise RemotingError(f"{connection.remote}: the connection was closed before its read began")
            return read(*arguments)

        self._count += 1
        self._of[connection] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, read_if_open)
        finally:
            self._count -= 1
            self._of[connection] -= 1
            if not self._of[connection]:
                del self._of[connection]

    def stop(self) -> None:
        """Begin no more reads, and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)
