"""TimerLog: the files of the timer log, a unit for each message that waits for its time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptStoreError, StoreFormatError
from reput.files import File, FileLayer
from reput.formats.paths import TIMER_LOG, offset_to_file_name
from reput.formats.timer_log import (
    UNIT_SIZE,
    Magic,
    TimerUnit,
    decode_timer_unit,
    encode_timer_blank,
    has_room_for_unit,
    units_of_file,
)
from reput.log.directory import numbered_files
from reput.log.timer_units import UNITS

#: What a chain of units is read by: its units lie close together if messages wait for the same time.
_BLOCK_SIZE = 1 << 16
_UNITS_AT_ONCE = 20_000


class TimerLog:
    """Timer log of one store (RocketMQ's `TimerLog`); used by one thread at a time.

    Units are written by a system call: a full disk is an error and never a signal.

    Args:
        files: The file layer.
        root: The store's directory.
        file_size: Of each file, in bytes.

    Raises:
        StoreFormatError: The files have another size, or one is missing. Nothing was changed.

    Attributes:
        begin: Position of the first file's first byte.
        end: Position after the last unit; before `cut`, after the last file.
    """

    def __init__(self, files: FileLayer, root: str, file_size: int) -> None:
        self._files = files
        self._folder = f"{root}/{TIMER_LOG}"
        self._file_size = file_size
        found = numbered_files(files, self._folder) if files.exists(self._folder) else []
        for one in found:
            if one.size != file_size:
                raise StoreFormatError(
                    f"{one.path}: expected mappedFileSizeTimerLog={file_size} bytes, found {one.size}; give this size"
                )
        self._starts = [one.start_offset for one in found]
        self._open: dict[int, File] = {}
        self._unsynced: set[int] = set()
        self._block = (0, b"")
        self.begin = self._starts[0] if found else 0
        self.end = found[-1].end_offset if found else 0

    # -- reading

    def unit(self, position: int) -> TimerUnit:
        """The unit at a position; raises CorruptStoreError if there is none."""
        begin, block = self._block
        if not begin <= position <= begin + len(block) - UNIT_SIZE:
            start = position - position % self._file_size
            if start not in self._starts or not self.begin <= position <= self.end - UNIT_SIZE:
                raise CorruptStoreError(self._path(start), position - start, "expected a unit, found no such position")
            begin = max(start, position + UNIT_SIZE - _BLOCK_SIZE)
            block = self._file(start).read(begin - start, position + UNIT_SIZE - begin)
            self._block = begin, block
        try:
            return decode_timer_unit(block, position - begin)
        except CorruptStoreError as error:
            start = position - position % self._file_size
            raise CorruptStoreError(self._path(start), position - start, error.reason) from None

    def scan(self, begin: int, max_commit_log_offset: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """(position of the first, units) of successive units from a file's begin on, up to the first that is none.

        A unit whose message lies beyond the end of the commit log is none: this was cut.
        """
        for start in self._starts:
            if start + self._file_size <= begin:
                continue
            count = units_of_file(self._file_size)
            for first in range(0, count, _UNITS_AT_ONCE):
                size = min(_UNITS_AT_ONCE, count - first) * UNIT_SIZE
                units = np.frombuffer(self._file(start).read(first * UNIT_SIZE, size), UNITS)
                is_unit = (units["SIZE"] == UNIT_SIZE) & (units["MAGIC"] & ~0xF == 0) & (units["SIZEPY"] > 0)
                is_unit &= units["OFFSETPY"] + units["SIZEPY"] <= max_commit_log_offset
                whole = len(units) if is_unit.all() else int(is_unit.argmin())
                if whole:
                    yield start + first * UNIT_SIZE, units[:whole]
                if whole < len(units):
                    if not self._ends_at(start, (first + whole) * UNIT_SIZE):
                        return
                    break

    def start_of_file(self, position: int) -> int:
        """Start of the file that a position is in, or of the nearest one; 0 if there is none."""
        return max((start for start in self._starts if start <= position), default=self.begin)

    def _ends_at(self, start: int, position: int) -> bool:
        """Whether a blank ends a file at a position: RocketMQ writes one that has room for no unit, reput the same."""
        blank = encode_timer_blank(self._file_size - position)
        return self._file(start).read(position, len(blank)) == blank

    # -- writing

    def next_positions(self, count: int) -> npt.NDArray[np.int64]:
        """int64[count], where the next units go."""
        parts, end = [], self.end
        while count:
            left = self._file_size - end % self._file_size
            begin = end if has_room_for_unit(self._file_size, end % self._file_size) else end + left
            some = min(count, units_of_file(self._file_size - begin % self._file_size))
            parts.append(np.arange(begin, begin + some * UNIT_SIZE, UNIT_SIZE, dtype=np.int64))
            end, count = begin + some * UNIT_SIZE, count - some
        return np.concatenate(parts)

    def write(self, positions: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> None:
        """Write units (`UNITS`) at the positions that `next_positions` gave for them.

        Raises:
            StoreFullError, StoreError: The log ends where it ended before.
        """
        end = self.end
        breaks = (np.flatnonzero(np.diff(positions) != UNIT_SIZE) + 1).tolist()
        for first, last in pairwise([0, *breaks, len(units)]):
            position, data = int(positions[first]), units[first:last].tobytes()
            if position != end:  # in the next file
                self._write(end, encode_timer_blank(position - end))
            self._write(position, data)
            end = position + len(data)
        self._block = (0, b"")
        self.end = end

    def _write(self, position: int, data: bytes) -> None:
        start = position - position % self._file_size
        if start not in self._starts:
            self._add_file(start)
        self._unsynced.add(start)
        self._file(start).write(position - start, data)

    def _add_file(self, start: int) -> None:
        self._files.make_directories(self._folder)
        file = self._files.open(self._path(start), writable=True, create=True, size=self._file_size)
        file.sync()  # its length: a file of another length is taken for damage
        self._files.sync_directory(self._folder)
        self._open[start] = file
        self._starts.append(start)
        if len(self._starts) == 1:
            self.begin = start

    def cut(self, end: int) -> None:
        """End the log here, durably: later files go, and what follows in this one is zeroed."""
        for start in [one for one in reversed(self._starts) if one > end or (one == end and one != self.begin)]:
            self._remove(start)
        start = end - end % self._file_size
        if start in self._starts and self._file(start).zero_from(end - start):
            self._file(start).sync()
        self.end = end

    def _remove(self, start: int) -> None:
        if start in self._open:
            self._open.pop(start).close()
        self._unsynced.discard(start)
        self._files.unlink(self._path(start))
        self._starts.remove(start)

    def delete_before(self, min_commit_log_offset: int) -> None:
        """Delete files whose messages have all left the commit log (`deleteExpiredFileByOffsetForTimerLog`)."""
        last = (units_of_file(self._file_size) - 1) * UNIT_SIZE
        for start, following in list(pairwise(self._starts)):
            unit = self.unit(start + last)
            if unit.commit_log_offset >= min_commit_log_offset:
                break
            self._remove(start)
            self.begin = following

    # -- syncs

    def take_unsynced(self) -> list[str]:
        """Paths of the files that have units which are not synced yet; from now on they count as synced."""
        paths = [self._path(start) for start in sorted(self._unsynced)]
        self._unsynced.clear()
        return paths

    def close(self) -> None:
        """Close the files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, start: int) -> File:
        if start not in self._open:
            self._open[start] = self._files.open(self._path(start), writable=True)
        return self._open[start]

    def _path(self, start: int) -> str:
        return os.path.join(self._folder, offset_to_file_name(start))


def slot_times(units: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """int64[units], the time of each unit's slot in ms."""
    times: npt.NDArray[np.int64] = units["CURRWRITETIME"].astype(np.int64) + units["DELAYEDTIME"]
    return times


def counts(units: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """int64[units], what each unit adds to its slot's NUM."""
    return np.where(units["MAGIC"] & int(Magic.DELETE) != 0, -1, 1).astype(np.int64)
