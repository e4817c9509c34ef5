"""Rest of a log file: all bytes that no row gives back and that are not zero, as pieces; and back."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import copy, load_i32_native, load_u8, load_u64_native

#: Limit of a piece, and zeros in a row that end one.
MOST_PIECE_BYTES, ENDING_ZEROS = 1 << 20, 4096


@njit
def _next_not_zero(log, position, end):  # type: ignore[no-untyped-def]
    p = position
    while p + 8 <= end and load_u64_native(log + p) == 0:
        p += 8
    while p < end and load_u8(log + p) == 0:
        p += 1
    return p


@njit
def _piece_end(log, position, end):  # type: ignore[no-untyped-def]
    """End of the piece that begins with the byte at a position, which is not zero."""
    limit = min(end, position + MOST_PIECE_BYTES)
    p = piece_end = position + 1
    while p < limit and p - piece_end < ENDING_ZEROS:
        if p + 8 <= limit and load_u64_native(log + p) == 0:
            p += 8
        else:
            if load_u8(log + p):
                piece_end = p + 1
            p += 1
    return piece_end


@kernel("int64(int64, int64, int64[::1], int64[::1], int64, int64[::1], int32[::1], int64[::1])")
def find_rest(log, size, begins, ends, most_bytes, positions, sizes, state):  # type: ignore[no-untyped-def]
    """Find the next pieces; returns their number, 0 at the end.

    Args:
        log: Address of the `size` bytes of the log file.
        begins, ends: int64[n], the records that rows give back, in order.
        most_bytes: Of all pieces of a call, but for one piece.
        positions, sizes: Take the pieces.
        state: int64[2], zeros for the first call: where the next one goes on.
    """
    gap, p = state[0], state[1]
    count, found = 0, np.int64(0)
    while gap <= begins.size:
        if gap > 0:
            p = max(p, ends[gap - 1])
        end = begins[gap] if gap < begins.size else size
        p = _next_not_zero(log, p, end) if p < end else p
        while p < end:
            piece_end = _piece_end(log, p, end)
            if count == positions.size or (count and found + piece_end - p > most_bytes):
                state[0], state[1] = gap, p
                return count
            positions[count], sizes[count] = p, piece_end - p
            count += 1
            found += piece_end - p
            p = _next_not_zero(log, piece_end, end)
        gap += 1
    state[0], state[1] = gap, p
    return count


@kernel("int64(int64, int64[::1], int64, int64, int64, int64)")
def restore_rest(offsets, commit_log_offsets, data, out, out_size, base_offset):  # type: ignore[no-untyped-def]
    """Write pieces at their places; returns the number of pieces, or that of the first that has no place.

    Args:
        offsets: Address of Arrow's int32[n + 1], of the pieces in the bytes at the address `data`.
        commit_log_offsets: int64[n], of the pieces.
        out: Address of the `out_size` bytes of the log file that begins at `base_offset`.
    """
    for piece in range(commit_log_offsets.size):
        begin = np.int64(load_i32_native(offsets + 4 * piece))
        size = np.int64(load_i32_native(offsets + 4 * piece + 4)) - begin
        offset = commit_log_offsets[piece]
        if offset < base_offset or offset - base_offset > out_size - size:
            return piece
        copy(out + (offset - base_offset), data + begin, size)
    return commit_log_offsets.size
