"""Loader of all kernels: from the wheel or the cache in 0.2 s, or compiled once for each version, which takes a
processor a minute.

One process fills a cache, and other ones wait for it: the lock is a file in the cache's folder. It is released when its
process ends, however that ends.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING

from reput.errors import StoreError, StoreLockedError
from reput.files import DISK

if TYPE_CHECKING:
    from reput.kernels.machine.jit import Kernel

logger = logging.getLogger("reput.kernels")

#: Modules with kernels.
#: None of them imports pyarrow, which starts threads and so must not be loaded before a Spark worker forks.
KERNEL_MODULES = (
    "reput.kernels.machine.crc32",
    "reput.kernels.machine.java_hash",
    "reput.kernels.records.record_scan",
    "reput.kernels.records.record_search",
    "reput.kernels.records.record_positions",
    "reput.kernels.records.record_encode",
    "reput.kernels.records.message_objects",
    "reput.kernels.records.batch_items",
    "reput.kernels.records.message_lists",
    "reput.kernels.queues.consume_queue",
    "reput.kernels.queues.consume_queue_ext",
    "reput.kernels.queues.multi_dispatch",
    "reput.kernels.queues.batch_consume_queue",
    "reput.kernels.queues.index_file",
    "reput.kernels.queues.index_search",
    "reput.kernels.queues.claimed_records",
    "reput.kernels.records.tags",
    "reput.kernels.records.property_slices",
    "reput.kernels.records.content_hash",
    "reput.kernels.queues.small_pass",
    "reput.kernels.records.gather",
    "reput.kernels.records.pulled_records",
    "reput.kernels.records.proven_records",
    "reput.kernels.records.json_objects",
    "reput.kernels.wire.send_frames",
    "reput.kernels.wire.ack_frames",
    "reput.kernels.wire.pull_frames",
    "reput.kernels.wire.send_back_frames",
    "reput.kernels.wire.send_back_records",
    "reput.kernels.records.timer_records",
    "reput.kernels.archive.property_orders",
    "reput.kernels.archive.restored_records",
    "reput.kernels.archive.rest_pieces",
    "reput.files.batched_io",
)
#: Processes that compile at once, and the memory that each takes. The longest kernel takes a fifth of the time of all.
_MOST_PROCESSES, _PROCESS_BYTES = 4, 530 << 20
_LOCK = "lock"
#: How often a process looks whether another one has filled the cache, and when it compiles by itself.
_POLL_S, _MOST_WAIT_S = 0.1, 900.0


def load_kernels(*, processes: int = _MOST_PROCESSES) -> float:
    """Load every kernel, and compile those that the cache lacks; returns the seconds that it took, nearly 0 if they are
    loaded already.

    Without it each kernel is loaded or compiled at its first call. Call it before other threads run: loading beside a
    busy thread takes fifteen times as long.

    Args:
        processes: How many processes may compile at once; 1 for this one alone.
    """
    start = time.perf_counter()
    for name in KERNEL_MODULES:
        importlib.import_module(name)
    from numba.core.compiler_lock import global_compiler_lock

    from reput.kernels.machine.cache import COMPLETE, cache_folder
    from reput.kernels.machine.jit import (
        are_declared_kernels_loaded,
        compilation,
        load_declared_kernels,
        missing_kernels,
    )
    from reput.kernels.machine.wheel_kernels import wheel_kernels

    if are_declared_kernels_loaded():  # the folder may be out of reach by now
        return 0.0
    if wheel_kernels().codes:  # nothing is compiled, so no folder is needed
        load_declared_kernels()
        return time.perf_counter() - start
    folder = cache_folder()
    marker = os.path.join(folder, COMPLETE)
    with ExitStack() as held:
        if missing_kernels() or not DISK.exists(marker):
            held.enter_context(global_compiler_lock)
            with suppress(StoreError):  # told when a kernel cannot be kept
                DISK.make_directories(folder)
            held.enter_context(_alone(folder))
            _compile_in_processes(processes)
        load_declared_kernels()
        if compilation.is_kept and not DISK.exists(marker):
            with suppress(StoreError):  # a full disk: the kernels are there, and the next start has them
                DISK.make_directories(folder)
                DISK.write_atomically(marker, b"")
    return time.perf_counter() - start


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Wait until no other process fills a cache; in a folder without locks, as some on a network are, nobody waits."""
    path = os.path.join(folder, _LOCK)
    until = time.monotonic() + _MOST_WAIT_S
    is_told = False
    with ExitStack() as held:
        while time.monotonic() < until:
            try:
                held.callback(DISK.lock(path).release)
                break
            except StoreLockedError:
                if not is_told:
                    logger.warning("reput: waiting for another process that compiles the kernels (it locks %s)", path)
                    is_told = True
                time.sleep(_POLL_S)
            except StoreError:
                break
        if is_told:
            logger.info("reput: waited for the kernels of another process", extra={"is_end": True})
        yield


