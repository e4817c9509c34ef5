"""The claims of all queues in log order, against a sort of the units in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.kernels.queues.claimed_records import (
    RUN_COUNT,
    RUN_ENDED,
    RUN_FIRST,
    RUN_LAST,
    RUN_NEXT,
    RUN_QUEUE_OFFSET,
    RUN_TAKEN,
    Claims,
    gaps_before,
)

LOG_BEGIN, LOG_END = 1000, 9000
Unit = tuple[int, int]


def taken(queues: list[list[Unit]], room: int, ranges: list[tuple[int, int]]) -> list[list[tuple[int, ...]]]:
    """The claims (offset, size, queue, queue offset) of each range, with buffers of so many units."""
    claims = Claims(len(queues), max(end - begin for begin, end in ranges), room)
    read = [0] * len(queues)
    found = []
    for begin, end in ranges:
        claims.begin()
        while (queue := claims.take(LOG_BEGIN, LOG_END, begin, end)) is not None:
            units = queues[queue][read[queue] : read[queue] + room]
            run = claims.runs[queue]
            if not units:
                run[RUN_ENDED] = 1
                continue
            data = b"".join(encode_unit(offset, size, 0) for offset, size in units)
            claims.buffers[queue, : len(data)] = np.frombuffer(data, np.uint8)
            run[[RUN_COUNT, RUN_NEXT, RUN_QUEUE_OFFSET]] = len(units), 0, read[queue]
            read[queue] += len(units)
        assert not claims.is_full
        rows = [tuple(row) for row in claims.in_order(begin).T.tolist()]
        assert claims.runs[:, RUN_TAKEN].tolist() == [
            sum(row[2] == queue for row in rows) for queue in range(len(queues))
        ]
        found.append(rows)
    ends = [(row[0], row[2]) for rows in found for row in rows]
    for queue in range(len(queues)):
        offsets = [offset for offset, of in ends if of == queue]
        assert claims.runs[queue, [RUN_FIRST, RUN_LAST]].tolist() == (
            [offsets[0], offsets[-1]] if offsets else [-1, -1]
        )
    return found


def expected(queues: list[list[Unit]], ranges: list[tuple[int, int]]) -> list[list[tuple[int, ...]]]:
    """As `taken`, by the rules in words: units into the log, as long as they ascend, sorted."""
    rows = []
    for queue, units in enumerate(queues):
        last = -1
        for number, (offset, size) in enumerate(units):
            if size <= 0 or not LOG_BEGIN <= offset < LOG_END or (offset, size) == FILLER[:2]:
                continue
            if offset <= last:
                break
            last = offset
            rows.append((offset, size, queue, number))
    rows.sort(key=lambda row: row[0])  # of one place, the queue that comes first
    return [[row for row in rows if begin <= row[0] < end] for begin, end in ranges]


units = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 10_000), st.integers(-1, 300)),
        st.just((FILLER.commit_log_offset, FILLER.size)),
        st.just((0, 0)),
    ),
    max_size=12,
)
ascending = units.map(lambda some: sorted(some, key=lambda unit: unit[0]))


@given(st.lists(st.one_of(units, ascending), min_size=1, max_size=6), st.integers(1, 7), st.integers(200, 8000))
def test_the_claims_of_queues_are_those_of_a_sort(queues: list[list[Unit]], room: int, size: int) -> None:
    ranges = [(begin, min(begin + size, LOG_END)) for begin in range(LOG_BEGIN, LOG_END, size)]
    assert taken(queues, room, ranges) == expected(queues, ranges)


def test_records_side_by_side_are_in_order_and_two_in_one_place_are_seen() -> None:
    size = MIN_RECORD_SIZE
    offsets = range(LOG_BEGIN, LOG_BEGIN + 50 * size, size)
    queues = [[(offset, size) for offset in offsets[queue::3]] for queue in range(3)]
    (rows,) = taken(queues, 4, [(LOG_BEGIN, LOG_END)])
    assert [row[0] for row in rows] == list(offsets)
    queues[1].insert(1, (offsets[3], size))
    (rows,) = taken(queues, 4, [(LOG_BEGIN, LOG_END)])
    assert [row[:3:2] for row in rows[2:6]] == [(offsets[2], 2), (offsets[3], 0), (offsets[3], 1), (offsets[4], 1)]


def test_more_claims_than_a_range_has_room_for_are_told() -> None:
    claims = Claims(1, 10 * MIN_RECORD_SIZE, 100)
    data = b"".join(encode_unit(LOG_BEGIN + number, 1, 0) for number in range(100))
    claims.buffers[0] = np.frombuffer(data, np.uint8)
    claims.runs[0, RUN_COUNT] = len(data) // UNIT_SIZE
    claims.begin()
    claims.take(LOG_BEGIN, LOG_END, LOG_BEGIN, LOG_BEGIN + 10 * MIN_RECORD_SIZE)
    assert claims.is_full


def test_gaps_and_overlaps_lie_before_their_claims() -> None:
    def found(*claims: Unit) -> tuple[list[int], int | None]:
        offsets, sizes = np.array(claims, np.int64).reshape(-1, 2).T
        rows, wrong = gaps_before(offsets, sizes, 100)
        return rows.tolist(), wrong

    assert found() == ([], None)
    assert found((100, 10), (110, 10)) == ([], None)
    assert found((101, 9), (110, 10), (121, 5)) == ([0, 2], None)
    assert found((99, 10)) == ([], 0)
    assert found((100, 10), (109, 10)) == ([], 1)
