"""Account of compilation, in the log: which kernel is compiled, how many are left, and for about how long.

The first line of a process has the level WARNING, so that a program that takes a minute says why; the others have INFO.
A command shows them all (`KernelLine` in `cli/display/output.py`), a run of pytest the warnings (`pytest_plugin.py`).

By `logging`, and not by `warnings`: if a program configures nothing, Python prints a warning of a log on stderr, and
if it does, the line goes where its other lines go. `logging.getLogger("reput.kernels").setLevel("ERROR")` silences
it. Tests often turn `warnings` into errors, and would fail once a version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from numba.core.dispatcher import Dispatcher

from reput.kernels.machine.cache import cache_folder
from reput.kernels.machine.wheel_kernels import wheel_kernels

logger = logging.getLogger("reput.kernels")
#: What counts before the process has compiled any: a tenth of the bytecode of all kernels, which took 17 to 46 s.
_FIRST_SIZE, _FIRST_SECONDS = 8000, 3.0


class Compilation:
    """Compilation of kernels in a process. To be called under Numba's lock.

    A time is estimated from the bytecode of a kernel and of all functions that it calls, and the speed so far.

    Attributes:
        planned: Kernels that are compiled one after the other, in one start; empty for a kernel at its first use.
        is_kept: Whether all that was compiled is in the folder.
    """

    def __init__(self) -> None:
        self._is_told = False
        self.planned: Sequence[Any] = ()
        self.is_kept = True
        self._compiled: set[Any] = set()
        self._size, self._seconds = _FIRST_SIZE, _FIRST_SECONDS
        self._begin = 0.0

    def begin(self, kernel: Any) -> None:
        """Log what is left, before a kernel is compiled; and first, if a wheel's kernels do not count, why."""
        self._begin = time.perf_counter()
        left: Sequence[Any] = [kernel]
        what = kernel.py_func.__name__.strip("_")
        if kernel in self.planned:
            done = self.planned.index(kernel)
            what, left = f"{done + 1} of {len(self.planned)}", self.planned[done:]
        text = f"reput: compiling kernels, once for this version: {what}, about {self._estimate(left)} s left"
        if self._is_told:
            logger.info("%s", text)
        else:
            self._is_told = True
            if refusal := wheel_kernels().refusal:
                logging.getLogger("reput.cache").warning("reput: kernels of the wheel are not used: %s", refusal)
            logger.warning("%s (they are kept in %s)", text, cache_folder())

    def end(self, kernel: Any) -> None:
        """Learn the speed from a kernel that has been compiled."""
        seconds = time.perf_counter() - self._begin
        self._seconds += seconds
        self._size += _bytecode([kernel], self._compiled)
        if kernel not in self.planned:
            self.log_end(seconds)

    def cannot_keep(self, error: OSError) -> None:
        """Warn, once, that what is compiled cannot be written to the folder; the process goes on with it."""
        if self.is_kept:
            self.is_kept = False
            logging.getLogger("reput.cache").warning(
                "reput: %s cannot be written: %s: compiled kernels are not kept, and are compiled again at each start. "
                "Free some space there, or set REPUT_CACHE_DIR to a folder that can be written",
                cache_folder(),
                error.strerror,
            )

    def log_end(self, seconds: float) -> None:
        """Log that nothing is compiled any more: `is_end` of the record is true."""
        logger.info("reput: kernels compiled in %.1f s", seconds, extra={"is_end": True})

    def _estimate(self, kernels: Iterable[Any]) -> int:
        """Seconds that the kernels will take, at least 1."""
        return max(1, round(self._seconds / self._size * _bytecode(kernels, set(self._compiled))))


def _bytecode(functions: Iterable[Any], compiled: set[Any]) -> int:
    """Bytes of bytecode of functions that are to be compiled, and of all that they call; adds these to `compiled`."""
    size = 0
    for function in functions:
        if function in compiled:
            continue
        if function.targetoptions.get("inline") != "always":  # an inlined one is compiled again in each caller
            compiled.add(function)
        code, names = function.py_func.__code__, function.py_func.__globals__
        size += len(code.co_code)
        called = [names[name] for name in code.co_names if isinstance(names.get(name), Dispatcher)]
        size += _bytecode(called, compiled)
    return size
