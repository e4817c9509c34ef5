from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from reput.log.directory import LogFile
from reput.log.splits import Split, SplitResult, SplitStop, check_stitches, plan_splits

FILES = [LogFile("0", 0, 100), LogFile("100", 100, 100)]
SPLITS = plan_splits(FILES, 50)
END, BLANK, LOG_END = SplitStop.SPLIT_END, SplitStop.BLANK, SplitStop.LOG_END


def results(*found: tuple[int | None, int | None, SplitStop]) -> list[SplitResult]:
    return [SplitResult(split, *bounds) for split, bounds in zip(SPLITS, found, strict=True)]


@pytest.mark.parametrize("split_bytes", [1, 7, 33, 50, 99, 100, 1000])
def test_splits_cover_each_file_without_gap_or_overlap(split_bytes: int) -> None:
    splits = plan_splits(FILES, split_bytes)
    assert sum(split.end - split.begin for split in splits) == 200
    assert all(0 < split.end - split.begin <= split_bytes for split in splits)
    assert all(a.end == b.begin for a, b in pairwise(splits))
    assert [split.begin for split in splits if split.is_record_start] == [0, 100]
    assert all(split.file.start_offset <= split.begin < split.end <= split.file.end_offset for split in splits)


@pytest.mark.parametrize(
    "found",
    [
        [(0, 60, END), (60, 100, BLANK), (100, 150, END), (150, 170, LOG_END)],
        [(0, 100, BLANK), (None, None, END), (100, 200, BLANK), (None, None, END)],
        [(0, 30, LOG_END), (None, None, END), (100, 100, LOG_END), (None, None, END)],
        [(0, 0, LOG_END), (None, None, END), (100, 100, LOG_END), (None, None, END)],
    ],
)
def test_neighbours_that_meet_are_left_alone(found: list[tuple[int | None, int | None, SplitStop]]) -> None:
    assert check_stitches(results(*found)) == {}


@pytest.mark.parametrize(
    ("second", "again"),
    [
        ((55, 100, BLANK), Split(FILES[0], 60, 100, True)),  # a body forged a record at 55
        ((70, 100, BLANK), Split(FILES[0], 60, 100, True)),  # the record at 60 was not found
        ((None, None, END), Split(FILES[0], 60, 100, True)),
    ],
)
def test_a_split_that_began_elsewhere_is_read_again_from_where_its_neighbour_ended(
    second: tuple[int | None, int | None, SplitStop], again: Split
) -> None:
    assert check_stitches(results((0, 60, END), second, (100, 150, END), (150, 170, LOG_END))) == {1: again}


def test_a_first_split_that_begins_at_a_record_inside_a_file_is_trusted() -> None:
    first = SplitResult(Split(FILES[0], 20, 50, True), 20, 60, END)
    found = [first, *results((0, 0, END), (55, 100, BLANK), (100, 150, END), (150, 170, LOG_END))[1:]]
    assert check_stitches(found) == {1: Split(FILES[0], 60, 100, True)}


def test_records_forged_behind_the_blank_record_are_read_again_as_nothing() -> None:
    found = results((0, 100, BLANK), (60, 100, LOG_END), (100, 150, END), (150, 170, LOG_END))
    assert check_stitches(found) == {1: Split(FILES[0], 100, 100, True)}
    found[1] = SplitResult(check_stitches(found)[1], None, None, END)
    assert check_stitches(found) == {}


@pytest.mark.parametrize("later", [(1, (60, 80, LOG_END)), (2, (100, 150, END))])
def test_what_was_appended_after_a_split_met_the_end_of_the_log_is_given_up(
    later: tuple[int, tuple[int, int, SplitStop]],
) -> None:
    i, bounds = later
    found = results((0, 30, LOG_END), (None, None, END), (100, 100, LOG_END), (None, None, END))
    found[i] = SplitResult(SPLITS[i], *bounds)
    nothing = replace(SPLITS[i], begin=SPLITS[i].end, is_record_start=True)
    assert check_stitches(found) == {i: nothing}
    found[i] = SplitResult(nothing, None, None, END)
    assert check_stitches(found) == {}


def test_each_file_is_judged_by_itself() -> None:
    found = results((0, 60, END), (61, 100, BLANK), (100, 160, END), (150, 170, LOG_END))
    assert set(check_stitches(found)) == {1, 3}
