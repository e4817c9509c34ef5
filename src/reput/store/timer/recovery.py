"""Recovery of timer log and wheel: where the log ends, and to which units the slots lead."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.store.timer.timer_log import TimerLog, counts, slot_times
from reput.store.timer.timer_wheel import TimerWheel


class _Found(NamedTuple):
    """Units of slots that are not over: int64 arrays of positions, times of slots, and what each adds to NUM."""

    positions: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def recover(
    log: TimerLog,
    wheel: TimerWheel,
    read_time_ms: int,
    begin: int,
    max_commit_log_offset: int,
    queued_from: int,
    flushed_to: int,
) -> npt.NDArray[np.int64]:
    """Cut the log after its last unit, and lead each slot to its last unit (`TimerMessageStore.recover`).

    Args:
        log: Just opened.
        wheel: Just opened; it may be older than the log, or newer, if a power cut has taken units.
        read_time_ms: Slots before this time are over.
        begin: Position from which on units may be newer than the wheel.
        max_commit_log_offset: End of the commit log.
        queued_from: Commit log offset of the first message that is read from the queue again.
        flushed_to: Position of the first unit that the wheel, as it was written last, does not know: a slot that is
            empty though it has earlier ones was emptied.

    Returns:
        int64[...], sorted: commit log offsets of the messages among these that have units.
    """
    found, with_units, end = _scan(log, begin, read_time_ms, max_commit_log_offset, queued_from)
    lost = wheel.beyond(end)
    if lost and min(slot.first_pos for slot in lost) < begin:
        first = min(slot.first_pos for slot in lost)
        found, with_units, end = _scan(log, max(first, 0), read_time_ms, max_commit_log_offset, queued_from)
    log.cut(end)
    for slot in lost:
        wheel.clear(slot.time * wheel.precision_ms)
    _lead_to_last(wheel, found, flushed_to, {slot.time * wheel.precision_ms for slot in lost})
    return with_units


def _scan(
    log: TimerLog, begin: int, read_time_ms: int, max_commit_log_offset: int, queued_from: int
) -> tuple[_Found, npt.NDArray[np.int64], int]:
    end = log.start_of_file(begin)
    parts: list[_Found] = []
    with_units: list[npt.NDArray[np.int64]] = []
    for first, units in log.scan(begin, max_commit_log_offset):
        positions = first + units.itemsize * np.arange(len(units))
        end = first + units.nbytes
        times = slot_times(units)
        waits = times >= read_time_ms
        parts.append(_Found(positions[waits], times[waits], counts(units)[waits]))
        offsets = units["OFFSETPY"].astype(np.int64)
        with_units.append(offsets[offsets >= queued_from])
    empty = np.empty(0, np.int64)
    found = _Found(*(np.concatenate([empty, *columns]) for columns in zip(*parts, strict=True))) if parts else None
    return found or _Found(empty, empty, empty), np.sort(np.concatenate([empty, *with_units])), end


def _lead_to_last(wheel: TimerWheel, found: _Found, flushed_to: int, lost: set[int]) -> None:
    """Lead each slot to the last of its units that was found, if it does not lead there yet."""
    order = np.lexsort((found.positions, found.times))
    positions, times, nums = (column[order] for column in found)
    bounds = [*np.flatnonzero(np.diff(times, prepend=-1)).tolist(), len(times)]
    for begin, end in pairwise(bounds):
        time, last = int(times[begin]), int(positions[end - 1])
        slot = wheel.slot(time)
        if slot is None and last < flushed_to and time not in lost:
            continue
        if slot is None:
            wheel.put(time, int(positions[begin]), last, int(nums[begin:end].sum()))
        elif slot.last_pos < last:
            newer = positions[begin:end] > slot.last_pos
            wheel.put(time, slot.first_pos, last, slot.num + int(nums[begin:end][newer].sum()))
