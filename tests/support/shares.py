"""A test of every operation of a life, in shares: a small one in `make test`, the others with the slow tests."""

from __future__ import annotations

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
