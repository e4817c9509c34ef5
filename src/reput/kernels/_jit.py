"""Compilation of kernels, and the cache of the compiled code.

Numba's on-disk cache does not notice a change in *another* file, and compiles globals as constants; reput's kernels
take their byte positions from `reput.formats`. The cache folder is therefore named by a hash of every source that a
kernel can see, and of the versions that decide the machine code. So a stale kernel cannot be loaded, and two versions
of the package can share one cache, as can two installations of one version: `spark-submit --py-files` makes a new
installation for each application.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import UserProvidedCacheLocator

from reput.kernels._cache import COMPLETE, cache_folder


class KernelCacheLocator(UserProvidedCacheLocator):  # type: ignore[misc]
    """Location of a kernel's compiled code: by the sources alone, not by the path of their installation."""

    def __init__(self, function: Callable[..., Any], source_path: str) -> None:
        self._py_file = source_path
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = os.path.join(cache_folder(), os.path.basename(os.path.dirname(source_path)))

    def get_source_stamp(self) -> str:
        """Stamp of stale entries: constant, since the folder is named by the content of the sources."""
        return ""

    @classmethod
    def from_function(cls, function: Callable[..., Any], source_path: str) -> KernelCacheLocator:
        """Locator of one kernel; its source may lie in a zip file, and a complete cache in a read-only folder."""
        locator = cls(function, source_path)
        if not os.path.exists(os.path.join(cache_folder(), COMPLETE)):
            locator.ensure_cache_path()
        return locator


def kernel(
    signature: str, *, allocates: bool = False, reads_objects: bool = False, short: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for exactly one signature, without the interpreter lock, cached on disk.

    Kernels raise no errors: they return counts, stop reasons and status columns. Functions that only kernels call are
    plain `numba.njit` without a cache of their own.

    Numba counts the references to an array at each call of an inlined function, by an atomic operation: this took 85 of
    the 145 ns that a scan with keys took for a record. The caller keeps arrays alive, so kernels count none (`_nrt`).

    Args:
        signature: Numba's text, such as `"int64(int64, int64[::1])"`.
        allocates: The kernel allocates arrays, and so needs the reference counts.
        reads_objects: The kernel reads Python objects, and so keeps the interpreter lock.
        short: The kernel runs for a microsecond, takes plain numbers only, and is called from Python only. It is called
            directly, without Numba's check of the argument types (100 ns), and keeps the interpreter lock: a busy
            thread that took the lock meanwhile would give it back after 5 ms.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        before = numba.config.CACHE_LOCATOR_CLASSES  # read only once, when the decorator makes the cache
        numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{KernelCacheLocator.__name__}"
        try:
            nogil = not (reads_objects or short)
            made = numba.njit(signature, cache=True, nogil=nogil, boundscheck=False, _nrt=allocates)(function)
            return made.overloads[made.signatures[0]].entry_point if short else made
        finally:
            numba.config.CACHE_LOCATOR_CLASSES = before

    return compiled


def inlined(function: Callable[..., Any]) -> Any:
    """Function for kernels only, copied to each of its callers; for functions that take arrays, whose references Numba
    would count at a call (see `kernel`).
    """
    return numba.njit(inline="always")(function)
