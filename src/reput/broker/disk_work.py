"""DiskWork: what may wait for the disk, in threads, so that the loop does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from reput.errors import RemotingCommandError, RemotingError
from reput.remoting.codes import ResponseCode
from reput.transport.channel import Channel

_T = TypeVar("_T")

_READING_THREADS, _WRITING_THREADS, _LOG_THREADS = 8, 2, 2
#: What runs and waits for requests, in all and of one connection; a request beyond that is answered SYSTEM_BUSY. What a
#: connection reads at once is less than what it may leave unread.
_MOST, _MOST_OF_CONNECTION = 1000, 100


class DiskWork:
    """Threads for one kind of work; used in the loop's thread.

    Args:
        name: Of the threads.
        threads: How many there are.
        wait_ms: After so long a request that no thread has come to is refused (`BrokerFastFailure`); None: it waits.
    """

    def __init__(self, name: str, threads: int, wait_ms: int | None) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._wait_ms = wait_ms
        self._of: Counter[Channel] = Counter()
        self._count = 0

    async def run(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in a thread: work of the broker's own."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def run_for(self, connection: Channel, function: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in a thread: work of a request.

        Raises:
            RemotingCommandError: Too much waits, or no thread has come to it in time (SYSTEM_BUSY). It is never done.
            RemotingError: The connection was closed before the work began.
        """
        if self._count >= _MOST or self._of[connection] >= _MOST_OF_CONNECTION:
            remark = "[OVERLOAD]system busy, start flow control for a while"
            raise RemotingCommandError(ResponseCode.SYSTEM_BUSY, remark)

        def call_if_open() -> _T:
            if not connection.is_open:
                raise RemotingError(f"{connection.remote}: the connection was closed before its request was done")
            return function(*arguments)

        work = self._pool.submit(call_if_open)
        self._count += 1
        self._of[connection] += 1
        try:
            waiting = asyncio.wrap_future(work)
            if self._wait_ms is not None:
                done, _ = await asyncio.wait((waiting,), timeout=self._wait_ms / 1000)
                if not done and work.cancel():
                    remark = (
                        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                        f"period in queue: {self._wait_ms}ms, size of queue: {self._count - 1}"
                    )
                    raise RemotingCommandError(ResponseCode.SYSTEM_BUSY, remark)
            return await waiting
        finally:
            self._count -= 1
            self._of[connection] -= 1
            if not self._of[connection]:
                del self._of[connection]

    def stop(self) -> None:
        """Begin nothing more, and wait for what runs."""
        self._pool.shutdown(cancel_futures=True)


class DiskPools:
    """Threads of a broker, by what they wait for: no slow work of one kind delays another kind.

    Args:
        wait_ms: Of requests, as of `DiskWork`.

    Attributes:
        reads: For what reads the store, and may wait for the disk.
        writes: For what writes files of the broker's, or opens and closes.
        log_work: For the log's next file, and for dispatch that makes files: all clients wait for these.
        tables: For whole tables as JSON, one at a time: each takes the interpreter from the loop for a part of seconds.
    """

    def __init__(self, wait_ms: int | None) -> None:
        self.reads = DiskWork("reput-broker-read", _READING_THREADS, wait_ms)
        self.writes = DiskWork("reput-broker-write", _WRITING_THREADS, wait_ms)
        self.log_work = DiskWork("reput-broker-log", _LOG_THREADS, wait_ms)
        self.tables = DiskWork("reput-broker-table", 1, wait_ms)
