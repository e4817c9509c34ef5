"""RoomWaiters: connections that wait for room in the log, made beside the loop if the disk must be waited for."""

from __future__ import annotations

import asyncio
import logging

from reput.broker.disk_work import DiskWork
from reput.errors import ReputError, WouldWaitError
from reput.events import Event
from reput.files import NeverWaiting
from reput.store.loop_writer import LoopWriter
from reput.transport.connection import Connection

logger = logging.getLogger("reput.broker")


class RoomWaiters:
    """Holds connections whose next request needs room in the log, until there is room.

    The next log file is mostly made ahead; who needs it earlier waits, as under RocketMQ's `AllocateMappedFileService`.

    Args:
        writer: Of the store.
        log_work: Where it waits for the disk.

    Attributes:
        failure: Why there is no room, for the requests of the connection that goes on right now.
    """

    def __init__(self, writer: LoopWriter, log_work: DiskWork) -> None:
        self._writer = writer
        self._log_work = log_work
        self._making = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: ReputError | None = None

    async def make(self, size: int) -> None:
        """Make room for records of `size` bytes; raises as `LoopWriter.make_room`."""
        async with self._making:  # one thread of the pool is enough
            try:
                with NeverWaiting():
                    self._writer.make_room(size)
            except WouldWaitError:
                await self._log_work.run(self._writer.make_room, size)

    async def drain(self) -> None:
        """Return when no room is being made."""
        async with self._making:
            return

    def hold(self, connection: Connection, size: int) -> None:
        """Take no requests of a connection until there is room, or an error says why there is none."""
        connection.hold()
        task = asyncio.get_running_loop().create_task(self._hold(connection, size))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hold(self, connection: Connection, size: int) -> None:
        try:
            await self.make(size)
        except ReputError as error:
            self.failure = error
        except Exception:  # a bug: the send itself finds it again, and is answered
            logger.exception(Event("no room was made", client=connection.remote))
        try:
            connection.go_on()
        finally:
            self.failure = None
