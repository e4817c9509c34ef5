"""SetBack: what waits for times that are not right any more moves to others, after a clock that was ahead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from reput.broker.disk_work import DiskWork
from reput.broker.timer.open_slot import OpenSlot
from reput.broker.timer.timer_message import TimerMessage
from reput.formats.timer_log import NO_POSITION, Magic, TimerUnit
from reput.service.timer_messages import slot_times
from reput.store.timer.timer_message_store import TimerEntries, TimerMessageStore

#: Units of a slot that are copied at once; those of the slot where the timers stood with a look at each message.
_MOST_COPIED, _MOST_LOOKED_AT = 4096, 128


class SetBack:
    """The way of the timers from a slot back to the time of a clock that was ahead, and was set back.

    What is not delivered of that slot, and what waits so far away that new slots would take its places, gets further
    units in slots that come in time. It is copied piece by piece, and what was copied is not copied again: after an
    error `copy` goes on where it was. Only once the copies are durable, with the time at which the timers go on, the
    old slots are emptied.

    Args:
        timers: Where messages wait.
        work: The thread in which it is done.
        look: Gives the messages of units; None for one that is not there.
        slot: Where the timers stood.
        to_ms: The time at which they go on, rounded down to the precision.
        window_ms: The longest wait in one slot.
        precision_ms: Length of a slot.
    """

    def __init__(
        self,
        timers: TimerMessageStore,
        work: DiskWork,
        look: Callable[[Sequence[TimerUnit]], Awaitable[list[TimerMessage | None]]],
        slot: OpenSlot,
        to_ms: int,
        window_ms: int,
        precision_ms: int,
    ) -> None:
        self.slot, self.to_ms = slot, to_ms
        self._timers, self._work, self._look = timers, work, look
        self._window, self._precision = window_ms, precision_ms
        self._left = slot.left
        self._far_ms = max(to_ms + window_ms, slot.time_ms) + precision_ms
        self._far: list[int] | None = None
        self._position = NO_POSITION

    async def copy(self) -> None:
        """Let all that is to move wait in other slots, too; if it raises it may be called again."""
        if self._far is None:
            # What was delivered by the clock that was ahead does not come again, nor with what waits there now.
            await self._work.run(self._timers.clear_between, self.to_ms, self.slot.time_ms)
            self._far = await self._work.run(self._timers.times_from, self._far_ms)
        while self._left:
            some = self._left[:_MOST_LOOKED_AT]
            found = [(unit, one) for unit, one in zip(some, await self._look(some), strict=True) if one is not None]
            if found:
                units, messages = zip(*found, strict=True)
                await self._work.run(self._enqueue, units, [message.out_ms for message in messages])
            del self._left[: len(some)]
        await self._work.run(self._copy_far, self._far)

    def _copy_far(self, times: list[int]) -> None:
        while times:
            if self._position == NO_POSITION:
                self._position = self._timers.last_position(times[-1])
            units = self._timers.units_back(self._position, _MOST_COPIED)
            if units:
                self._enqueue(units[::-1], [times[-1]] * len(units))
            self._position = units[-1].prev_pos if len(units) == _MOST_COPIED else NO_POSITION
            if self._position == NO_POSITION:
                times.pop()

    def _enqueue(self, units: Sequence[TimerUnit], times_ms: Sequence[int]) -> None:
        """Let messages wait that are due in the slots of these times, or are to be rolled before them."""
        out_ms = np.array(times_ms, np.int64)
        times = slot_times(out_ms, np.full_like(out_ms, self.to_ms), self._window, self._precision)
        times = self._timers.free_times(np.maximum(times, self.to_ms), self.to_ms, self._far_ms, self.slot.time_ms)
        rolls = np.where(times < out_ms, Magic.ROLL, 0)
        magics, offsets, sizes, hashes = np.array([unit[1:2] + unit[4:] for unit in units], np.int64).T
        magics = magics & ~int(Magic.ROLL) | rolls
        entries = TimerEntries(
            times, magics.astype(np.int32), offsets, sizes.astype(np.int32), hashes.astype(np.int32)
        )  # fmt: skip
        self._timers.enqueue(entries, self.to_ms)

    def clear(self) -> None:
        """Empty the slots from which all is copied."""
        self._timers.clear_between(self.slot.time_ms, self.slot.time_ms + self._precision)
        self._timers.clear_between(self._far_ms, 1 << 62)