def _compile_in_processes(most: int) -> None:
    """Compile the kernels that the cache lacks, in a process for each processor, as far as there is memory.

    What is left, as processes could not be started or have died, is compiled by whom loads it.
    """
    from reput.kernels.machine.jit import missing_kernels

    # The longest first, so that no process works on one when the others have ended.
    kernels = sorted(missing_kernels(), key=lambda one: (-len(one.py_func.__code__.co_code), one.py_func.__name__))
    count = min(len(os.sched_getaffinity(0)), len(kernels), most, DISK.available_memory() // _PROCESS_BYTES)
    if count < 2 or not os.path.basename(sys.executable or "").startswith("python"):  # a program with Python in it
        return
    # The modules of this process, and none of its current folder.
    command = [sys.executable, "-P", "-m", __name__]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with suppress(OSError), ExitStack() as children:
        compilers = []
        for _ in range(count):
            compiler = subprocess.Popen(
                command, env=environment, text=True, bufsize=1,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            compilers.append(children.enter_context(compiler))
            children.callback(compiler.kill)  # at any moment, as a file comes into the cache by a rename
        _compile_in(compilers, kernels)


def _compile_in(compilers: Sequence[subprocess.Popen[str]], kernels: Sequence[Kernel]) -> None:
    """Give each process a kernel, and the next one when it has compiled that; log how many are left."""
    from reput.kernels.machine.jit import compilation

    begin = time.perf_counter()
    compilation.planned = kernels
    compilation.begin(kernels[0])
    waiting, idle, compiled = deque(kernels), list(compilers), 0
    with DefaultSelector() as at_work:
        while True:
            while waiting and idle:
                compiler, kernel = idle.pop(), waiting.popleft()
                print(kernel.__module__, kernel.__name__, file=compiler.stdin, flush=True)
                assert compiler.stdout is not None, "a pipe"
                at_work.register(compiler.stdout, EVENT_READ, (compiler, kernel))
            if not at_work.get_map():
                break
            for answers, _ in at_work.select():
                compiler, kernel = answers.data
                at_work.unregister(answers.fileobj)
                if not compiler.stdout.readline():
                    continue  # it has died
                idle.append(compiler)
                compilation.end(kernel)
                compiled += 1
                if compiled < len(kernels):
                    compilation.begin(kernels[compiled])
    compilation.planned = ()
    compilation.log_end(time.perf_counter() - begin)


def _compile_what_is_asked() -> None:
    """Compile the kernels that come line by line on stdin into the cache, and answer each; end where none is kept."""
    from reput.kernels.machine.jit import compilation

    for line in sys.stdin:
        module, name = line.split()
        getattr(importlib.import_module(module), name).load()
        if not compilation.is_kept:
            return
        print(name, flush=True)


if __name__ == "__main__":
    _compile_what_is_asked()
