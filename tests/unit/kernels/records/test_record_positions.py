import struct

import numpy as np
import pytest

from reput.kernels.records.record_positions import record_positions


def record(size, offset):
    return struct.pack(">i", size) + bytes(24) + struct.pack(">q", offset) + bytes(size - 36)


@pytest.mark.parametrize(
    ("end", "count"),
    [(b"", 2), (bytes(90), 2), (bytes(91), 2), (struct.pack(">i", 90) + bytes(99), 2), (b"\xff" * 100, 2),
     (struct.pack(">i", 1 << 30) + bytes(24) + struct.pack(">q", 7) + bytes(55), 3)],
)  # fmt: skip
def test_positions_end_before_what_is_too_short_for_a_record(end, count):
    data = record(91, 5) + record(200, 1 << 40) + end
    positions, offsets = record_positions(np.frombuffer(data, np.uint8))
    assert positions.tolist() == [0, 91, 291][:count]
    assert offsets.tolist() == [5, 1 << 40, 7][:count]


def test_nothing_has_no_positions():
    positions, offsets = record_positions(np.empty(0, np.uint8))
    assert positions.size == offsets.size == 0
