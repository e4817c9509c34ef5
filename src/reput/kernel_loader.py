"""Loader of all kernels: from the cache in 0.2 s, or compiled once for each installation in 15 to 45 s."""

from __future__ import annotations

import importlib
import os
import time

from reput.files import DISK

#: Modules with kernels.
#: None of them imports pyarrow, which starts threads and so must not be loaded before a Spark worker forks.
KERNEL_MODULES = (
    "reput.kernels.crc32",
    "reput.kernels.java_hash",
    "reput.kernels.record_scan",
    "reput.kernels.record_positions",
    "reput.kernels.record_encode",
    "reput.kernels.message_objects",
    "reput.kernels.batch_items",
    "reput.kernels.message_lists",
    "reput.kernels.consume_queue",
    "reput.kernels.consume_queue_ext",
    "reput.kernels.multi_dispatch",
    "reput.kernels.batch_consume_queue",
    "reput.kernels.index_file",
    "reput.kernels.tags",
    "reput.kernels.property_slices",
    "reput.kernels.content_hash",
    "reput.kernels.small_pass",
    "reput.kernels.gather",
    "reput.kernels.segments",
    "reput.kernels.json_objects",
    "reput.kernels.send_frames",
    "reput.files.runs",
)


def load_kernels() -> float:
    """Load every kernel, and compile those that the cache lacks; returns the seconds that it took, nearly 0 if they are
    loaded already.

    Without it each kernel is loaded or compiled at its first call. Call it before other threads run: loading beside a
    busy thread takes fifteen times as long.
    """
    start = time.perf_counter()
    for name in KERNEL_MODULES:
        importlib.import_module(name)
    from reput.kernels._cache import COMPLETE, cache_folder
    from reput.kernels._jit import load_declared_kernels

    if not load_declared_kernels():  # the folder may be out of reach by now
        return 0.0
    marker = os.path.join(cache_folder(), COMPLETE)
    if not DISK.exists(marker):
        DISK.make_directories(cache_folder())
        DISK.write_atomically(marker, b"")
    return time.perf_counter() - start
