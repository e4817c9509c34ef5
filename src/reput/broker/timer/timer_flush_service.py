"""TimerFlushService: writes the state of the timers to the disk (`TimerMessageStore.TimerFlushService`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.state_files import StateFiles
from reput.errors import ReputError
from reput.events import Event
from reput.formats.metadata import TimerMetrics
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.store.timer.timer_message_store import TimerMessageStore

logger = logging.getLogger("reput.broker")


class TimerFlushService:
    """Writes the state of the timers every `timerFlushIntervalMs` while it changes, and at the end.

    Args:
        clock, pools, store, config_files, writer: The broker's.
        timers: On the disk.
        metrics: How many messages wait; written beside.

    Attributes:
        is_changed: Whether something has changed since the last flush began, as whoever changes the timers says.
    """

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        config_files: StateFiles,
        writer: LoopWriter,
        timers: TimerMessageStore,
        metrics: TopicMetricsManager[TimerMetrics],
    ) -> None:
        self._clock, self._pools, self._config_files, self._writer = clock, pools, config_files, writer
        self._timers, self._metrics = timers, metrics
        self._every_s = store.config.timer_flush_interval_ms / 1000
        self.is_changed = True
        self._flushed_at = 0.0
        self._flushing: asyncio.Task[None] | None = None

    def flush_soon(self) -> None:
        """Flush beside the loop, if something has changed and the last flush was some time ago."""
        is_due = time.monotonic() >= self._flushed_at + self._every_s
        if self.is_changed and is_due and (self._flushing is None or self._flushing.done()):
            self._flushed_at = time.monotonic()
            self._flushing = asyncio.get_running_loop().create_task(self._try_write(self._begin()))

    async def ended(self) -> None:
        """Return once no flush is under way."""
        if self._flushing is not None:
            await self._flushing

    async def flush(self) -> None:
        """Write the state of this moment; raises ReputError if that cannot be done."""
        await self._write(self._begin())

    def _begin(self) -> Callable[[], None]:
        self.is_changed = False
        return self._timers.begin_flush(self._clock.now_ms())

    async def _try_write(self, flush: Callable[[], None]) -> None:
        try:
            await self._write(flush)
        except ReputError as error:
            self.is_changed = True
            logger.error(Event("the state of the timers was not written", error=error))

    async def _write(self, flush: Callable[[], None]) -> None:
        """Write a state that was begun: the log first, in which all is that was delivered before."""
        await self._pools.writes.run(self._writer.flush)
        await self._pools.writes.run(flush)
        if self._metrics.snapshot() is not None:
            await self._config_files.try_persist(self._metrics)
