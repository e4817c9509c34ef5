"""ProcessQueue: all that a consumer knows of one queue (`ProcessQueue`), and the table of its queues; pure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Generic, TypeVar

from reput.client.instance.topic_route import MASTER_ID
from reput.events import Event
from reput.remoting.queue_tables import QueueKey

#: A broker keeps a lock for 60 s; a member trusts it for half of that (`REBALANCE_LOCK_MAX_LIVE_TIME`).
_TRUSTED_S = 30.0

logger = logging.getLogger("reput.client")


def tell_moved(queue: QueueKey, was: int, to: int) -> None:
    """Tell that a queue goes on elsewhere than expected; not if a broker says so of the same offset."""
    if was != to:
        logger.warning(Event("an offset is moved", queue=queue, was=was, to=to))


class ProcessQueue:
    """One queue of a consumer. Rebalance, locks, pulls, handlers and offsets all keep here what they know of it.

    Attributes:
        queue: Its key.
        is_wanted: The queue is in this member's share.
        pulling, handling: Tasks: who pulls it, and who handles its messages one after the other; None for nobody.
        suggested_broker_id: Whom the last pull has suggested for the next one.
        locked_at: When its lock was asked for that this member has, in seconds of the loop; None for none.
        is_lock_asked: Maybe its lock is this member's: it was asked for without an answer, or its broker came again.
        needs_lock: It is handled, and its offset is sent, only while it is locked.
        offset: All messages before it are handled; None before that is known.
        told_offset: The offset that a broker, or the file, has; None if that is not sure: the next one is sent anyway.
        is_moved: The broker, or an operator, has said where it goes on, and no broker has that offset yet.
        asked_at: When its broker was asked where to begin, in seconds of the loop; None: not yet.
        is_told_here: This member has sent `told_offset` since then.
    """

    def __init__(self, queue: QueueKey) -> None:
        self.queue = queue
        self.is_wanted = False
        self.pulling: asyncio.Task[None] | None = None
        self.handling: asyncio.Task[None] | None = None
        self.suggested_broker_id = MASTER_ID
        self.locked_at: float | None = None
        self.is_lock_asked = self.needs_lock = False
        self.offset: int | None = None
        self.told_offset: int | None = None
        self.is_moved = False
        self.asked_at: float | None = None
        self.is_told_here = False

    def want(self) -> None:
        """The queue is this member's from now on."""
        self.is_wanted = True

    def drop(self) -> None:
        """The queue is another member's from now on: its offset is sent once more, and not again and again."""
        self.is_wanted, self.asked_at = False, None
        self.stop()

    def stop(self) -> None:
        """Pull no more."""
        if self.pulling is not None:
            self.pulling.cancel()

    def locked_s(self, now: float) -> float | None:
        """Seconds since it was locked; None if this member may not handle it at a time of the loop."""
        age = None if self.locked_at is None else now - self.locked_at
        return None if age is None or age >= _TRUSTED_S else age

    def may_commit(self, now: float) -> bool:
        """Whether its offset may be sent at a time of the loop: no other member is farther, as far as one can know."""
        return not self.needs_lock or self.locked_s(now) is not None

    def move(self, offset: int) -> None:
        """The broker, or an operator, says that it goes on at an offset, whatever was sent before."""
        self.offset, self.told_offset, self.is_moved = offset, None, True

    def reconnected(self) -> None:
        """A broker is reached again: if it was killed, locks and the last offsets are forgotten."""
        self.told_offset = None
        if self.locked_at is not None:  # maybe it is still there, and is to be given back
            self.locked_at, self.is_lock_asked = None, True

    def forget(self) -> None:
        """Another member may be farther by now: nothing is sent any more."""
        self.offset = self.told_offset = None
        self.is_moved = False


_Queue = TypeVar("_Queue", bound=ProcessQueue, covariant=True)


class ProcessQueueTable(Generic[_Queue]):
    """The queues of a consumer (`processQueueTable`): its share, and queues whose work is not over.

    Args:
        made: Makes a queue's state, before it is wanted.
    """

    def __init__(self, made: Callable[[QueueKey], _Queue]) -> None:
        self._made = made
        self._queues: dict[QueueKey, _Queue] = {}

    def __iter__(self) -> Iterator[_Queue]:
        return iter(self._queues.values())

    def get(self, queue: QueueKey) -> _Queue | None:
        """A queue of the table; None for another one."""
        return self._queues.get(queue)

    def known(self, queue: QueueKey) -> _Queue:
        """A queue, which is in the table from now on."""
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = self._made(queue)
        return found

    def remove(self, one: ProcessQueue) -> None:
        """Nobody works on a queue any more."""
        del self._queues[one.queue]

    def put_last(self, one: ProcessQueue) -> None:
        """Let all others come before a queue from now on."""
        self._queues[one.queue] = self._queues.pop(one.queue)

    def share(self) -> set[QueueKey]:
        """The queues that are wanted."""
        return {one.queue for one in self if one.is_wanted}

    def assign(self, queues: Iterable[QueueKey], topics: Container[str] | None = None) -> None:
        """Take these queues, and no others of some topics, or of all."""
        before, now = self.share(), set(queues)
        for queue in sorted(queue for queue in before - now if topics is None or queue.topic in topics):
            self._queues[queue].drop()
        for queue in sorted(now - before):
            self.known(queue).want()
