"""Shares of operations, each of which is in one of them, whatever its turn in a life is; and cases that are drawn."""

from __future__ import annotations

from itertools import chain
from typing import cast

import pytest

from tests.support.shares import EVERYTHING, Share, in_shares, mark_what_is_not_drawn


def shares(count: int) -> list[Share]:
    """In turn those of `make test`, `make test-rest` and `make campaign`."""
    return [parameter.values[0] for parameter in in_shares(count).args[1]]


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_each_operation_is_in_one_share(count: int) -> None:
    found = [share.of(range(97)) for share in shares(count)]
    assert sorted(chain.from_iterable(found)) == [*range(97)] == EVERYTHING.of(range(97))
    assert found == [sorted(numbers) for numbers in found]
    whole = 97 / (2 * count)
    assert [round(len(numbers) / whole) for numbers in found] == [1, 2, 2 * count - 3]


@pytest.mark.parametrize("count", [2, 3, 4, 6])
@pytest.mark.parametrize("period", range(2, 9))
def test_what_comes_at_each_turn_of_a_life_is_in_every_share(count: int, period: int) -> None:
    for share in shares(count):
        assert {number % period for number in share.of(range(400))} == {*range(period)}


def test_a_share_of_nothing_is_an_error() -> None:
    quick, *_ = shares(6)
    with pytest.raises(AssertionError, match="none of 2 operations"):
        quick.of(range(2))


class Case:
    """What is known of a collected test."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, [pytest.mark.sampled(3).mark]
        for name in markers:
            self.add_marker(name)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.markers if mark.name == name), None)

    def add_marker(self, name: str) -> None:
        self.markers.append(getattr(pytest.mark, name).mark)


def drawn(cases: list[Case]) -> list[str]:
    mark_what_is_not_drawn(cast("list[pytest.Item]", cases))
    return [case.nodeid for case in cases if not case.get_closest_marker("slow")]


def test_one_of_a_few_cases_of_each_test_is_drawn_whatever_their_order() -> None:
    names = [f"test_a.py::test_{test}[{case}]" for test in "ab" for case in range(7)]
    found = drawn([Case(name) for name in names])
    assert sorted(drawn([Case(name) for test in "ab" for name in reversed(names) if f"_{test}[" in name])) == found
    assert [sum(f"_{test}[" in name for name in found) for test in "ab"] == [3, 3]


def test_a_case_is_drawn_although_others_are_slow_anyway() -> None:
    cases = [Case(f"test_a.py::test_a[{case}]", *(["slow"] if case else [])) for case in range(7)]
    assert drawn(cases) == ["test_a.py::test_a[0]"]
