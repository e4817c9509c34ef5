"""Records of a pull -> segments, runs of neighbouring bytes in memory, and segments -> one buffer.

A segment is two native int64, address and size. Kernels of a microsecond that keep the interpreter lock.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.consume_queue import SIZE, UNIT_SIZE
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import copy, load_i32, load_i64, load_i64_native, store_i64_native

_UNIT = UNIT_SIZE
#: Bytes of a segment, and of a pair of commit log offset and size.
SEGMENT_SIZE = 16
_SEGMENT = SEGMENT_SIZE


@kernel("UniTuple(int64, 2)(int64, int64, boolean, int64, int64)", short=True)
def find_segments(units, count, are_pairs, log, segments):  # type: ignore[no-untyped-def]
    """Segments of the records that units locate; records that are neighbours make one.

    Args:
        units: Address of `count` units of a consume queue, or with `are_pairs` of pairs of commit log offset and size,
            native int64.
        log: Memory address at which commit log offset 0 would be.
        segments: Address of room for `count` segments.

    Returns:
        Number of segments, bytes of all.
    """
    found, total, end = 0, np.int64(0), np.int64(-1)
    for i in range(count):
        if are_pairs:
            offset, size = load_i64_native(units + _SEGMENT * i), load_i64_native(units + _SEGMENT * i + 8)
        else:
            offset, size = load_i64(units + _UNIT * i), np.int64(load_i32(units + _UNIT * i + SIZE))
        if offset == end:
            last = segments + _SEGMENT * (found - 1) + 8
            store_i64_native(last, load_i64_native(last) + size)
        else:
            store_i64_native(segments + _SEGMENT * found, log + offset)
            store_i64_native(segments + _SEGMENT * found + 8, size)
            found += 1
        end = offset + size
        total += size
    return found, total


@kernel("UniTuple(int64, 2)(int64, int64)", short=True)
def span_of_segments(segments, count):  # type: ignore[no-untyped-def]
    """The address where the first of `count` segments (at least one) begins, and the one where the last one ends."""
    begin, end = load_i64_native(segments), np.int64(0)
    for i in range(count):
        address = load_i64_native(segments + _SEGMENT * i)
        begin = min(begin, address)
        end = max(end, address + load_i64_native(segments + _SEGMENT * i + 8))
    return begin, end


@njit
def copy_segments(segments, count, target):  # type: ignore[no-untyped-def]
    """Copy `count` segments one after the other to the address `target`; returns the address after them."""
    for i in range(count):
        size = load_i64_native(segments + _SEGMENT * i + 8)
        copy(target, load_i64_native(segments + _SEGMENT * i), size)
        target += size
    return target


@kernel("void(int64, int64, int64)", short=True)
def gather_segments(segments, count, target):  # type: ignore[no-untyped-def]
    """`copy_segments` for Python."""
    copy_segments(segments, count, target)
