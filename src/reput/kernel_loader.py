"""Loader of all kernels: from the cache in 0.4 s, or compiled once for each installation in about 10 s."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable

from reput.files import DISK

#: Modules with kernels. Importing one loads its kernels, or compiles them if they are not in the cache.
#: None of them imports pyarrow, which starts threads and so must not be loaded before a Spark worker forks.
KERNEL_MODULES = (
    "reput.kernels.crc32",
    "reput.kernels.java_hash",
    "reput.kernels.record_scan",
    "reput.kernels.record_encode",
    "reput.kernels.message_objects",
    "reput.kernels.consume_queue",
    "reput.kernels.consume_queue_ext",
    "reput.kernels.multi_dispatch",
    "reput.kernels.batch_consume_queue",
    "reput.kernels.index_file",
    "reput.kernels.tags",
    "reput.kernels.content_hash",
    "reput.kernels.gather",
    "reput.kernels.json_objects",
    "reput.files.runs",
)

#: Called before each module that must be compiled: (modules done, number of modules, name of the next module).
Announce = Callable[[int, int, str], None]


def announce_on_stderr(done: int, total: int, name: str) -> None:
    """Print a line on standard error for each step, to explain why the first start takes long."""
    if done == 0:
        print("reput: compiling kernels, once an installation (about 10 s)", file=sys.stderr)
    print(f"reput: [{done}/{total}] {name or 'kernels ready'}", file=sys.stderr, flush=True)


def load_kernels(announce: Announce = announce_on_stderr) -> float:
    """Load every kernel; returns the seconds that it took, nearly 0 if they are loaded already.

    Call it before other threads run: loading beside a busy thread takes fifteen times as long.
    """
    start = time.perf_counter()
    if all(name in sys.modules for name in KERNEL_MODULES):
        return 0.0
    compile_kernels(announce)
    for name in KERNEL_MODULES:
        importlib.import_module(name)
    return time.perf_counter() - start


def compile_kernels(announce: Announce = announce_on_stderr) -> None:
    """Compile the kernels that the cache lacks; does nothing if the cache is known to be complete."""
    from reput.kernels._cache import COMPLETE, cache_folder

    marker = os.path.join(cache_folder(), COMPLETE)
    if DISK.exists(marker):
        return
    for i, name in enumerate(KERNEL_MODULES):
        announce(i, len(KERNEL_MODULES), name.rpartition(".")[2])
        importlib.import_module(name)
    announce(len(KERNEL_MODULES), len(KERNEL_MODULES), "")
    DISK.make_directories(cache_folder())
    DISK.write_atomically(marker, b"")
