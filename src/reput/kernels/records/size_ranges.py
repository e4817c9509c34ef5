"""Ranges of record sizes in which messages are counted, as RocketMQ's `rocketmq_message_size` has them."""

from __future__ import annotations

import numpy as np
from numba import njit

#: Upper bounds in bytes, inclusive; a further range has what is larger.
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
SIZE_RANGES = len(SIZE_BOUNDS) + 1
_BOUNDS = SIZE_BOUNDS


@njit
def size_range(size):  # type: ignore[no-untyped-def]
    """Number of a size's range."""
    number = np.int64(0)
    for bound in _BOUNDS:
        number += size > bound
    return number
