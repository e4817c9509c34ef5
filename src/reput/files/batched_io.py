"""Kernels that open, read, write or sync many files in one call, or read pages of maps, without the interpreter lock.

A store can have ten thousand queues, and beside a busy thread each of Python's system calls waits up to 5 ms for the
interpreter lock. The kernels open a file, do their work and close it, 4 to 5 us a file; no descriptor stays open.
"""

from __future__ import annotations

import errno
import mmap
import os

import numpy as np
from numba import njit

from reput.kernels.machine.c_functions import INT32, INT64, POINTER, c_function
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.mapped_pages import populate
from reput.kernels.machine.memory import load_i32_native, load_i64_native, load_u8

_EINTR, _EIO = errno.EINTR, errno.EIO
_SYNC_FILE_RANGE_WRITE = 2
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe does not wait then; positioned reads and writes of it fail
_WILL_NEED = mmap.MADV_WILLNEED
_FILE_WILL_NEED = os.POSIX_FADV_WILLNEED
#: Runs of a file that the disk is asked for before they are read: a usual disk serves as many at the same time.
_RUNS_AHEAD = 256
#: Pages that one `mincore` tells about, a byte each; one array for all threads, as its kernel keeps the lock.
_PAGES = 1024
#: Runs that are this many pages apart, or fewer, are looked at in one call, which costs as much as 200 pages.
_NEAR_PAGES = 64
_pages = np.empty(_PAGES, np.uint8)
PAGES_ADDRESS = _pages.ctypes.data
_READ_FLAGS, _WRITE_FLAGS = os.O_RDONLY | _FLAGS, os.O_WRONLY | _FLAGS

_open = c_function("open", INT32, [POINTER, INT32], variadic=True)
_close = c_function("close", INT32, [INT32])
_pwrite = c_function("pwrite", INT64, [INT32, POINTER, INT64, INT64])
_pread = c_function("pread", INT64, [INT32, POINTER, INT64, INT64])
_sync_file_range = c_function("sync_file_range", INT32, [INT32, INT64, INT64, INT32])
_fsync = c_function("fsync", INT32, [INT32])
_fdatasync = c_function("fdatasync", INT32, [INT32])
_mincore = c_function("mincore", INT32, [POINTER, INT64, POINTER])
_fadvise = c_function("posix_fadvise", INT32, [INT32, INT64, INT64, INT32])
_madvise = c_function("madvise", INT32, [POINTER, INT64, INT32])
_errno_location = c_function("__errno_location", POINTER, [])


@njit
def _errno():  # type: ignore[no-untyped-def]
    """C's `errno` of this thread."""
    return np.int64(load_i32_native(_errno_location()))


@njit
def _after(text):  # type: ignore[no-untyped-def]
    """The address after a text that ends with a zero byte."""
    while load_u8(text):
        text += 1
    return text + 1


@njit
def _opened(path, flags):  # type: ignore[no-untyped-def]
    """A descriptor, or a negative errno."""
    while True:
        descriptor = _open(path, flags)
        if descriptor >= 0:
            return descriptor
        code = _errno()
        if code != _EINTR:
            return -code


@njit
def _read(descriptor, position, size, target):  # type: ignore[no-untyped-def]
    """Read up to `size` bytes to the address `target`, fewer at the file's end; returns 0 or an errno."""
    read = np.int64(0)
    while read < size:
        count = _pread(descriptor, target + read, size - read, position + read)
        if count == 0:
            break
        if count > 0:
            read += count
        else:
            code = _errno()
            if code != _EINTR:
                return code
    return np.int64(0)


@kernel("UniTuple(int64, 2)(uint8[::1], int64[::1], int64[::1], int64[::1])")
def write_runs(paths, addresses, sizes, positions):  # type: ignore[no-untyped-def]
    """Write `sizes[i]` bytes from address `addresses[i]` to `positions[i]` of file i, for each i in order.

    `paths` are the files' paths, with a zero byte after each. Returns (number of runs, 0), or (index of
    the failed run, errno); the runs before it are written.
    """
    path = np.int64(paths.ctypes.data)
    for i in range(sizes.size):
        descriptor = _opened(path, _WRITE_FLAGS)
        if descriptor < 0:
            return i, -descriptor
        written = code = 0
        while written < sizes[i] and code == 0:
            count = _pwrite(descriptor, addresses[i] + written, sizes[i] - written, positions[i] + written)
            if count > 0:
                written += count
            else:
                code = _errno() if count < 0 else _EIO
                code = 0 if code == _EINTR else code
        _close(descriptor)
        if code:
            return i, code
        path = _after(path)
    return sizes.size, 0


