"""Pages of a mapped file, asked for before they are read: a page that the disk cannot read is a result, and no SIGBUS.

A load from a page that cannot be read ends the process: of a bad sector, of a file that another program has cut, of a
tmpfs without room. Linux reads pages when it is asked to (`MADV_POPULATE_READ`), and says so if it cannot. Before
Linux 5.14 it does not know the request: then nothing is asked for.

Scans ask for the bytes ahead of them, each time (`asked_until`). Readers of single places ask once for each part of a
map (`is_readable`), so that a pull costs no system call: the map's marks say which parts were asked for.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

import numpy as np
from numba import njit

from reput.formats.record_layout import MAGIC_CODE, MIN_RECORD_SIZE, MagicCode
from reput.kernels.machine.c_functions import INT32, INT64, POINTER, c_function
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_i32, load_i32_native, load_i64_native, load_u8, store_u8

_V1, _V2 = int(MagicCode.MESSAGE_V1), int(MagicCode.MESSAGE_V2)
_EINTR, _EAGAIN, _EINVAL = errno.EINTR, errno.EAGAIN, errno.EINVAL
#: `MADV_WILLNEED`, and `MADV_POPULATE_READ`, since Linux 5.14.
_WILL_NEED, _POPULATE_READ = 3, 22
#: A map has a mark for each part of 128 KiB, as much as Linux reads ahead.
PART_SHIFT = 17
PART_SIZE = 1 << PART_SHIFT
#: Bytes that a scan asks for at once. After a log's end these are zeros that take memory.
_SCAN_STEP = 1 << 20
#: Bytes of a record that tell its size and more; bytes in which kernels look for the ends of texts at once.
_HEAD, BLOCK = 128, 64

_madvise = c_function("madvise", INT32, [POINTER, INT64, INT32])
_errno_location = c_function("__errno_location", POINTER, [])


class MapFields(NamedTuple):
    """A map, for kernels: native int64, in this order."""

    address: int
    size: int
    #: Address of the marks: for each part a byte that is not 0 if the part was asked for.
    marks: int
    page_size: int


@njit
def populate(begin, end, page_size):  # type: ignore[no-untyped-def]
    """Read the pages of the addresses [begin, end) in, and wait for them; 0, or an errno."""
    begin -= begin % page_size
    while _madvise(begin, end - begin, _POPULATE_READ):
        code = np.int64(load_i32_native(_errno_location()))
        if code == _EINVAL:  # an older system
            return np.int64(0)
        if code != _EINTR and code != _EAGAIN:
            return code
    return np.int64(0)


@njit
def asked_until(limit, end, page_size):  # type: ignore[no-untyped-def]
    """The address up to which a scan may read that has read up to `limit` of [.., end); 0 if no page can be read."""
    step = min(end, limit + _SCAN_STEP)
    if populate(limit, step, page_size) == 0:
        return step
    page_end = min(end, limit - limit % page_size + page_size)
    return page_end if populate(limit, page_end, page_size) == 0 else np.int64(0)


@njit
def _ask(fields, part, begin, end):  # type: ignore[no-untyped-def]
    """Ask for a part of a map, if that fails for the positions [begin, end) in it; whether these can be read."""
    map_begin, page_size = load_i64_native(fields), load_i64_native(fields + 24)
    first, last = part << PART_SHIFT, min((part + 1) << PART_SHIFT, load_i64_native(fields + 8))
    if last <= first:
        return False
    _madvise(map_begin + first, last - first, _WILL_NEED)  # all at once: a map of random reads goes page by page
    if populate(map_begin + first, map_begin + last, page_size) == 0:
        store_u8(load_i64_native(fields + 16) + part, np.uint8(1))
        return True
    return populate(map_begin + max(first, begin), map_begin + min(last, end), page_size) == 0


@njit
def is_readable(fields, begin, end):  # type: ignore[no-untyped-def]
    """Whether positions [begin, end) of a map can be read; each part is asked for once.

    `fields`: address of `MapFields`; 0 for plain memory. Positions after the map's end cannot be read.
    """
    if fields == 0:
        return True
    if begin < 0 or end > load_i64_native(fields + 8):
        return False
    marks = load_i64_native(fields + 16)
    for part in range(begin >> PART_SHIFT, ((end - 1) >> PART_SHIFT) + 1):
        if load_u8(marks + part) == 0 and not _ask(fields, part, begin, end):
            return False
    return True


@njit
def is_record_readable(fields, position, left):  # type: ignore[no-untyped-def]
    """Whether the record at a position of a map can be read, whose file has `left` bytes from there on."""
    if not is_readable(fields, position, position + min(left, _HEAD)):
        return False
    record = load_i64_native(fields) + position
    if left < MIN_RECORD_SIZE or (load_i32(record + MAGIC_CODE) != _V1 and load_i32(record + MAGIC_CODE) != _V2):
        return True  # its head alone is looked at
    size = np.int64(load_i32(record))
    return size > left or is_readable(fields, position, position + min(left, size + BLOCK))


@kernel("int64(int64, int64, int64)")
def first_unreadable(fields, begin, end):  # type: ignore[no-untyped-def]
    """First position of [begin, end) of a map that cannot be read; -1 if all can. Parts are asked for once."""
    end = min(end, load_i64_native(fields + 8))
    if begin >= end or is_readable(fields, begin, end):
        return np.int64(-1)
    return _first_bad(load_i64_native(fields), begin, end, load_i64_native(fields + 24))


@kernel("int64(int64, int64, int64)")
def first_unreadable_now(fields, begin, end):  # type: ignore[no-untyped-def]
    """As `first_unreadable`; all is asked for, whatever was asked for before."""
    map_begin, page_size = load_i64_native(fields), load_i64_native(fields + 24)
    end = min(end, load_i64_native(fields + 8))
    if begin >= end or populate(map_begin + begin, map_begin + end, page_size) == 0:
        return np.int64(-1)
    return _first_bad(map_begin, begin, end, page_size)


@njit
def _first_bad(map_begin, begin, end, page_size):  # type: ignore[no-untyped-def]
    while begin < end:
        page_end = min(end, begin - begin % page_size + page_size)
        if populate(map_begin + begin, map_begin + page_end, page_size):
            return begin
        begin = page_end
    return np.int64(-1)


@kernel("int64(int64, int64, int64)", short=True)
def first_unasked(fields, runs, count):  # type: ignore[no-untyped-def]
    """The first of `count` runs of a map (two native int64, address and size) that was not asked for; -1 without one.

    A block after a run counts as well.
    """
    map_begin, size, marks = load_i64_native(fields), load_i64_native(fields + 8), load_i64_native(fields + 16)
    for i in range(count):
        begin = load_i64_native(runs + 16 * i) - map_begin
        end = min(begin + load_i64_native(runs + 16 * i + 8) + BLOCK, size)
        for part in range(begin >> PART_SHIFT, ((end - 1) >> PART_SHIFT) + 1):
            if load_u8(marks + part) == 0:
                return i
    return -1
