"""Kernels of segments beside plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.consume_queue import encode_unit
from reput.kernel_loader import load_kernels
from reput.kernels.records import pulled_records

LOG = np.random.default_rng(7).integers(0, 256, 4000, dtype=np.uint8)
RECORDS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 90)), min_size=1, max_size=20)


@given(RECORDS, st.booleans(), st.integers(0, 1 << 40))
def test_records_are_gathered_from_segments_of_neighbours(
    records: list[tuple[int, int]], are_pairs: bool, base: int
) -> None:
    load_kernels()
    offset, placed = base, []
    for gap, size in records:
        offset += gap if gap > 50 else 0
        placed.append((offset, size))
        offset += size
    units = (
        np.array(placed, np.int64)
        if are_pairs
        else np.frombuffer(b"".join(encode_unit(offset, size, 7) for offset, size in placed), np.uint8)
    )
    found = np.zeros((len(placed), 2), np.int64)
    count, total = pulled_records.find_segments(
        units.ctypes.data, len(placed), are_pairs, LOG.ctypes.data - base, found.ctypes.data
    )
    expected: list[list[int]] = []
    for begin, size in placed:
        if expected and sum(expected[-1]) == begin:
            expected[-1][1] += size
        else:
            expected.append([begin, size])
    span = pulled_records.span_of_segments(found.ctypes.data, count)
    assert span == (min(found[:count, 0]), max(found[:count].sum(axis=1)))
    found[:count, 0] += base - LOG.ctypes.data
    assert found[:count].tolist() == expected
    found[:count, 0] -= base - LOG.ctypes.data
    target = np.zeros(total + 1, np.uint8)
    pulled_records.gather_segments(found.ctypes.data, count, target.ctypes.data)
    joined = b"".join(LOG[begin - base : begin - base + size].tobytes() for begin, size in placed)
    assert target.tobytes() == joined + b"\0"
