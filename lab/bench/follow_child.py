"""A follower in a process of its own: `python -m lab.bench.follow_child follow PATH ADDRESS`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event

from lab.bench.broker.sides import log_end
from reput import MessageStore
from reput.kernel_loader import load_kernels
from reput.replication.follower import Follower


def provide_memory(folder: str, size: int) -> None:
    """Let the host provide the memory for a copy of a log before the copy is measured, not meanwhile.

    That is twice the log's size: for the log, and for its index, its queues and the memory of the process.
    """
    piece, path = bytes(1 << 20), Path(folder, "memory")
    with path.open("wb") as file:
        for _ in range(0, 2 * size, len(piece)):
            file.write(piece)
    path.unlink()


def follow(path: str, address: str) -> None:
    """Copy all of a master's log; prints the seconds until it is dispatched, and the bytes."""
    load_kernels()
    provide_memory(path, log_end(address))
    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        begin = time.monotonic()
        Follower(store, address, acknowledges=True).run(Event(), once=True)
        store.wait_dispatched(timeout=600)
        print(time.monotonic() - begin, store.max_commit_log_offset - store.min_commit_log_offset)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
