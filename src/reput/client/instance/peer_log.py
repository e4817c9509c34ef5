"""PeerLog: what clients log of name servers and brokers that do not answer, or refuse: a few lines, however long."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from reput.errors import ReputError
from reput.events import EVERY_S, Event, LineBound

logger = logging.getLogger("reput.client")


class PeerLog:
    """Two lines of a peer, which say different things, then one in ten seconds, and one when it answers again.

    A line says how many were left out before it, by their messages. All clients of a process share it: what they have
    to say of a peer is the same.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bound = LineBound()
        self._failing_since: dict[str, float] = {}
        self._silent_since: dict[str, float] = {}
        self._told: set[str] = set()  # those of the silent ones of which a line was written
        self._left_out: dict[str, Counter[str]] = {}

    def failed(self, message: str, error: ReputError, **fields: Any) -> None:
        """Log that something failed because of a peer (`error.peer`, or several), if there is room for a line."""
        now = self._clock()
        peers = (error.peer or message).split(";")
        if not all(self._has_room(peer, message, now) for peer in peers):
            for peer in peers:
                self._left_out.setdefault(peer, Counter())[message] += 1
            return
        for peer in peers:
            self._bound.count(peer, now)
            self._bound.count((peer, message), now)
            if peer in self._silent_since:
                self._told.add(peer)
        logger.warning(Event(message, **fields, error=error, **self._take_left_out(*peers)))

    def silent(self, peer: str) -> None:
        """A peer has not answered."""
        self._silent_since.setdefault(peer, self._clock())

    def answered(self, peer: str) -> None:
        """A peer has answered; logged if it was logged that it did not."""
        # This is called for each answer, and by the threads of several loops: each step holds for all of them.
        if peer in self._silent_since and (since := self._silent_since.pop(peer, None)) is not None:
            self._failing_since.pop(peer, None)
            left_out = self._take_left_out(peer)
            if peer in self._told:
                self._told.discard(peer)
                seconds = round(self._clock() - since)
                logger.warning(Event("a server answers again", address=peer, seconds=seconds, **left_out))

    def _has_room(self, peer: str, message: str, now: float) -> bool:
        is_new = now < self._failing_since.setdefault(peer, now) + EVERY_S
        return self._bound.has_room(peer, 2 if is_new else 1, now) and self._bound.has_room((peer, message), 1, now)

    def _take_left_out(self, *peers: str) -> dict[str, str]:
        """The field that counts the lines that were left out, if there are some."""
        counts: Counter[str] = Counter()
        for peer in peers:
            counts.update(dict(self._left_out.pop(peer, {})))
        return {"left_out": ", ".join(f"{message}: {count}" for message, count in counts.items())} if counts else {}


#: The log of this process.
peers = PeerLog(time.monotonic)
