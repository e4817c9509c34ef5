"""A test that walks a space takes a part of it in `make test`, and the whole in `make test-rest`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import groupby

import pytest


def in_shares(count: int) -> pytest.MarkDecorator:
    """Give a test the argument `share`, a slice of the operations: `for number in range(last)[share]`.

    Of `count` shares half of the first one is taken in `make test`.
    """
    quick, *others = [slice(0, None, 2 * count), slice(count, None, 2 * count)] + [
        slice(first, None, count) for first in range(1, count)
    ]
    slow = [pytest.param(share, id=f"share {i}", marks=pytest.mark.slow) for i, share in enumerate(others, 2)]
    return pytest.mark.parametrize("share", [pytest.param(quick, id="share 1"), *slow])


def sampled(of: int) -> pytest.MarkDecorator:
    """Draw one of `of` cases of a parametrised test for `make test`; all others are slow."""
    return pytest.mark.sampled(of)


def mark_what_is_not_drawn(items: Iterable[pytest.Item]) -> None:
    """Make the cases of sampled tests slow that are not drawn.

    What is drawn follows from the names of the cases: it is the same in every run, on every machine, and a new case
    puts at most one other out.
    """
    walks = [item for item in items if item.get_closest_marker("sampled")]
    for _, group in groupby(walks, lambda item: item.nodeid.partition("[")[0]):
        cases = sorted(group, key=lambda item: zlib.crc32(item.nodeid.partition("[")[2].encode()))
        (of,) = cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        for item in cases[-(-len(cases) // of) :]:
            item.add_marker("slow")
