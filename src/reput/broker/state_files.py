"""StateFiles: the broker's files below `config`, written beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from reput.broker.disk_work import DiskWork
from reput.errors import ReputError
from reput.events import Event
from reput.service.config_manager import ConfigManager, Snapshot

logger = logging.getLogger("reput.broker")

_T = TypeVar("_T")


class StateFiles:
    """Writes the files of `ConfigManager`s that have changed.

    Args:
        writes: Where files of the broker's are written.
        sync_log: Syncs what is in the log; waits for the disk.
    """

    def __init__(self, writes: DiskWork, sync_log: Callable[[], None]) -> None:
        self._writes = writes
        self._sync_log = sync_log
        self._soon: dict[ConfigManager, asyncio.Task[None]] = {}  # type: ignore[type-arg]

    async def persist(self, manager: ConfigManager) -> None:  # type: ignore[type-arg]
        """Write a file, if it has changed, and return when that is done; errors as of `ConfigManager.persist`.

        A failed sync of the log is a StorePoisonedError, and the file stays as it is.
        """
        snapshot = manager.snapshot()
        if snapshot is not None:
            await self._writes.run(self._write, manager, snapshot)

    def _write(self, manager: ConfigManager[_T], snapshot: Snapshot[_T]) -> None:
        if manager.follows_log:
            self._sync_log()
        manager.persist(snapshot)

    def persist_soon(self, manager: ConfigManager) -> None:  # type: ignore[type-arg]
        """Write a file, one write at a time, however many changes come meanwhile; an error is logged."""
        if manager not in self._soon and manager.snapshot() is not None:
            self._soon[manager] = asyncio.get_running_loop().create_task(self._persist_all(manager))

    async def _persist_all(self, manager: ConfigManager) -> None:  # type: ignore[type-arg]
        try:
            while manager.snapshot() is not None:
                if not await self.try_persist(manager):  # the next change tries again
                    return
        finally:
            del self._soon[manager]

    async def try_persist(self, manager: ConfigManager) -> bool:  # type: ignore[type-arg]
        """Write a file, if it has changed; False if that failed, and an error is logged."""
        try:
            await self.persist(manager)
        except ReputError as error:
            logger.error(Event("a file of the broker's was not written", error=error))
            return False
        return True
