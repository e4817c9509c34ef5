"""Blocks: memory that Python and a kernel share, int64 words at an address; a kernel names a word by its position."""

from __future__ import annotations

from numba import njit

from reput.kernels.machine.memory import load_i64_native, store_i64_native


@njit
def get(block, word):  # type: ignore[no-untyped-def]
    """The word `word` bytes after the begin of a block."""
    return load_i64_native(block + word)


@njit
def put(block, word, value):  # type: ignore[no-untyped-def]
    """Set the word `word` bytes after the begin of a block."""
    store_i64_native(block + word, value)
