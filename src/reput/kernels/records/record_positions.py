"""Records that follow each other -> where each of them begins, and its commit log offset."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.formats.record_layout import MIN_RECORD_SIZE, PHYSICAL_OFFSET
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_i32, load_i64

_LEAST, _PHYSICAL_OFFSET = MIN_RECORD_SIZE, PHYSICAL_OFFSET


def record_positions(buffer: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions of records, by their sizes alone: `read_records_at` checks the records.

    Args:
        buffer: uint8[size], records of any commit log offsets, as a pull brings them.

    Returns:
        int64[records], positions in the buffer; and int64[records], the offsets that the records name. They end before
        what is too short for a record.
    """
    most = buffer.size // MIN_RECORD_SIZE
    positions, offsets = np.empty(most, np.int64), np.empty(most, np.int64)
    count = _find_positions(buffer.ctypes.data, buffer.size, positions, offsets)
    return positions[:count], offsets[:count]


@kernel("int64(int64, int64, int64[::1], int64[::1])")
def _find_positions(buffer, size, positions, offsets):  # type: ignore[no-untyped-def]
    """Fill positions and offsets.

    Args:
        buffer, size: Address and number of bytes.
        positions, offsets: int64[size // _LEAST].

    Returns:
        int64, the number of records.
    """
    count, position = 0, 0
    while position + _LEAST <= size:
        record_size = load_i32(buffer + position)
        if record_size < _LEAST:
            break
        positions[count], offsets[count] = position, load_i64(buffer + position + _PHYSICAL_OFFSET)
        count += 1
        position += record_size
    return count
