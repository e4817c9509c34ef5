"""Rules of a group of consumers: who handles a message when, and which offsets may be committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from reput.remoting.queue_tables import QueueKey

#: A commit of a member that had not heard of a reset may come so much later: its handler ends first, and it is slow.
GRACE_S = 40.0


@dataclass
class _Queue:
    """One queue.

    Attributes:
        frontier: All messages before it are handled, or need not be, since the last reset.
        done: Those that are handled behind it.
        reach: All messages before it were handled at some time, or passed over: whoever knows of no reset commits it.
        told_at: When the last reset has come to a member; None: not yet.
        is_undone: Whether the last reset may be lost: the broker was killed, or its answer did not come.
        ever, passed: What was ever handled, and what a reset has passed over.
        running: By member, since when, and which message.
        begun_at: The offset at which a member has begun last, by its connection; none after a reset.
        locked_at: The group's offset when a client has locked it after another one.
        had_reset: Whether an operator has reset it.
    """

    frontier: int = 0
    done: set[int] = field(default_factory=set)
    reach: int = 0
    told_at: float | None = None
    is_undone: bool = True
    ever: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    running: dict[str, tuple[float, int]] = field(default_factory=dict)
    begun_at: dict[Hashable, int] = field(default_factory=dict)
    locked_at: dict[str, int] = field(default_factory=dict)
    had_reset: bool = False


class Ledger:
    """The reference of a group.

    Args:
        now: Seconds.
        is_orderly: Messages of a queue are handled one after the other.
        lock_is_lost: Whether a member that has begun at a time may have lost its lock of a queue without a word.

    Attributes:
        broken: What must not be.
        counts: What was done.
        handlers: How often a message was handled, by its queue and offset.
    """

    def __init__(
        self, now: Callable[[], float], *, is_orderly: bool, lock_is_lost: Callable[[QueueKey, float], bool]
    ) -> None:
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.handlers: Counter[tuple[QueueKey, int]] = Counter()
        self._now = now
        self._is_orderly = is_orderly
        self._lock_is_lost = lock_is_lost
        self._queues: dict[QueueKey, _Queue] = {}

    def queue(self, queue: QueueKey) -> _Queue:
        return self._queues.setdefault(queue, _Queue())

    def _break(self, queue: QueueKey, text: str) -> None:
        self.broken.append(f"{self._now() - 1000:.3f} s: {queue.topic} {queue.broker_name} {queue.queue_id}: {text}")

    # -- handlers

    def locked(self, queue: QueueKey, offset: int, client_id: str) -> None:
        """A client has a queue that another one had, which has committed this."""
        self.queue(queue).locked_at[client_id] = offset

    def begun(self, member: str, client_id: str, queue: QueueKey, offset: int) -> None:
        one, now = self.queue(queue), self._now()
        if offset < one.locked_at.get(client_id, 0) and not (one.had_reset and self._may_be_old(one)):
            self._break(queue, f"{member} begins {offset}, and another one had committed {one.locked_at[client_id]}")
        if self._is_orderly:
            for other, (since, what) in one.running.items():
                if other == member or not self._lock_is_lost(queue, since):
                    self._break(queue, f"{member} begins {offset} while {other} handles {what}")
            if offset > one.frontier and not self._may_be_old(one):
                self._break(queue, f"{member} begins {offset} before {one.frontier} is handled")
        one.running[member] = now, offset

    def ended(self, member: str, queue: QueueKey, offset: int, *, is_done: bool) -> None:
        self.queue(queue).running.pop(member, None)
        if is_done:
            self.counts["messages handled"] += 1
            self.handlers[queue, offset] += 1
            self.settled(queue, offset)

    def settled(self, queue: QueueKey, offset: int) -> None:
        """A message is handled, or its broker has taken it back."""
        one = self.queue(queue)
        one.ever.add(offset)
        one.done.add(offset)
        while one.frontier in one.done:
            one.done.remove(one.frontier)
            one.frontier += 1
        self._reach(one)

    def _reach(self, one: _Queue) -> None:
        while one.reach in one.ever or one.reach in one.passed:
            one.reach += 1

    # -- offsets

    def begins_at(self, queue: QueueKey, offset: int, by: Hashable) -> None:
        """A member is told where to begin: the member before has committed that."""
        self.queue(queue).begun_at[by] = offset

    def committed(self, queue: QueueKey, offset: int, by: Hashable) -> None:
        one = self.queue(queue)
        self.counts["commits"] += 1
        begun_at = one.begun_at.get(by, 0)
        if offset < begun_at and not (one.had_reset and self._may_be_old(one)):
            self._break(queue, f"{offset} is committed by a member that was told to begin at {begun_at}")
        if offset <= one.frontier:
            return
        if offset <= one.reach and self._may_be_old(one):
            one.is_undone = True
        else:
            self._break(queue, f"{offset} is committed, and {one.frontier} is not handled")

    def reset(self, queue: QueueKey, offset: int, *, is_sure: bool) -> None:
        """An operator resets a queue; `is_sure`: its broker keeps it until a member is told."""
        one = self.queue(queue)
        self.counts["resets"] += 1
        one.passed.update(range(one.frontier, offset))
        self._reach(one)
        one.frontier, one.told_at, one.is_undone, one.had_reset = offset, None, not is_sure, True
        one.done.clear()
        one.begun_at.clear()
        one.locked_at.clear()

    def told(self, queue: QueueKey, *, is_heard: bool) -> None:
        """A reset has come to a member, or is lost."""
        one = self.queue(queue)
        one.told_at = self._now()
        one.is_undone |= not is_heard

    def undo(self, broker_name: str) -> None:
        """A broker was killed, or its connections: resets that it has had, or told, may be lost."""
        for queue, one in self._queues.items():
            if queue.broker_name == broker_name:
                one.is_undone = True
                one.locked_at.clear()  # it may have forgotten what was committed before

    def _may_be_old(self, one: _Queue) -> bool:
        """Whether a member may not know of the last reset."""
        return one.is_undone or one.told_at is None or self._now() <= one.told_at + GRACE_S

    # -- at the end

    def check_end(self, queue: QueueKey, end: int, committed: int | None) -> None:
        """All messages are handled, also those before the last reset, and that is committed."""
        one = self.queue(queue)
        missing = sorted(set(range(end)) - one.ever - one.passed)
        if missing:
            self._break(queue, f"{missing[:5]} of {end} were never handled")
        if not one.is_undone and one.frontier < end:
            self._break(queue, f"{one.frontier} of {end} is not handled since the last reset")
        if (committed or 0) != end:
            self._break(queue, f"{committed} is committed, and all {end} are handled")
