"""A test that walks a space takes a part of it in `make test`, and more in `make test-rest` and `make campaign`."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import pytest

Operation = TypeVar("Operation")
#: Markers of what `make test` does not have anyway.
LATER = ("slow", "campaign")


class Share(NamedTuple):
    """Some of the operations of a life.

    They are drawn, the same ones in each run, as a life repeats itself: each n-th operation would be a sync always, or
    never. And they are drawn among neighbours, so that no stretch of a life is left out.

    Attributes:
        neighbours: Of so many operations in a row are drawn ...
        drawn: ... those at these places of an order by chance, which all shares have in common.
    """

    neighbours: int
    drawn: range

    def of(self, operations: Sequence[Operation]) -> list[Operation]:
        """Operations of this share, in their order."""
        chance = random.Random(self.neighbours)
        found: list[Operation] = []
        for begin in range(0, len(operations), self.neighbours):
            order = chance.sample(range(self.neighbours), self.neighbours)
            places = sorted(begin + order[place] for place in self.drawn)
            found += [operations[place] for place in places if place < len(operations)]
        assert found, f"none of {len(operations)} operations is in this share"
        return found


#: For a test that has no shares.
EVERYTHING = Share(1, range(1))


def in_shares(count: int) -> pytest.MarkDecorator:
    """Give a test the argument `share`, some of the operations: `for number in share.of(range(last))`.

    Of `count` shares half of one is taken in `make test`, one more in `make test-rest`, and the others, which have more
    of the same kinds, in `make campaign`.
    """
    quick, slow, rest = (Share(2 * count, range(*ends)) for ends in ((1,), (1, 3), (3, 2 * count)))
    return pytest.mark.parametrize(
        "share",
        [
            pytest.param(quick, id="few"),
            pytest.param(slow, id="some", marks=pytest.mark.slow),
            pytest.param(rest, id="others", marks=pytest.mark.campaign),
        ],
    )


def sampled(of: int) -> pytest.MarkDecorator:
    """Draw one of `of` cases of a parametrised test for `make test`; all others are slow."""
    return pytest.mark.sampled(of)


def mark_what_is_not_drawn(items: Iterable[pytest.Item]) -> None:
    """Make the cases of sampled tests slow that are not drawn.

    What is drawn follows from the names of the cases: it is the same in every run, on every machine, and a new case
    puts at most one other out.
    """
    walks = [
        item for item in items if item.get_closest_marker("sampled") and not any(map(item.get_closest_marker, LATER))
    ]
    for _, group in groupby(walks, lambda item: item.nodeid.partition("[")[0]):
        cases = sorted(group, key=lambda item: zlib.crc32(item.nodeid.partition("[")[2].encode()))
        (of,) = cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        for item in cases[-(-len(cases) // of) :]:
            item.add_marker("slow")
