"""Shared words: int64 at an address that Python and a kernel both read and set, each named by its position in bytes."""

from __future__ import annotations

from numba import njit

from reput.kernels.machine.memory import load_i64_native, store_i64_native


@njit
def get(words, word):  # type: ignore[no-untyped-def]
    """The word `word` bytes after the first one."""
    return load_i64_native(words + word)


@njit
def put(words, word, value):  # type: ignore[no-untyped-def]
    """Set the word `word` bytes after the first one."""
    store_i64_native(words + word, value)
