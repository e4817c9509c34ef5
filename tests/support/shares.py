"""A test of every operation of a life, in shares: the first one in `make test`, the others with the slow tests."""

from __future__ import annotations

import pytest


def in_shares(count: int) -> pytest.MarkDecorator:
    """Give a test the argument `share`, a slice of the operations: `for number in range(last)[share]`."""
    shares = [slice(first, None, count) for first in range(count)]
    slow = [pytest.param(share, id=f"share {i}", marks=pytest.mark.slow) for i, share in enumerate(shares[1:], 2)]
    return pytest.mark.parametrize("share", [pytest.param(shares[0], id="share 1"), *slow])
