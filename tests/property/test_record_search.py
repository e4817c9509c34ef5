"""The search for whole records among damage, and the one pass over both, against the plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.hosts import encode_host
from reput.formats.java import INT64_MIN
from reput.formats.message import Message
from reput.formats.record import encode_blank, encode_record
from reput.kernels.records.record_scan import RecordScanner
from reput.kernels.records.record_search import GapFinder, find_proven, unknown_times
from tests.oracles import record_scan as twin

BASE, HOST = 4096, encode_host("127.0.0.1:10911")
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=8)
#: Position in the log, as a share, and the bytes that are written there.
SPOILS = st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=12)), max_size=5)


def spoiled(bodies: list[bytes], spoils: list[tuple[float, bytes]], tail: bytes) -> bytes:
    """Records at their offsets, some of their bytes written over, and what comes after them."""
    log = bytearray()
    for number, body in enumerate(bodies):
        log += encode_record(
            Message("orders", body), queue_id=0, queue_offset=number, commit_log_offset=BASE + len(log),
            store_timestamp=number % 3, store_host=HOST, born_timestamp=0, born_host=HOST,
        )  # fmt: skip
    for share, data in spoils:
        begin = int(share * (len(log) - len(data)))
        log[begin : begin + len(data)] = data
    return bytes(log) + tail


TAILS = st.sampled_from([b"", bytes(40), encode_blank(8), encode_blank(20) + bytes(12), b"\1" * 30])


@given(BODIES, SPOILS, TAILS, st.integers(0, 300), st.sampled_from([INT64_MIN, 1, 2]))
def test_the_search_finds_what_the_twin_finds(
    bodies: list[bytes], spoils: list[tuple[float, bytes]], tail: bytes, position: int, not_before: int
) -> None:
    data = spoiled(bodies, spoils, tail)
    position = min(position, len(data))
    found = find_proven(
        np.frombuffer(data, np.uint8), BASE, position, left=len(data), file_begin=BASE, not_before=not_before
    )
    assert found == twin.find_proven(data, BASE, position, BASE, not_before)


@given(BODIES, SPOILS, TAILS)
def test_one_pass_leaves_no_whole_record_in_damage_and_nothing_else_outside(
    bodies: list[bytes], spoils: list[tuple[float, bytes]], tail: bytes
) -> None:
    data = spoiled(bodies, spoils, tail)
    buffer = np.frombuffer(data, np.uint8)
    found = GapFinder().find(
        buffer, BASE, left=len(data), file_begin=BASE, times=unknown_times(is_file_begin=True), check_crc=True,
        is_failed=True,
    )  # fmt: skip
    columns = RecordScanner(100).scan(buffer[: found.end], BASE, left=len(data), check_crc=True, skips=found.positions)
    assert columns.first_fault() == columns.rows
    begins, stops = columns["position"].tolist(), (columns["position"] + columns["store_size"]).tolist()
    ranges = [*map(tuple, found.positions.tolist()), *zip(begins, stops, strict=True)]
    ends = [0, *(end for _, end in sorted(ranges))]
    assert [begin for begin, _ in sorted(ranges)] == ends[:-1]
    assert ends[-1] == found.end
    assert found.last == (begins[-1] if begins else -1)
    for begin, end in found.positions.tolist():
        is_blank = data[begin + 4 : begin + 8] == encode_blank(8)[4:]
        if not is_blank:
            assert twin.find_proven(data, BASE, begin + 1, BASE, INT64_MIN) == end


@pytest.mark.parametrize("kept", [1, 2, 3, 7])
def test_whole_records_between_damaged_ones_are_found(kept: int) -> None:
    data = bytearray(spoiled([b"body"] * 30, [], b""))
    size = len(data) // 30
    lost = [number for number in range(29) if number % (kept + 1) == kept]
    for number in lost:
        data[number * size + 4] ^= 1
    found = GapFinder().find(
        np.frombuffer(data, np.uint8), BASE, left=len(data), file_begin=BASE,
        times=unknown_times(is_file_begin=True), check_crc=True, is_failed=False,
    )  # fmt: skip
    assert found.positions.tolist() == [[number * size, (number + 1) * size] for number in lost]
