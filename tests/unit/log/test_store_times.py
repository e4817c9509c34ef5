"""The last store time counts if its neighbour or the clock agrees."""

from __future__ import annotations

import pytest

from reput.log.store_times import DAY_MS, trusted_time

NOW = 1_800_000_000_000
CENTURY = 100 * 365 * DAY_MS


@pytest.mark.parametrize(
    ("times", "trusted"),
    [
        ([], 0),
        ([NOW], NOW),
        ([NOW - CENTURY, NOW], NOW),  # a log that was left for long
        ([NOW, NOW + CENTURY], NOW),
        ([NOW + CENTURY, NOW], NOW),
        ([NOW, 5], NOW),
        ([NOW + DAY_MS], NOW + DAY_MS),
        ([NOW + DAY_MS + 1], 0),
        ([NOW + CENTURY, NOW + CENTURY + 1], NOW + CENTURY + 1),  # the clock was wrong, now or then
    ],
)
def test_the_latest_time_counts_that_a_neighbour_or_the_clock_confirms(times: list[int], trusted: int) -> None:
    assert trusted_time(times, NOW) == trusted
