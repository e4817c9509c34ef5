"""ReplicaAcks: what a SYNC_MASTER waits for before it answers a send: enough slaves have acknowledged it."""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter

from reput.config.broker import BrokerConfig
from reput.events import Event
from reput.formats.java import INT64_MAX
from reput.replication.ha_service import HAService
from reput.store.results import PutMessageStatus

logger = logging.getLogger("reput.broker")

_end_offset = attrgetter("end_offset")


@dataclass(slots=True, eq=False)
class _Wait:
    """A wait until the given number of slaves has the log up to an offset, and its timeout."""

    end_offset: int
    slaves: int
    done: Callable[[PutMessageStatus], None]
    timer: asyncio.TimerHandle = field(init=False)


class ReplicaAcks:
    """Calls back when enough slaves have the log up to an offset; used in the loop's thread.

    Slaves acknowledge in the threads of their connections, which tell the loop, many acknowledgements at once. There,
    all that waits for `n` slaves is compared with one number, the offset that `n` slaves have: nothing polls, and
    nobody waits behind somebody else, as in RocketMQ's `GroupTransferService`.

    How many are waited for, and which sends are refused, is RocketMQ 5's (`CommitLog.asyncPutMessage`,
    `calcNeedAckNums`), but for one slave at least, as of 4.9.

    Args:
        ha: Serves the slaves.
        config: The broker's.
    """

    def __init__(self, ha: HAService, config: BrokerConfig) -> None:
        self._ha = ha
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, list[_Wait]] = {}  # by slaves, and of these by end offset
        self._acknowledged: list[int] = []  # by one slave at least, by two ...
        self._noting = threading.Lock()
        self._is_told = False
        self._said = PutMessageStatus.PUT_OK.name
        self._config = config
        ha.on_acknowledged = self._tell

    def change_config(self, config: BrokerConfig) -> None:
        """Take other values of the keys, for what comes from now on."""
        self._config = config

    @property
    def are_not_enough(self) -> bool:
        """Whether fewer replicas are in sync than `minInSyncReplicas`."""
        needed = self._config.min_in_sync_replicas
        return needed > 1 and self._in_sync < needed

    def refuses(self) -> bool:
        """Whether a send that would wait for slaves is refused, before it is appended, as there are not enough."""
        if not self.are_not_enough:
            return False
        self._say("IN_SYNC_REPLICAS_NOT_ENOUGH", self._config.min_in_sync_replicas - 1)
        return True

    def when_acknowledged(self, end_offset: int, done: Callable[[PutMessageStatus], None]) -> None:
        """Call `done` with PUT_OK once enough slaves have the log up to an offset; it may be called at once.

        With SLAVE_NOT_AVAILABLE at once if too few slaves are near the log's end; with FLUSH_SLAVE_TIMEOUT if
        they have not acknowledged within `slaveTimeout`.
        """
        slaves = self._slaves_needed
        if self._acknowledged_by(slaves) >= end_offset:
            self._end(slaves, done, PutMessageStatus.PUT_OK)
        elif self._in_sync <= slaves:
            self._end(slaves, done, PutMessageStatus.SLAVE_NOT_AVAILABLE)
        else:
            wait = _Wait(end_offset, slaves, done)
            wait.timer = self._loop.call_later(self._config.slave_timeout / 1000, self._late, wait)
            insort(self._waiting.setdefault(slaves, []), wait, key=_end_offset)

    @property
    def status_of_unsent(self) -> PutMessageStatus:
        """Status of a send that no slave can have yet, and that waits no longer."""
        slaves = self._slaves_needed
        if slaves == 0:
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        are_too_few = self._in_sync <= slaves
        return PutMessageStatus.SLAVE_NOT_AVAILABLE if are_too_few else PutMessageStatus.FLUSH_SLAVE_TIMEOUT

    @property
    def _in_sync(self) -> int:
        """Replicas that are in sync, the broker itself included."""
        return 1 + self._ha.count_in_sync(self._config.ha_max_gap_not_in_sync)

    @property
    def _slaves_needed(self) -> int:
        """Number of slaves that have to acknowledge a send now."""
        config = self._config
        replicas = max(2, config.in_sync_replicas)
        if config.enable_auto_in_sync_replicas:
            replicas = max(min(replicas, self._in_sync), config.min_in_sync_replicas)
        return replicas - 1

    def _acknowledged_by(self, slaves: int) -> int:
        """Commit log offset up to which `slaves` slaves have had the log at one time; -1: there were never as many."""
        if slaves == 0:
            return INT64_MAX
        return self._acknowledged[slaves - 1] if slaves <= len(self._acknowledged) else -1

    def _tell(self) -> None:
        """Called in a connection's thread after an acknowledgement: it counts, though the connection may end now."""
        self._note()
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._look)

    def _note(self) -> None:
        with self._noting:
            pairs = zip_longest(self._acknowledged, self._ha.acknowledged, fillvalue=-1)
            self._acknowledged = [max(before, now) for before, now in pairs]

    def _look(self) -> None:
        """End all waits for what enough slaves have."""
        self._is_told = False  # before the look: what is acknowledged after it is told again
        covered: list[_Wait] = []
        for slaves, waiting in self._waiting.items():
            count = bisect_right(waiting, self._acknowledged_by(slaves), key=_end_offset)
            covered += waiting[:count]
            del waiting[:count]
        for wait in covered:
            wait.timer.cancel()
            self._end(wait.slaves, wait.done, PutMessageStatus.PUT_OK)

    def _late(self, wait: _Wait) -> None:
        self._note()  # what is acknowledged by now is not late, though the loop has not been told
        self._look()
        waiting = self._waiting[wait.slaves]
        if wait in waiting:
            waiting.remove(wait)
            self._end(wait.slaves, wait.done, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

    def _end(self, slaves: int, done: Callable[[PutMessageStatus], None], status: PutMessageStatus) -> None:
        self._say(status.name, slaves)
        done(status)

    def _say(self, answered: str, slaves: int) -> None:
        """Log what sends are answered, if that has changed."""
        if answered != self._said:
            self._said = answered
            level = logging.INFO if answered == PutMessageStatus.PUT_OK.name else logging.WARNING
            logger.log(level, Event("sends that wait for slaves", answered=answered, needed=slaves))
