"""Scratch: memory of a thread that kernels write for a read."""

from __future__ import annotations

from threading import local

import numpy as np


class Scratch(local):
    """Memory of each thread that uses it; its address is taken once, as asking for it costs 1 us.

    Attributes:
        size: In bytes.
        address: Of the first byte.
        view: The bytes.
        numbers: The same bytes as int64.
    """

    def __init__(self, size: int) -> None:
        self.grow(size)

    def grow(self, size: int) -> None:
        """Have `size` bytes at least; what they were is lost."""
        memory = np.empty(-(-size // 8), np.int64)
        self.size, self.address = memory.nbytes, int(memory.ctypes.data)
        self.numbers, self.view = memory.data, memory.data.cast("B")
