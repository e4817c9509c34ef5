"""ReplicaAcks: what a SYNC_MASTER waits for before it answers a send: enough slaves have acknowledged it."""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from reput.config.broker import BrokerConfig
from reput.events import Event
from reput.replication.ha_service import HAService
from reput.store.results import PutMessageStatus

logger = logging.getLogger("reput.broker")

_end_offset = attrgetter("end_offset")


@dataclass(slots=True, eq=False)
class _Wait:
    """Who waits for a commit log offset, and until when."""

    end_offset: int
    done: Callable[[PutMessageStatus], None]
    timer: asyncio.TimerHandle = field(init=False)


class ReplicaAcks:
    """Calls back when enough slaves have the log up to an offset; used in the loop's thread.

    Slaves acknowledge in the threads of their connections, which tell the loop, many acknowledgements at once. There,
    all that waits is compared with one number, the offset that enough slaves have: nothing polls, and nobody waits
    behind somebody else, as in RocketMQ's `GroupTransferService`.

    Args:
        ha: Serves the slaves.
        config: The broker's.
    """

    def __init__(self, ha: HAService, config: BrokerConfig) -> None:
        self._ha = ha
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Wait] = []  # by end offset
        self._acknowledged = -1
        self._noting = threading.Lock()
        self._is_told = False
        self._last = PutMessageStatus.PUT_OK
        self._needed, self._timeout_s = 1, 0.0
        self.change_config(config)
        ha.on_acknowledged = self._tell

    def change_config(self, config: BrokerConfig) -> None:
        """Take other values of `inSyncReplicas` and `slaveTimeout`, for what comes from now on."""
        self._timeout_s = config.slave_timeout / 1000
        with self._noting:
            self._needed = max(1, config.in_sync_replicas - 1)
            self._acknowledged = self._ha.acknowledged_by(self._needed)

    def when_acknowledged(self, end_offset: int, done: Callable[[PutMessageStatus], None]) -> None:
        """Call `done` with PUT_OK once enough slaves have the log up to an offset; it may be called at once.

        With SLAVE_NOT_AVAILABLE at once where too few slaves are near the log's end; with FLUSH_SLAVE_TIMEOUT where
        they have not acknowledged within `slaveTimeout`.
        """
        if self._acknowledged >= end_offset:
            self._end(done, PutMessageStatus.PUT_OK)
        elif self._are_too_few:
            self._end(done, PutMessageStatus.SLAVE_NOT_AVAILABLE)
        else:
            wait = _Wait(end_offset, done)
            wait.timer = self._loop.call_later(self._timeout_s, self._late, wait)
            insort(self._waiting, wait, key=_end_offset)

    @property
    def status_of_unsent(self) -> PutMessageStatus:
        """What a send is answered that no slave can have yet, and that waits no longer."""
        return PutMessageStatus.SLAVE_NOT_AVAILABLE if self._are_too_few else PutMessageStatus.FLUSH_SLAVE_TIMEOUT

    @property
    def _are_too_few(self) -> bool:
        return self._ha.count_in_sync() < self._needed

    def _tell(self) -> None:
        """Called in a connection's thread after an acknowledgement: it counts, though the connection may end now."""
        self._note()
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._look)

    def _note(self) -> None:
        with self._noting:
            self._acknowledged = max(self._acknowledged, self._ha.acknowledged_by(self._needed))

    def _look(self) -> None:
        """End all waits for what enough slaves have."""
        self._is_told = False  # before the look: what is acknowledged after it is told again
        count = bisect_right(self._waiting, self._acknowledged, key=_end_offset)
        covered, self._waiting = self._waiting[:count], self._waiting[count:]
        for wait in covered:
            wait.timer.cancel()
            self._end(wait.done, PutMessageStatus.PUT_OK)

    def _late(self, wait: _Wait) -> None:
        self._note()  # what is acknowledged by now is not late, though the loop has not been told
        self._look()
        if wait in self._waiting:
            self._waiting.remove(wait)
            self._end(wait.done, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

    def _end(self, done: Callable[[PutMessageStatus], None], status: PutMessageStatus) -> None:
        if status is not self._last:
            self._last = status
            level = logging.INFO if status is PutMessageStatus.PUT_OK else logging.WARNING
            logger.log(level, Event("sends that wait for slaves", answered=status.name, needed=self._needed))
        done(status)
