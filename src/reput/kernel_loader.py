"""Loader of all kernels: from the cache in 0.2 s, or compiled once for each installation in 15 to 45 s."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from select import select
from typing import TYPE_CHECKING, Any

from reput.files import DISK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reput.kernels._jit import Kernel

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
    "reput.kernels.ack_frames",
    "reput.kernels.timer_records",
    "reput.files.runs",
)
#: Processes that compile at once: each takes 530 MB, and the longest kernel takes a fifth of the time of all.
_MOST_PROCESSES = 4


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


def compile_kernels() -> None:
    """Compile the kernels that the cache lacks, in a process for each processor; `load_kernels` finds them there.

    A library starts no processes, so this is for the command that is asked to compile. What is left after it, as
    processes could not be started or have died, `load_kernels` compiles.
    """
    kernels = _missing_kernels()
    count = min(len(os.sched_getaffinity(0)), len(kernels), _MOST_PROCESSES)
    if count < 2:
        return
    command = [sys.executable, "-m", __name__]
    with suppress(OSError), ExitStack() as children:
        compilers = []
        for _ in range(count):
            compiler = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
            )
            compilers.append(children.enter_context(compiler))
            children.callback(compiler.kill)  # at any moment, as a file comes into the cache by a rename
        _compile_in(compilers, kernels)


def _missing_kernels() -> Sequence[Kernel]:
    """Kernels that the cache lacks; the longest first, so that no process works on one when the others have ended."""
    from reput.kernels._jit import Kernel

    found = [value for name in KERNEL_MODULES for value in vars(importlib.import_module(name)).values()]
    missing = {each for each in found if isinstance(each, Kernel) and not each.is_loaded and each.cache.is_empty}
    return sorted(missing, key=lambda kernel: (-len(kernel.py_func.__code__.co_code), kernel.py_func.__name__))


def _compile_in(compilers: Sequence[subprocess.Popen[str]], kernels: Sequence[Kernel]) -> None:
    """Give each process a kernel, and the next one when it has compiled that; log how many are left."""
    from reput.kernels._compilation import Compilation

    begin = time.perf_counter()
    compilation = Compilation()
    compilation.planned = kernels
    compilation.begin(kernels[0])
    waiting, idle, compiled = deque(kernels), list(compilers), 0
    at_work: dict[Any, tuple[subprocess.Popen[str], Kernel]] = {}  # by the stream of its answer
    while True:
        while waiting and idle:
            compiler, kernel = idle.pop(), waiting.popleft()
            print(kernel.__module__, kernel.__name__, file=compiler.stdin, flush=True)
            at_work[compiler.stdout] = compiler, kernel
        if not at_work:
            break
        for answers in select(at_work, [], [])[0]:
            compiler, kernel = at_work.pop(answers)
            if not answers.readline():
                continue  # it has died
            idle.append(compiler)
            compilation.end(kernel)
            compiled += 1
            if compiled < len(kernels):
                compilation.begin(kernels[compiled])
    compilation.log_end(time.perf_counter() - begin)


def _compile_what_is_asked() -> None:
    """Compile the kernels that come line by line on stdin into the cache, and answer each."""
    for line in sys.stdin:
        module, name = line.split()
        getattr(importlib.import_module(module), name).load()
        print(name, flush=True)


if __name__ == "__main__":
    _compile_what_is_asked()
