"""Search for a unit in each of many queues at once, by system calls.

A start maps no queue, and the interpreter does not wait for ten thousand files one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.store.queues.consume_queue import ConsumeQueue

Offsets = npt.NDArray[np.int64]
#: Units as a structured array, see `UNIT_TYPE`.
Units = npt.NDArray[np.void]
#: Test of units, each of another queue, and of the queues' numbers: bool[units].
UnitTest: TypeAlias = Callable[[Units, Offsets], npt.NDArray[np.bool_]]
#: Units of a gap that are read in one go.
_UNITS_OF_A_READ = 4096


def are_fillers(units: Units) -> npt.NDArray[np.bool_]:
    """bool[units], which units are fillers, which fill a gap."""
    fillers: npt.NDArray[np.bool_] = units == np.array(tuple(FILLER), UNIT_TYPE)
    return fillers


def written_before(end_offset: int) -> UnitTest:
    """Test for units that are written, with records that end at or before a commit log offset; fillers pass, too."""

    def is_written(units: Units, _: Offsets) -> npt.NDArray[np.bool_]:
        ends = units["commit_log_offset"] + units["size"]
        written: npt.NDArray[np.bool_] = (units["size"] > 0) & (are_fillers(units) | (ends <= end_offset))
        return written

    return is_written


def follow_units(files: FileLayer, queues: Sequence[ConsumeQueue], guess: Offsets, end_offset: int) -> None:
    """Take over the units that another process has written for records before an offset.

    Args:
        files: The file layer.
        queues: The queues that may have grown.
        guess: Queue offset at which each queue may end.
        end_offset: Commit log offset.
    """
    for queue, end in zip(queues, guess.tolist(), strict=True):
        if not queue.file_starts or end * UNIT_SIZE > queue.file_starts[-1] + queue.file_size:
            queue.find_files()
    has_files = np.array([bool(queue.file_starts) for queue in queues], bool)
    queues, guess = [queue for queue in queues if queue.file_starts], guess[has_files]
    first = np.array([max(queue.max_offset, queue.file_starts[0] // UNIT_SIZE) for queue in queues], np.int64)
    last = np.array([(queue.file_starts[-1] + queue.file_size) // UNIT_SIZE for queue in queues], np.int64)
    ends = search_units(files, queues, first, last, guess, written_before(end_offset))
    grown = np.flatnonzero(ends > first)
    units = read_units(files, [queues[i] for i in grown.tolist()], ends[grown] - 1)
    physical_ends = (units["commit_log_offset"] + units["size"]).tolist()
    for i, physical_end in zip(grown.tolist(), physical_ends, strict=True):
        queue = queues[i]
        if queue.max_offset == 0:
            queue.min_offset = int(first[i])
        if queue.ext is not None:
            queue.ext.find_files()
        queue.max_physical_offset = physical_end
        queue.max_offset = queue.synced_offset = int(ends[i])  # set last: a reader that sees it finds the unit


def read_units(files: FileLayer, queues: Sequence[ConsumeQueue], offsets: Offsets) -> Units:
    """Read the unit at a queue offset of each queue; zeros if the file is shorter."""
    if not queues:
        return np.empty(0, UNIT_TYPE)
    positions = offsets * UNIT_SIZE
    inside = positions % np.array([queue.file_size for queue in queues], np.int64)
    starts = (positions - inside).tolist()
    paths = [queue.file_path(start) for queue, start in zip(queues, starts, strict=True)]
    return files.read_runs(paths, inside, np.full(inside.size, UNIT_SIZE, np.int64)).view(UNIT_TYPE)


def search_units(
    files: FileLayer,
    queues: Sequence[ConsumeQueue],
    first: Offsets,
    last: Offsets,
    guess: Offsets,
    is_before: UnitTest,
) -> Offsets:
    """Search each queue's first queue offset in [first, last) whose unit does not pass `is_before`; `last` if all do.

    This is a binary search that begins at `guess` and right before it: two reads a queue prove a right guess.
    """
    first, last = first.copy(), last.copy()
    steps = 0
    while (open_ := np.flatnonzero(first < last)).size:
        low, high = first[open_], last[open_]
        middle = (low + high) // 2
        if steps < 2:
            middle = np.where(
                (low <= guess[open_] - steps) & (guess[open_] - steps < high), guess[open_] - steps, middle
            )
        before = is_before(read_units(files, [queues[i] for i in open_.tolist()], middle), open_)
        first[open_] = np.where(before, middle + 1, low)
        last[open_] = np.where(before, high, middle)
        steps += 1
    return first


def find_ends(
    files: FileLayer,
    queues: Sequence[ConsumeQueue],
    starts: Sequence[Sequence[int]],
    guess: Sequence[int],
    end_offset: int,
) -> tuple[Offsets, Offsets, npt.NDArray[np.bool_]]:
    """Find the end of each queue: before the first unit that is unused, or whose record ends after `end_offset`.

    A power cut may have kept a sector and lost the sector before it. Then the unit on the border has lost the first
    bytes of its commit log offset, so that the offset looks small: units after a hole would count. So the last unit
    must have a larger commit log offset than the unit before it; else the end is searched before the last unit.

    Args:
        files: The file layer.
        queues: The queues.
        starts: First byte of each file of each queue.
        guess: Queue offset at which each queue may end.
        end_offset: Commit log offset after the last record that counts. Filler units always count.

    Returns:
        int64[len(queues)] each: the queue offset of the end, and the commit log offset after the last unit's record
        (-1 if there is no unit, or the last unit is a filler); bool[len(queues)], whether the last unit is a filler, or
        a record's right after a filler.
    """
    first = np.array([begin[0] for begin in starts], np.int64) // UNIT_SIZE
    sizes = np.array([len(begin) * queue.file_size for queue, begin in zip(queues, starts, strict=True)], np.int64)
    last, guesses, ends = first + sizes // UNIT_SIZE, np.array(guess, np.int64), first.copy()
    after_gap = np.zeros(first.size, np.bool_)
    left = np.arange(first.size)
    while left.size:
        some = [queues[i] for i in left.tolist()]
        ends[left] = search_units(files, some, first[left], last[left], guesses[left], written_before(end_offset))
        torn, after_gap[left] = _are_torn(files, some, first[left], ends[left])
        left = left[torn]
        last[left] = ends[left] - 1
    filled = np.flatnonzero(ends > first)
    units = read_units(files, [queues[i] for i in filled.tolist()], ends[filled] - 1)
    physical = np.full(ends.size, -1, np.int64)
    physical[filled] = np.where(are_fillers(units), -1, units["commit_log_offset"] + units["size"])
    return ends, physical, after_gap | (ends > first) & (physical < 0)


def _are_torn(
    files: FileLayer, queues: Sequence[ConsumeQueue], first: Offsets, ends: Offsets
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """bool[queues] each: whether the last unit before each end cannot follow the one before it, or follows a filler."""
    torn, after_gap = np.zeros(ends.size, np.bool_), np.zeros(ends.size, np.bool_)
    several = np.flatnonzero(ends - first > 1)
    some = [queues[i] for i in several.tolist()]
    before, units = (read_units(files, some, ends[several] - back) for back in (2, 1))
    may_follow = are_fillers(before) | are_fillers(units) | (before["commit_log_offset"] < units["commit_log_offset"])
    torn[several] = ~((before["size"] > 0) & may_follow)
    after_gap[several] = are_fillers(before) & ~are_fillers(units)
    return torn, after_gap


def gap_begin(files: FileLayer, queue: ConsumeQueue) -> int:
    """Queue offset at which the fillers before a queue's last unit begin; -1 if no record's unit comes before them."""
    begin, end = queue.file_starts[0] // UNIT_SIZE, queue.max_offset - 1
    while end > begin:
        position = max(begin, end - _UNITS_OF_A_READ) * UNIT_SIZE
        start = (end - 1) * UNIT_SIZE // queue.file_size * queue.file_size
        position = max(position, start)
        with files.open(queue.file_path(start)) as file:
            data = file.read(position - start, end * UNIT_SIZE - position)
        units = np.frombuffer(data[: len(data) - len(data) % UNIT_SIZE], UNIT_TYPE)  # a file may have been cut
        records = np.flatnonzero(~are_fillers(units))
        if records.size:
            return position // UNIT_SIZE + int(records[-1]) + 1
        end = position // UNIT_SIZE
    return -1


def find_begins(files: FileLayer, queues: Sequence[ConsumeQueue], least_offsets: Offsets) -> Offsets:
    """Find the queue offset of each queue's first unit whose record lies at or after a commit log offset of the queue.

    Returns int64[len(queues)], and takes as many.
    """

    def is_gone(units: Units, numbers: Offsets) -> npt.NDArray[np.bool_]:
        return are_fillers(units) | (units["commit_log_offset"] < least_offsets[numbers])

    def is_record_gone(units: Units, numbers: Offsets) -> npt.NDArray[np.bool_]:
        return ~are_fillers(units) & (units["commit_log_offset"] < least_offsets[numbers])

    first = np.array([queue.min_offset for queue in queues], np.int64)
    last = np.array([queue.max_offset for queue in queues], np.int64)
    # A filler does not tell where the log begins: one search passes over it, the other one stays before it.
    begins = search_units(files, queues, first, last, first, is_gone)
    least = search_units(files, queues, first, last, first, is_record_gone)
    for number in np.flatnonzero(least < begins).tolist():
        first_offset, most = int(least[number]), int(begins[number])
        begins[number] = _first_record(files, queues[number], first_offset, most, int(least_offsets[number]))
    return begins


def _first_record(files: FileLayer, queue: ConsumeQueue, begin: int, end: int, least_offset: int) -> int:
    """Queue offset of the first unit in [begin, end) whose record lies at or after a commit log offset, or `end`."""
    position = begin * UNIT_SIZE
    while position < end * UNIT_SIZE:
        inside = position % queue.file_size
        size = min(end * UNIT_SIZE - position, queue.file_size - inside)
        with files.open(queue.file_path(position - inside)) as file:
            data = file.read(inside, size)
        units = np.frombuffer(data[: len(data) - len(data) % UNIT_SIZE], UNIT_TYPE)  # a file may have been cut
        found = np.flatnonzero(~are_fillers(units) & (units["commit_log_offset"] >= least_offset))
        if found.size:
            return position // UNIT_SIZE + int(found[0])
        position += size
    return end
