"""TimerWheel: which messages are due at which moment of two weeks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput.errors import StoreFormatError, StoreFullError
from reput.files import FileLayer
from reput.formats.paths import TIMER_WHEEL
from reput.formats.timer_log import NO_POSITION
from reput.formats.timer_wheel import FIELDS, SLOT_SIZE, SLOTS, WHEEL_SIZE, Slot, slot_index

_SLOTS = np.dtype([(field.name, f">{field.code}") for field in FIELDS])
#: What is written at once: whole slots, and a page of the system's.
_PAGE_SIZE = 4096
_SLOTS_OF_PAGE = _PAGE_SIZE // SLOT_SIZE


class TimerWheel:
    """Timer wheel of one store (RocketMQ's `TimerWheel`), in memory; used by one thread at a time, but for `write`.

    The file is written from copies of pages (`changed_pages`), after the units that they lead to are synced. Memory is
    taken for pages that have been used since the start.

    Args:
        files: The file layer.
        root: The store's directory.
        precision_ms: Length of one slot.
        begin_ms: Slots before this time are over.

    Raises:
        StoreFormatError: The file has another length. Nothing was changed.

    Attributes:
        is_new: There is no file yet, or an empty one: RocketMQ's broker was killed when it had just made it.
    """

    def __init__(self, files: FileLayer, root: str, precision_ms: int, begin_ms: int) -> None:
        self._files = files
        self._path = f"{root}/{TIMER_WHEEL}"
        self.precision_ms = precision_ms
        self._slots: npt.NDArray[np.void] = np.zeros(SLOTS, _SLOTS)
        self._times = self._slots["TIME"]
        self._changed: set[int] = set()
        self._is_used = np.zeros(SLOTS // _SLOTS_OF_PAGE, np.bool_)  # by page
        self.is_new = not files.exists(self._path) or files.file_size(self._path) == 0
        if not self.is_new:
            self._read(begin_ms // precision_ms)

    def _read(self, begin: int) -> None:
        with self._files.open(self._path) as file:
            if file.size != WHEEL_SIZE:
                raise StoreFormatError(
                    f"{self._path}: expected {WHEEL_SIZE} bytes, found {file.size}; remove it together with timerlog "
                    "and config/timercheck, and all messages with a time that the log still has are delivered again"
                )
            for first in range(0, SLOTS, 64 * _SLOTS_OF_PAGE):
                part = np.frombuffer(file.read(first * SLOT_SIZE, 64 * _PAGE_SIZE), _SLOTS)
                is_live = part["TIME"] >= max(begin, 1)
                if is_live.any():  # memory is taken for these alone
                    self._slots[first : first + len(part)][is_live] = part[is_live]
                    self._is_used[(first + np.flatnonzero(is_live)) // _SLOTS_OF_PAGE] = True

    # -- slots

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time; None if no message waits for it."""
        index = slot_index(time_ms, self.precision_ms)
        time, first, last, num, _ = self._slots[index].item()
        return Slot(time, first, last, num) if time == time_ms // self.precision_ms and last != NO_POSITION else None

    def put(self, time_ms: int, first_pos: int, last_pos: int, num: int) -> None:
        """Set the slot of a time."""
        index = slot_index(time_ms, self.precision_ms)
        self._slots[index] = (time_ms // self.precision_ms, first_pos, last_pos, num, 0)
        self._is_used[index // _SLOTS_OF_PAGE] = True
        self._changed.add(index // _SLOTS_OF_PAGE)

    def clear(self, time_ms: int) -> None:
        """Empty the slot of a time."""
        index = slot_index(time_ms, self.precision_ms)
        self._slots[index] = (0, 0, 0, 0, 0)
        self._changed.add(index // _SLOTS_OF_PAGE)

    def clear_between(self, begin_ms: int, end_ms: int) -> None:
        """Empty the slots of the times in [begin, end), also those in the file that were over when it was read."""
        begin, end = begin_ms // self.precision_ms, end_ms // self.precision_ms
        self._slots[(self._times >= begin) & (self._times < end)] = 0
        pages = range(begin // _SLOTS_OF_PAGE, min(end // _SLOTS_OF_PAGE + 1, (begin + SLOTS) // _SLOTS_OF_PAGE))
        self._changed.update(page % (SLOTS // _SLOTS_OF_PAGE) for page in pages)

    def times_from(self, begin_ms: int) -> list[int]:
        """The times, this one or later, for which messages wait, in ms."""
        found: list[int] = np.sort(self._times[self._times >= begin_ms // self.precision_ms]).tolist()
        return [time * self.precision_ms for time in found]

    def free_time(self, time_ms: int, begin_ms: int, end_ms: int, but_ms: int) -> int:
        """A time, or the nearest before it, else after it, in whose place no messages wait for another time.

        Args:
            time_ms: The time, ms.
            begin_ms: What is found is not before that; what waits for earlier times is over.
            end_ms: What is found is before that.
            but_ms: It is not what is found.

        Raises:
            StoreFullError: There is none.
        """
        time, begin, end, but = (one // self.precision_ms for one in (time_ms, begin_ms, end_ms, but_ms))
        found = int(self._times[time % SLOTS])
        if (found < begin or found == time) and time != but:
            return time_ms
        times = np.concatenate([np.arange(time, begin - 1, -1), np.arange(time + 1, min(end, begin + SLOTS))])
        others = self._times[times % SLOTS]
        free = times[((others < begin) | (others == times)) & (times != but)]
        if not len(free):
            raise StoreFullError(f"{self._path}: messages wait in all slots from {begin_ms} to {end_ms} ms")
        return int(free[0]) * self.precision_ms

    def next_time(self, begin_ms: int, end_ms: int) -> int | None:
        """The first time in [begin, end) for which a message waits, at most half a wheel on; None without one."""
        begin, end = begin_ms // self.precision_ms, -(-end_ms // self.precision_ms)
        for first, _, is_live in self._parts(begin, end):
            found = np.flatnonzero(is_live)
            if len(found):
                return (first + int(found[0])) * self.precision_ms
        return None

    def num_between(self, begin_ms: int, end_ms: int) -> int:
        """The number of messages that wait for a time in [begin, end), both rounded down to slots."""
        nums, total = self._slots["NUM"], 0
        for _, index, is_live in self._parts(begin_ms // self.precision_ms, end_ms // self.precision_ms):
            total += int(nums[index : index + len(is_live)][is_live].sum(dtype=np.int64))
        return total

    def _parts(self, begin: int, end: int) -> Iterator[tuple[int, int, npt.NDArray[np.bool_]]]:
        """The used slots of the times in [begin, end), half a wheel at most, in one or two pieces.

        Yields:
            A piece's first time and its index in the wheel, and for each of its slots whether messages wait there.
        """
        end = min(end, begin + SLOTS // 2)
        while begin < end:
            index = begin % SLOTS
            count = min(end - begin, SLOTS - index)
            used = self._used(index, index + count)
            first = begin + used.start - index
            yield first, used.start, self._times[used] == np.arange(first, first + used.stop - used.start)
            begin += count

    def _used(self, begin: int = 0, end: int = SLOTS) -> slice:
        """The slots in [begin, end) from the first page to the last one that has been used."""
        first = begin // _SLOTS_OF_PAGE
        pages = np.flatnonzero(self._is_used[first : -(-end // _SLOTS_OF_PAGE)])
        if not len(pages):
            return slice(begin, begin)
        return slice(
            max(begin, (first + int(pages[0])) * _SLOTS_OF_PAGE),
            min(end, (first + int(pages[-1]) + 1) * _SLOTS_OF_PAGE),
        )

    def total(self, begin_ms: int) -> int:
        """The number of messages that wait for this time or a later one (`getAllNum`)."""
        used = self._used()
        is_waiting = self._times[used] >= max(begin_ms // self.precision_ms, 1)
        return int(self._slots["NUM"][used][is_waiting].sum(dtype=np.int64))

    def beyond(self, end: int) -> list[Slot]:
        """Slots whose last unit is not before a position: the timer log has lost it."""
        used = self._used()
        found = np.flatnonzero((self._times[used] != 0) & (self._slots["LASTPOS"][used] >= end))
        return [Slot(*self._slots[used][index].item()[:4]) for index in found.tolist()]

    # -- the file

    def changed_pages(self) -> list[tuple[int, bytes]]:
        """(position, bytes) of each page that has changed since the last call."""
        pages = [
            (page * _PAGE_SIZE, self._slots[page * _SLOTS_OF_PAGE : (page + 1) * _SLOTS_OF_PAGE].tobytes())
            for page in sorted(self._changed)
        ]
        self._changed.clear()
        return pages

    def write(self, pages: list[tuple[int, bytes]]) -> None:
        """Write pages, durably; waits for the disk.

        A new file gets its name when it is complete. Without one the next start reads the whole timer log; with one it
        goes by the checkpoint, which may be younger than the pages of a file that a power cut has left half written.
        """
        path = f"{self._path}.tmp" if self.is_new else self._path
        if self.is_new and self._files.exists(path):
            self._files.unlink(path)  # a crash or a failed write left it here
        with self._files.open(path, writable=True, create=True, size=WHEEL_SIZE) as file:
            for position, page in pages:
                file.write(position, page)
            file.sync()
        if self.is_new:
            self._files.rename(path, self._path)
            self.is_new = False
