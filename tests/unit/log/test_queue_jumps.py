"""A record's queue offset counts if the queue's next records go on, and no single wrong bit can outvote them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.log.queue_jumps import Jump, has_room, judge_jump


@given(expected=st.integers(0, 10_000), later=st.integers(1, 8), bit=st.integers(0, 40))
def test_a_wrong_bit_never_takes_a_queue_ahead(expected: int, later: int, bit: int) -> None:
    odd = expected ^ 1 << bit
    following = np.arange(expected + 1, expected + 1 + later)
    if odd > expected + later:  # else it costs at most the messages that it passes over, or is a repeat
        assert judge_jump(odd, expected, following) is Jump.WRONG


@given(expected=st.integers(0, 10_000), jump=st.integers(1, 1 << 40), later=st.integers(1, 8), lost=st.integers(0, 3))
def test_a_jump_that_the_next_records_share_counts(expected: int, jump: int, later: int, lost: int) -> None:
    first = expected + jump
    following = np.arange(first + 1, first + 1 + later)
    assert judge_jump(first, expected, following) is Jump.COUNTS
    assert judge_jump(first, -1, following) is Jump.COUNTS
    assert judge_jump(first, expected, following + lost) is Jump.COUNTS


def test_a_small_jump_is_wrong_where_the_next_records_go_on_before_it() -> None:
    assert judge_jump(54, 50, np.arange(51, 59)) is Jump.WRONG
    assert judge_jump(2098, 50, np.array([18, 52, 53])) is Jump.WRONG  # nor is the next one right
    assert judge_jump(2098, -1, np.array([51, 52])) is Jump.WRONG
    assert (
        judge_jump(2, -1, np.arange(1, 9)) is Jump.WRONG
    )  # the first one of all: the next ones are a run of their own
    assert judge_jump(53, -1, np.array([50, 54])) is Jump.COUNTS  # a repeat, as after a crash


def test_the_record_that_has_the_queue_offset_itself_says_that_the_odd_one_is_wrong() -> None:
    assert judge_jump(101, 100, np.arange(101, 109)) is Jump.WRONG
    assert judge_jump(102, 100, np.arange(101, 109)) is Jump.WRONG


def test_next_records_go_on_after_all_messages_of_a_record() -> None:
    counts = np.array([3, 1, 5, 2])
    assert judge_jump(356, 100, np.array([103, 104, 109]), counts) is Jump.WRONG
    assert judge_jump(356, 100, np.array([359, 360, 365]), counts) is Jump.COUNTS
    assert judge_jump(356, -1, np.array([103, 104, 109]), counts) is Jump.WRONG


def test_without_a_next_record_a_jump_is_bounded_by_the_log_before_it() -> None:
    assert judge_jump(2098, 50, np.empty(0, np.int64)) is Jump.UNKNOWN
    assert judge_jump(2098, 50, np.array([2098])) is Jump.UNKNOWN  # a repeat says nothing
    assert judge_jump(2098, -1, np.array([51])) is Jump.UNKNOWN  # one of the two is wrong
    assert has_room(60, 50, 1000, 2000)
    assert not has_room(2098, 50, 1000, 2000)
    assert not has_room(51, 50, 2000, 1000)
