"""Search for whole records among bytes that may be damaged: from a place on, or all of a buffer in one pass.

Bytes prove a record by its magic code, its lengths and its own offset (`read_record`), and further by the CRC of its
body, or by the records that follow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.hosts import HOST_GROWTH
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.formats.record_layout import (
    BLANK_SIZE,
    BODY_LENGTH,
    MAGIC_CODE,
    PHYSICAL_OFFSET,
    SYS_FLAG,
    MagicCode,
    SysFlag,
)
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.mapped_pages import asked_until
from reput.kernels.machine.memory import find_byte_mask, load_i16, load_i32, load_i64, load_u8, trailing_zeros
from reput.kernels.records.columns import (
    N_BODY_CRC,
    N_BODY_POSITION,
    N_BODY_SIZE,
    N_SIZE,
    NARROW,
    W_STORE_TIMESTAMP,
    WIDE,
    ScanStop,
)
from reput.kernels.records.record_header import READ, read_record, stop_at

_END, _STOP_BLANK, _BAD_MAGIC = int(ScanStop.END_OF_BUFFER), int(ScanStop.BLANK), int(ScanStop.BAD_MAGIC)
_V2 = int(MagicCode.MESSAGE_V2)
_BORN_V6, _STORE_V6 = SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6
_FIRST_MAGIC_BYTE = np.uint8(MagicCode.MESSAGE_V1 >> 24 & 0xFF)
_OWN_OFFSET_END = PHYSICAL_OFFSET + 8
_RESYNC_RECORDS = 3
#: Result of `find_record` if a page of a map cannot be read.
UNREADABLE = -2
#: Damages of one pass. A window of 4 MiB has room for more of the smallest records: these take further passes.
_MOST_GAPS = 16_384
_MATRICES = "int64[:, ::1], int32[:, ::1]"


@njit
def _read(base, p, end, file_end, base_offset, wide, narrow):  # type: ignore[no-untyped-def]
    return stop_at(read_record(base, p, end, base_offset + (p - base), wide, narrow, 0), p, file_end)


@njit
def _are_records(  # type: ignore[no-untyped-def]
    base, position, limit, end, page_size, file_end, base_offset, records, wide, narrow
):
    """Whether `records` whole records follow each other from here on; fewer suffice before a blank record, zero bytes
    or the buffer's end. `limit`: up to where the pages of a map were asked for; else `end`.
    """
    p, i = position, 0
    while i < records:
        stop = _read(base, p, limit, file_end, base_offset, wide, narrow)
        if stop == _END and 0 < limit < end:
            if limit - p >= _OWN_OFFSET_END and load_i64(p + PHYSICAL_OFFSET) != base_offset + (p - base):
                return False  # a forged size asks for no pages
            limit = asked_until(limit, end, page_size)
            continue
        if stop != READ:
            unwritten = stop == _BAD_MAGIC and load_i64(p) == 0
            return i > 0 and (stop in (_END, _STOP_BLANK) or unwritten)
        p += np.int64(narrow[N_SIZE, 0])
        i += 1
    return True


@njit
def _body_fits(base, narrow):  # type: ignore[no-untyped-def]
    size = np.int64(narrow[N_BODY_SIZE, 0])
    return size == 0 or body_crc(base + narrow[N_BODY_POSITION, 0], size) == narrow[N_BODY_CRC, 0]


@njit
def _is_proven(base, p, end, file_end, base_offset, file_begin, not_before, wide, narrow):  # type: ignore[no-untyped-def]
    """Whether a record proves itself, whatever lies around it: `find_proven`."""
    if _read(base, p, end, file_end, base_offset, wide, narrow) != READ:
        return False
    if wide[W_STORE_TIMESTAMP, 0] < not_before:
        return False
    if narrow[N_BODY_SIZE, 0] != 0 or base_offset + (p - base) == file_begin:
        return _body_fits(base, narrow)
    return _are_records(base, p, end, end, 0, file_end, base_offset, _RESYNC_RECORDS, wide, narrow)


@njit
def _next_proven(  # type: ignore[no-untyped-def]
    base, position, end, file_end, base_offset, file_begin, not_before, wide, narrow
):
    """Address of the first record from an address on that proves itself, or -1."""
    block = position + MAGIC_CODE
    while block < end:
        mask = find_byte_mask(block, end, end, _FIRST_MAGIC_BYTE)
        while mask:
            p = block + trailing_zeros(mask) - MAGIC_CODE
            mask &= mask - np.uint64(1)
            if _is_proven(base, p, end, file_end, base_offset, file_begin, not_before, wide, narrow):
                return p
        block += 64
    return -1


@kernel(f"int64(int64, int64, int64, int64, int64, int64, int64, {_MATRICES})")
def _find_record(  # type: ignore[no-untyped-def]
    base, size, left, page_size, base_offset, position, records, wide, narrow
):
    end, block = base + size, base + position + MAGIC_CODE
    limit = base + position if page_size else end  # of a map, up to where its pages were asked for
    while block < end:
        while limit < min(block + 64, end):
            limit = asked_until(limit, end, page_size)
            if limit == 0:
                return UNREADABLE
        mask = find_byte_mask(block, end, limit, _FIRST_MAGIC_BYTE)
        while mask:
            p = block + trailing_zeros(mask) - MAGIC_CODE
            mask &= mask - np.uint64(1)
            if _are_records(base, p, limit, end, page_size, base + left, base_offset, records, wide, narrow):
                return p - base
        block += 64
    return -1


@kernel(f"int64(int64, int64, int64, int64, int64, int64, int64, {_MATRICES})")
def _find_proven(  # type: ignore[no-untyped-def]
    base, size, left, base_offset, position, file_begin, not_before, wide, narrow
):
    p = _next_proven(base, base + position, base + size, base + left, base_offset, file_begin, not_before, wide, narrow)
    return p - base if p >= 0 else -1


@njit
def _contradicts_itself(p, end, offset):  # type: ignore[no-untyped-def]
    """Whether the part before `end` of a record that goes on after it shows that it is none."""
    if end - p < BODY_LENGTH + 4 + 2 * HOST_GROWTH:
        return False
    size = np.int64(load_i32(p))
    sys_flag = load_i32(p + SYS_FLAG)
    growth = (HOST_GROWTH if sys_flag & _BORN_V6 else 0) + (HOST_GROWTH if sys_flag & _STORE_V6 else 0)
    body_size = np.int64(load_i32(p + BODY_LENGTH + growth))
    length_size = 2 if load_i32(p + MAGIC_CODE) == _V2 else 1
    topic = p + BODY_LENGTH + growth + 4 + body_size + length_size
    if load_i64(p + PHYSICAL_OFFSET) != offset or body_size < 0 or topic + 2 > p + size:
        return True
    if topic > end:
        return False
    topic_size = np.int64(load_i16(topic - 2)) if length_size == 2 else np.int64(np.int8(load_u8(topic - 1)))
    properties = topic + topic_size + 2
    if topic_size < 0 or properties > p + size:
        return True
    return properties <= end and properties + np.int64(load_i16(properties - 2)) != p + size


@kernel(
    f"void(int64, int64, int64, int64, int64, int64, boolean, int64, int64, boolean, int64[:, ::1], {_MATRICES}, "
    "int64[::1])"
)
def _find_gaps(  # type: ignore[no-untyped-def]
    base, size, left, base_offset, position, file_begin, is_failed, lesser, newest, check_crc, gaps, wide, narrow,
    result,
):  # fmt: skip
    end, file_end, p, count, last, stop = base + size, base + left, base + position, 0, -1, READ
    while count < gaps.shape[0]:
        stop = _read(base, p, end, file_end, base_offset, wide, narrow)
        if stop == READ and (not check_crc or _body_fits(base, narrow)):
            last, time = p - base, wide[W_STORE_TIMESTAMP, 0]
            lesser, newest = min(newest, time), time
            p += np.int64(narrow[N_SIZE, 0])
            continue
        if stop == _END and not is_failed and not _contradicts_itself(p, end, base_offset + (p - base)):
            break
        is_failed = False
        not_before = lesser if stop == _STOP_BLANK else INT64_MIN
        found = _next_proven(base, p + 1, end, file_end, base_offset, file_begin, not_before, wide, narrow)
        if found < 0:
            break
        gaps[count, 0], gaps[count, 1] = p - base, found - base
        count, p = count + 1, found
    result[0], result[1], result[2], result[3], result[4], result[5] = count, p - base, last, stop, lesser, newest


def find_record(
    buffer: npt.NDArray[np.uint8],
    base_offset: int,
    position: int = 0,
    *,
    left: int | None = None,
    records: int = _RESYNC_RECORDS,
    page_size: int = 0,
) -> int:
    """Position of the first record at or after `position` that it and those after it prove, or -1; or UNREADABLE.

    Its PHYSICALOFFSET must be the offset where it lies, its lengths must add up, and so must the next records',
    `records` in all, unless the buffer, the file or the written part ends before. Content can still forge this: readers
    of splits compare neighbours. `left` and `page_size` as in `RecordScanner.scan`.
    """
    left = buffer.size if left is None else left
    return int(_find_record(buffer.ctypes.data, buffer.size, left, page_size, base_offset, position, records, *_row()))


def find_proven(
    buffer: npt.NDArray[np.uint8],
    base_offset: int,
    position: int = 0,
    *,
    left: int,
    file_begin: int,
    not_before: int = INT64_MIN,
) -> int:
    """Position of the first record at or after `position` that proves itself, body CRC included, or -1.

    A record with a body needs no neighbours: of damage in every second record, the others are whole. One without needs
    two that follow it, as in `find_record`, or the begin of its file.

    Args:
        left: as in `RecordScanner.scan`.
        file_begin: commit log offset of the file's first byte.
        not_before: records with an earlier store time (ms) are passed over.
    """
    return int(
        _find_proven(buffer.ctypes.data, buffer.size, left, base_offset, position, file_begin, not_before, *_row())
    )


class Gaps(NamedTuple):
    """Damage of a buffer, between records that prove themselves.

    Attributes:
        positions: int64[n, 2], where each damage begins, in place of a record, and where the next record begins.
        end: position up to which the buffer holds records and this damage alone.
        last: position of the last record before `end`; -1 without one.
        stop: why the pass ended at `end`: `READ` if there is more damage than `positions` have room for.
        times: store times (ms) that tell whether a blank record at `end` hides others.
    """

    positions: npt.NDArray[np.int64]
    end: int
    last: int
    stop: int
    times: tuple[int, int]

    @property
    def begin(self) -> int:
        """Position of the first damage; `end` without one."""
        return int(self.positions[0, 0]) if len(self.positions) else self.end

    def is_cut(self, size: int) -> bool:
        """Whether at `end` a record may begin that goes on after the end of the `size` bytes."""
        return self.stop == _END and size - self.end >= BLANK_SIZE

    def followed_by(self, later: Gaps) -> Gaps:
        """The damage of this pass, and of one that went on at its end."""
        last = later.last if later.last >= 0 else self.last
        return later._replace(positions=np.concatenate([self.positions, later.positions]), last=last)


class GapFinder:
    """Finder of the damage of buffers, in one pass each; reuses its memory from pass to pass."""

    def __init__(self) -> None:
        self._gaps, self._result = np.empty((_MOST_GAPS, 2), np.int64), np.empty(6, np.int64)
        self._row = _row()

    def find(
        self,
        buffer: npt.NDArray[np.uint8],
        base_offset: int,
        position: int = 0,
        *,
        left: int,
        file_begin: int,
        times: tuple[int, int],
        check_crc: bool,
        is_failed: bool,
    ) -> Gaps:
        """Find the damage of a buffer, from a position on where a record should begin.

        A blank record is damage if a whole record follows it that is as old as the last two before it: else the file
        ends there. Damage ends at a record of `find_proven`; damage that goes on to the buffer's end is left out.

        Args:
            left, file_begin: as in `find_proven`.
            times: the least store time (ms) of the last two records before the position, and that of the last one.
            check_crc: whether a body must agree with BODYCRC.
            is_failed: whether a record at the position that goes on after the buffer's end is known to be none.
        """
        _find_gaps(
            buffer.ctypes.data, buffer.size, left, base_offset, position, file_begin, is_failed, *times, check_crc,
            self._gaps, *self._row, self._result,
        )  # fmt: skip
        count, end, last, stop, lesser, newest = self._result.tolist()
        return Gaps(self._gaps[:count].copy(), end, last, stop, (lesser, newest))


def unknown_times(*, is_file_begin: bool) -> tuple[int, int]:
    """`times` of `GapFinder.find` before any record: a blank record hides others only if it begins its file."""
    return INT64_MIN if is_file_begin else INT64_MAX, INT64_MAX


def _row() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Columns of one record."""
    return np.empty((len(WIDE), 1), np.int64), np.empty((len(NARROW), 1), np.int32)
