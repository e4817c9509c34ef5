"""The rest of a log file: pieces that have each byte that is not zero and that no row gives back, once; and back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.kernels.archive.rest_pieces import ENDING_ZEROS, MOST_PIECE_BYTES, find_rest, restore_rest

parts = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.sampled_from([bytes(1), bytes(9), bytes(ENDING_ZEROS - 1), bytes(ENDING_ZEROS), bytes(3 * ENDING_ZEROS)]),
)


def pieces_of(data: bytes, covered: list[tuple[int, int]], room: int, most_bytes: int) -> list[tuple[int, int]]:
    """(position, size) of each piece, by calls with so little room."""
    log = np.frombuffer(data, np.uint8)
    begins, ends = (np.array([one[side] for one in covered], np.int64) for side in (0, 1))
    positions, sizes, state = np.empty(room, np.int64), np.empty(room, np.int32), np.zeros(2, np.int64)
    found: list[tuple[int, int]] = []
    while count := find_rest(log.ctypes.data, log.size, begins, ends, most_bytes, positions, sizes, state):
        found += zip(positions[:count].tolist(), sizes[:count].tolist(), strict=True)
    return found


@given(st.lists(parts, min_size=1, max_size=8), st.lists(st.integers(0, 40_000), max_size=8), st.integers(1, 3))
def test_pieces_have_every_other_byte_that_is_not_zero_once(drawn: list[bytes], cuts: list[int], room: int) -> None:
    data = b"".join(drawn)
    borders = sorted({min(cut, len(data)) for cut in cuts})
    covered = list(zip(borders[::2], borders[1::2], strict=False))
    expected = bytearray(data)
    for begin, end in covered:
        expected[begin:end] = bytes(end - begin)
    found = pieces_of(data, covered, room, 50)
    assert found == sorted(found)
    assert all(data[begin] and data[begin + size - 1] for begin, size in found)
    assert all(bytes(ENDING_ZEROS) not in data[begin : begin + size] for begin, size in found)
    base = 8192
    offsets = np.cumsum([0, *(size for _, size in found)], dtype=np.int32)
    content = np.frombuffer(b"".join(data[begin : begin + size] for begin, size in found) or b" ", np.uint8)
    places = np.array([base + begin for begin, _ in found], np.int64)
    out = np.zeros(len(data), np.uint8)
    done = restore_rest(offsets.ctypes.data, places, content.ctypes.data, out.ctypes.data, out.size, base)
    assert (done, out.tobytes()) == (len(found), bytes(expected))


def test_a_piece_has_a_limit() -> None:
    data = b"x" * (2 * MOST_PIECE_BYTES + 7)
    assert [size for _, size in pieces_of(data, [], 8, 1 << 30)] == [MOST_PIECE_BYTES, MOST_PIECE_BYTES, 7]


def test_a_piece_that_has_no_place_is_told_and_not_written() -> None:
    content, offsets = np.frombuffer(b"abc", np.uint8), np.array([0, 3], np.int32)
    guarded = np.zeros(30, np.uint8)
    for place in (99, 108, -1, 1 << 62, -(1 << 62)):
        places = np.array([place], np.int64)
        done = restore_rest(offsets.ctypes.data, places, content.ctypes.data, guarded.ctypes.data + 10, 10, 100)
        assert done == 0
    assert not guarded.any()