@kernel("UniTuple(int64, 2)(uint8[::1], int64[::1], int64[::1], int64)")
def read_runs(paths, positions, sizes, target):  # type: ignore[no-untyped-def]
    """Read `sizes[i]` bytes from `positions[i]` of file i, for each i, one after the other to the address `target`.

    For bytes after the end of a file the target is left as it is. Paths and result as in `write_runs`.
    """
    path = np.int64(paths.ctypes.data)
    for i in range(positions.size):
        descriptor = _opened(path, _READ_FLAGS)
        if descriptor < 0:
            return i, -descriptor
        code = _read(descriptor, positions[i], sizes[i], target)
        _close(descriptor)
        if code:
            return i, code
        path = _after(path)
        target += sizes[i]
    return positions.size, 0


@kernel("UniTuple(int64, 2)(int64, int64[::1], int64[::1], int64)")
def read_runs_of_file(descriptor, positions, sizes, target):  # type: ignore[no-untyped-def]
    """As `read_runs`, of one open file.

    The disk is asked for runs before they are read, so that it seeks many at once: cold runs take half of the time.
    """
    asked = 0
    for i in range(positions.size):
        while asked < min(i + _RUNS_AHEAD, positions.size):
            _fadvise(descriptor, positions[asked], sizes[asked], _FILE_WILL_NEED)  # a hint: it may fail
            asked += 1
        code = _read(descriptor, positions[i], sizes[i], target)
        if code:
            return i, code
        target += sizes[i]
    return positions.size, 0


@kernel("void(uint8[::1], int64, boolean, int64[::1])")
def sync_paths(paths, count, only_data, result):  # type: ignore[no-untyped-def]
    """Sync the files (`only_data`: fdatasync) or folders of `count` paths; paths as in `write_runs`.

    `result` is int64[2], the same values as the result of `write_runs`: a signal that arrives after the call cannot
    hide an error there.

    The writing of all files is started before the first is waited for, so that the file system allocates blocks for all
    of them at once: ten thousand new files take a third of the time.
    """
    path = np.int64(paths.ctypes.data)
    for _ in range(count if only_data else 0):
        descriptor = _opened(path, _READ_FLAGS)
        if descriptor >= 0:  # a file that cannot be opened is reported below
            _sync_file_range(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)
            _close(descriptor)
        path = _after(path)
    path = np.int64(paths.ctypes.data)
    for i in range(count):
        result[0] = i
        descriptor = _opened(path, _READ_FLAGS)
        if descriptor < 0:
            result[1] = -descriptor
            return
        failed = _fdatasync(descriptor) if only_data else _fsync(descriptor)
        result[1] = _errno() if failed else 0
        _close(descriptor)
        if result[1]:
            return
        path = _after(path)
    result[0] = count


@kernel("boolean(int64, int64, int64, int64)", short=True)
def are_in_memory(runs, count, page_size, pages):  # type: ignore[no-untyped-def]
    """Whether all pages of mapped bytes are in the page cache (`mincore`); a microsecond, with the interpreter lock.

    The last page is asked for, too: of a file that was cut, pages after its end may be there, and nobody can read them.

    Args:
        runs: Address of `count` runs of one map, each two native int64, address and size.
        pages: `PAGES_ADDRESS`.
    """
    seen = seen_end = last = np.int64(0)
    for i in range(count):
        page, end = load_i64_native(runs + 16 * i), load_i64_native(runs + 16 * i) + load_i64_native(runs + 16 * i + 8)
        page, last = page - page % page_size, max(last, end)
        while page < end:
            if not seen <= page < seen_end:
                seen, seen_end, j = page, end, i + 1
                while j < count and seen_end <= load_i64_native(runs + 16 * j) <= seen_end + _NEAR_PAGES * page_size:
                    seen_end = load_i64_native(runs + 16 * j) + load_i64_native(runs + 16 * j + 8)
                    j += 1
                seen_end = min(seen_end + -seen_end % page_size, seen + _PAGES * page_size)
                if _mincore(seen, seen_end - seen, pages):
                    return False
            if load_u8(pages + (page - seen) // page_size) & 1 == 0:
                return False
            page += page_size
    return count == 0 or populate(last - 1, last, page_size) == 0


@kernel("UniTuple(int64, 2)(int64, int64, int64)")
def read_in(runs, count, page_size):  # type: ignore[no-untyped-def]
    """Read the pages of runs, as of `are_in_memory`, into memory, all at once, and wait for them.

    Returns (0, 0), or (address of the failed run, errno). Linux before 5.14 begins to read, and does not wait.
    """
    for i in range(count):
        begin = load_i64_native(runs + 16 * i)
        inside = begin % page_size
        _madvise(begin - inside, load_i64_native(runs + 16 * i + 8) + inside, _WILL_NEED)
    for i in range(count):
        begin = load_i64_native(runs + 16 * i)
        code = populate(begin, begin + load_i64_native(runs + 16 * i + 8), page_size)
        if code:
            return begin, code
    return np.int64(0), np.int64(0)
