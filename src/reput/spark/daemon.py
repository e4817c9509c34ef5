"""The daemon that Spark forks Python workers from: `spark.python.daemon.module=reput.spark.daemon`.

A worker of Spark's own daemon imports what its first task needs, and runs `gc.collect()` over all of it after every
task: 40 to 60 ms with NumPy, Numba and Arrow loaded. This one loads NumPy, Numba and the kernels once, before it
forks, and freezes them: workers start with everything there, and a task costs 7 ms. A cold kernel cache is filled once
a host, not by all workers at the same time.

The module must be importable where executors run: reput installed there; `--py-files` comes too late for a daemon.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


def main() -> None:
    """Load the kernels, then be Spark's daemon until Spark closes its standard input."""
    _leave_pyspark_zip()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when numpy is imported: no thread may run before a fork

    from reput.kernel_loader import load_kernels

    load_kernels()
    _assert_one_thread()
    gc.collect()
    gc.freeze()

    from pyspark import daemon

    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


@functools.cache
def freeze_worker() -> None:
    """Hide what a worker has imported by now from the garbage collector; only the first call in a process does it.

    To be called at the end of a task: the daemon must not load what starts threads, so pyarrow, and the pandas that it
    imports late, come with a worker's first task. Objects that live now are never collected: keep no data alive.
    """
    gc.collect()
    gc.freeze()


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Let a worker end without a traceback where Spark has closed its socket: as it wants no more rows, or stops."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # pyspark's daemon then ends the process

    return run


def _leave_pyspark_zip() -> None:
    """Import pyspark from the installed package where there is one.

    Spark puts its `pyspark.zip` first on the path. Nothing in a zip has compiled bytecode: the same imports take 1.3 s
    instead of 0.3 s in every daemon.
    """
    path = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
    if PathFinder.find_spec("pyspark", path):
        sys.path[:] = path


def _assert_one_thread() -> None:
    """A fork copies one thread and the locks of all: a daemon with a second thread makes workers that hang."""
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads before the fork: does a kernel import pyarrow when it is loaded?"


if __name__ == "__main__":
    main()
