"""Shares of operations: each operation is in one of them, whatever its turn in a life is."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.support.shares import EVERYTHING, Share, in_shares


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
