"""OpenSlot: the slot whose time has come; its messages are delivered one by one at their exact times."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from reput.broker.timer.timer_message import DeleteKey, TimerMessage
from reput.formats.timer_log import TimerUnit

#: Messages of a slot that are kept in memory; each takes 2 KB and its record.
_MOST_KEPT, _MOST_KEPT_BYTES = 2048, 4 << 20


class Waiting(NamedTuple):
    """A message of the open slot: when it is due (ms), its number in the slot, its unit, and itself, if it is kept."""

    due_ms: int
    number: int
    unit: TimerUnit
    message: TimerMessage | None


class OpenSlot:
    """Messages of one slot that are not delivered yet.

    Attributes:
        time_ms: The slot's time: its messages are due after it, and at most one precision later.
        deleted: Which messages are not to be delivered, and how many others say so of each.
        found: How many of them were in the slot, by topic.
        unread: Its units whose messages were not looked at yet.
        has_begun: Whether a message has been delivered: a start reads the whole slot again.
    """

    def __init__(self, time_ms: int, units: list[TimerUnit]) -> None:
        self.time_ms = time_ms
        self.unread = units
        self.deleted: Counter[DeleteKey] = Counter()
        self.found: Counter[str] = Counter()
        self.has_begun = False
        self._waiting: list[Waiting] = []
        self._deleting: list[TimerUnit] = []
        self._taken: list[Waiting] = []
        self._count = 0
        self._kept, self._kept_bytes = 0, 0

    def add(self, due_ms: int, unit: TimerUnit, message: TimerMessage | None = None) -> None:
        """A message waits; of those that are due at once the first added comes first.

        Args:
            due_ms: When it is due.
            unit: Its unit.
            message: To be kept, if there is room, with all the bytes that it holds; else it is to be looked at again.
        """
        if message is not None:
            self._kept, self._kept_bytes = self._kept + 1, self._kept_bytes + unit.size
            if self._kept > _MOST_KEPT or self._kept_bytes > _MOST_KEPT_BYTES:
                message = None
        self._count += 1
        heapq.heappush(self._waiting, Waiting(due_ms, self._count, unit, message))

    def delete(self, key: DeleteKey, unit: TimerUnit) -> None:
        """A message of this key is not to be delivered, as the message of a unit says."""
        self.deleted[key] += 1
        self._deleting.append(unit)

    def put_back(self, taken: Iterable[Waiting]) -> None:
        """Messages were taken, and not delivered."""
        for waiting in taken:
            heapq.heappush(self._waiting, waiting)

    def take(self, now_ms: int, most: int, most_bytes: int) -> list[Waiting]:
        """The next messages that are due: at most `most`, with at most `most_bytes` of records, or one.

        Those that were taken before have been delivered, or were put back.
        """
        taken: list[Waiting] = []
        while self._waiting and self._waiting[0].due_ms <= now_ms and len(taken) < most:
            most_bytes -= self._waiting[0].unit.size
            if most_bytes < 0 and taken:
                break
            taken.append(heapq.heappop(self._waiting))
        self._taken = taken
        return taken

    @property
    def left(self) -> list[TimerUnit]:
        """The units of messages that are not delivered, and of those that delete others."""
        return [waiting.unit for waiting in sorted(self._waiting)] + self._deleting + self.unread

    @property
    def next_due_ms(self) -> int | None:
        """Time of the next due message; None if none waits."""
        return self._waiting[0].due_ms if self._waiting else None

    @property
    def undelivered_ms(self) -> int | None:
        """Due time of the first message that waits, or was taken last and may not be delivered yet; None if none."""
        return self._taken[0].due_ms if self._taken else self.next_due_ms
