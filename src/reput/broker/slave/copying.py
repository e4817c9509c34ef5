"""Copying: whether a slave copies its master's log, and why not; `/ready`, metrics and the log read this one state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from reput.events import Event

logger = logging.getLogger("reput.broker")

#: A master may be away for so long, as for a restart, before its slave says that it copies nothing.
_AWAY_S = 30.0
#: Between two lines of the log about the same reason.
_SAY_AGAIN_S = 60.0


class _Stop(NamedTuple):
    """A stop of copying: reason, master (empty: none is known), time; `is_refused`: waiting does not end it."""

    reason: str
    master: str
    since: float
    is_refused: bool


class Copying:
    """Set by the slave's thread and its loop, read by any.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stop: _Stop | None = _Stop("it has just started", "", clock(), False)
        self._said: tuple[str, float] | None = None
        self._end_offset = -1

    @property
    def copies_nothing(self) -> str | None:
        """`copies nothing from MASTER: REASON`; None while it copies, and while a master is away for a moment."""
        stop = self._stop
        if stop is None or not self._counts(stop):
            return None
        return f"copies nothing{stop.master and f' from {stop.master}'}: {stop.reason}"

    def goes_on(self, end_offset: int, *, is_all: bool) -> None:
        """The master is followed. After a refusal that is no end of it: with a full disk its last bytes still compare.

        Args:
            end_offset: Where the slave's log ends; a new byte ends a refusal.
            is_all: The master has no more, which ends it, too.
        """
        is_copied, self._end_offset = end_offset > self._end_offset, end_offset
        if self._stop is None or (self._stop.is_refused and not is_copied and not is_all):
            return
        master, self._stop = self._stop.master, None
        if self._said is not None:
            self._said = None
            logger.info(Event("the slave copies again", master=master))

    def stops(self, reason: str, master: str = "", *, is_refused: bool = False) -> None:
        """Nothing is copied.

        Args:
            reason: Why.
            master: Its address.
            is_refused: It stays so until somebody mends it; else the master may be back in a moment.
        """
        now, before = self._clock(), self._stop
        if before is None:
            stop = _Stop(reason, master, now, is_refused)
        else:  # a refusal counts until the log is copied again, also while it is tried again
            stop = _Stop(reason, master, before.since, is_refused or before.is_refused)
        self._stop = stop
        if not self._counts(stop):
            return
        if self._said is None or self._said[0] != reason or now - self._said[1] >= _SAY_AGAIN_S:
            self._said = reason, now
            level = logging.ERROR if is_refused else logging.WARNING
            logger.log(level, Event("the slave copies nothing", master=master or None, reason=reason))

    def _counts(self, stop: _Stop) -> bool:
        return stop.is_refused or self._clock() - stop.since >= _AWAY_S
