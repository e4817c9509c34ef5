"""Daemon from which Spark forks Python workers: `spark.python.daemon.module=reput.spark.daemon`.

A worker of Spark's own daemon imports the modules of its first task, and runs `gc.collect()` over all objects after
every task: 40 to 60 ms with NumPy, Numba and Arrow loaded. Our daemon loads NumPy, Numba and the kernels once, before
it forks, and freezes them: workers start with all modules, and a task costs 7 ms. A cold kernel cache is filled once a
host, not by all workers at the same time.

The module must be importable where executors run: install reput there; `--py-files` comes too late for a daemon.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

#: Names of glibc's `malloc.h`.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: As much as a scan's largest buffers, and as the buffers of a scan together.
_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES = 32 << 20, 128 << 20


def main() -> None:
    """Load the kernels, then run Spark's daemon until Spark closes its standard input."""
    _keep_memory()
    _leave_pyspark_zip()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when numpy is imported: no thread may run before a fork

    from reput.kernel_loader import load_kernels

    load_kernels(processes=1)  # a cluster bounds the memory of an executor
    _assert_one_thread()
    gc.collect()
    gc.freeze()

    from pyspark import daemon

    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


@functools.cache
def freeze_worker() -> None:
    """Hide all objects that live now from the garbage collector. Only the first call in a process does it.

    To be called at the end of a task: the daemon must not load modules that start threads, so pyarrow, and pandas,
    which pyarrow imports late, come with a worker's first task. The objects are never collected: hold no data then.
    """
    gc.collect()
    gc.freeze()


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Let a worker end without a traceback if Spark has closed its socket: it needs no more rows, or stops."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # pyspark's daemon then ends the process

    return run


def _keep_memory() -> None:
    """Let workers keep the memory of NumPy's buffers for the next batch and the next task.

    By glibc's defaults the one thread of a worker gives it back to the system, and gets it again page by page: 64 MB of
    page faults in a task of an export.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's alone
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)


def _leave_pyspark_zip() -> None:
    """Import pyspark from the installed package, if there is one.

    Spark puts its `pyspark.zip` first on the path. Modules in a zip have no compiled bytecode: the same imports take
    1.3 s instead of 0.3 s in every daemon.
    """
    path = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
    if PathFinder.find_spec("pyspark", path):
        sys.path[:] = path


def _assert_one_thread() -> None:
    """Assert that the process has one thread. A fork copies one thread, but the locks of all: workers would hang."""
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads before the fork: does a kernel import pyarrow when it is loaded?"


if __name__ == "__main__":
    main()
