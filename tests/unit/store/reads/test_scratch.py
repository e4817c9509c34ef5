"""Scratch: memory of a thread that kernels write."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

from reput.store.reads.scratch import Scratch


def test_each_thread_has_memory_of_its_own_which_grows_to_whole_numbers() -> None:
    scratch = Scratch(8)
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(lambda: scratch.address).result()
        assert other != scratch.address
        scratch.grow(17)
        assert (scratch.size, scratch.view.nbytes, len(scratch.numbers)) == (24, 24, 3)
        assert threads.submit(lambda: (scratch.address, scratch.size)).result() == (other, 8)
    scratch.numbers[2] = 7
    assert ctypes.string_at(scratch.address + 16, 1) == scratch.view[16:17] == b"\7"
