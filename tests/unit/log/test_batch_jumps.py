"""Units of a batch consume queue count if their queue offsets ascend, and those of the next units go on from them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.batch_consume_queue import BatchUnit, place_holder
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE
from reput.log.batch_jumps import BatchUnits, judge_units

SIZE = 200


def made(*said: tuple[int, int], begin: int = 0) -> BatchUnits:
    """Units with these queue offsets and numbers of messages, of records of 200 bytes each."""
    units = [BatchUnit(begin + SIZE * n, SIZE, 0, 0, *one) for n, one in enumerate(said)]
    return np.array([tuple(unit) for unit in units], BATCH_UNIT_TYPE)


def unit(units: BatchUnits, number: int) -> BatchUnit:
    return BatchUnit._make(units[number].item())


def run(*counts: int, first: int = 0) -> list[tuple[int, int]]:
    """Queue offsets that follow each other."""
    return [(first + sum(counts[:n]), count) for n, count in enumerate(counts)]


@given(
    counts=st.lists(st.integers(1, 5), min_size=12, max_size=30),
    at=st.integers(0, 11),
    odd=st.integers(0, 1 << 40),
    begins=st.sampled_from([0, 7, 1 << 20]),
)
def test_one_odd_unit_costs_one(counts: list[int], at: int, odd: int, begins: int) -> None:
    said = run(*counts, first=begins)
    said[at] = odd, counts[at]
    units = made(*said, begin=1 << 40)
    assert np.count_nonzero(judge_units(units, None).counts) >= len(counts) - 1
    bases = units["base_offset"][judge_units(units, None).counts].tolist()
    assert bases == sorted(set(bases))


@given(counts=st.lists(st.integers(1, 5), min_size=3, max_size=12), gap=st.integers(1, 1 << 40))
def test_a_gap_that_the_next_units_share_counts(counts: list[int], gap: int) -> None:
    units = made(*run(1, 2), *run(*counts, first=3 + gap), begin=1 << 40)
    judged = judge_units(units, None)
    assert judged.counts.all()
    assert judged.jump is None


def test_a_number_of_messages_that_is_too_large_hides_no_later_unit() -> None:
    said = run(1, 3, 1, 1, 1, 1)
    said[1] = 1, 259
    assert judge_units(made(*said), None).counts.all()


def test_a_jump_at_the_end_is_taken_back_by_the_next_units() -> None:
    parts = made(*run(1, 3, 2)), made((30, 1), begin=1 << 20)  # there is room for 24 messages
    units = np.concatenate(parts, dtype=BATCH_UNIT_TYPE)
    first = judge_units(units, None)
    assert first.counts.all()
    assert first.jump is not None
    assert first.jump.before == unit(units, 2)
    later = made(*run(2, 1, first=7), begin=(1 << 20) + SIZE)
    second = judge_units(later, unit(units, 3), first.jump)
    assert (second.takes_back, second.counts.tolist(), second.jump) == (True, [True, True], None)
    later = made(*run(2, 1, first=31), begin=(1 << 20) + SIZE)
    second = judge_units(later, unit(units, 3), first.jump)
    assert (second.takes_back, second.counts.tolist(), second.jump) == (False, [True, True], None)


def test_without_room_in_the_log_a_jump_at_the_end_is_wrong() -> None:
    units = made(*run(1, 3, 2), (262, 1))
    judged = judge_units(units, None)
    assert (judged.counts.tolist(), judged.wrong.tolist()) == ([True] * 3 + [False], [False] * 3 + [True])


def test_units_known_later_are_witnesses() -> None:
    units = made(*run(1, 3, 2), (30, 1), *run(2, 1, first=7), begin=1 << 20)
    judged = judge_units(units[:4], None, following=units[4:])
    assert (judged.counts.tolist(), judged.jump) == ([True, True, True, False], None)


def test_a_queue_goes_on_after_its_place_holder() -> None:
    units = made(*run(1, 2, first=30), begin=1 << 20)
    assert judge_units(units, place_holder(30)).counts.all()
    assert not judge_units(units, place_holder(40)).counts.any()
