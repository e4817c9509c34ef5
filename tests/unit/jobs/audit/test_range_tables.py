"""Ranges as tables, against sets of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.jobs.audit.range_tables import RangeTable, adjacent, free_blocks, gaps, is_inside, union

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=8)


def numbers(ranges: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    return [number for begin, end in ranges.tolist() for number in range(begin, end)]


@given(RANGES, st.integers(0, 60), st.integers(0, 20), st.integers(1, 9), st.integers(1, 9))
def test_unions_gaps_and_blocks_have_the_numbers_of_sets(
    ranges: list[tuple[int, int]], begin: int, count: int, first_size: int, size: int
) -> None:
    table = union(np.array([(first, first + width) for first, width in ranges], np.int64).reshape(-1, 2))
    taken = {number for first, width in ranges for number in range(first, first + width)}
    assert numbers(table) == sorted(taken)
    assert (table[1:, 0] > table[:-1, 1]).all()
    some = np.arange(-1, 80)
    assert is_inside(table, some).tolist() == [number in taken for number in some.tolist()]
    free = [number for number in range(begin, begin + count) if number not in taken]
    assert numbers(gaps(table, begin, begin + count)) == free
    blocks = list(free_blocks(table, begin, begin + count, first_size, size))
    assert [block.begin + row for block in blocks for row in np.flatnonzero(block.is_free).tolist()] == free
    assert all(block.end - block.begin <= (size if number else first_size) for number, block in enumerate(blocks))


def test_adjacent_ranges_of_one_kind_are_joined() -> None:
    firsts, counts, kinds = np.array([[0, 2, 5, 6, 7], [2, 3, 1, 1, 1], [1, 1, 1, 2, 2]])
    starts, joined_firsts, joined_counts = adjacent(firsts, counts, kinds)
    assert (starts.tolist(), joined_firsts.tolist(), joined_counts.tolist()) == ([0, 3], [0, 6], [6, 2])


def test_a_table_is_shown_by_all_of_its_content() -> None:
    rows = np.zeros((5000, 2), np.int64)
    others = rows.copy()
    others[2500, 1] = 1
    assert repr(RangeTable(rows)) == repr(RangeTable(rows.copy())) != repr(RangeTable(others))
    assert RangeTable(rows) == RangeTable(rows.copy()) != RangeTable(others)
