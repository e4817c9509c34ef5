"""A follower, or a master that grows, in a process of its own: `python -m lab.bench.follow_child WHAT ...`.

Times are those of `time.monotonic`, which is the same clock in all processes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from lab.bench import messages
from lab.bench.broker.sides import log_end
from reput import Broker, MessageStore
from reput.broker.state import BrokerState
from reput.kernel_loader import load_kernels
from reput.replication.follower import Follower, FollowState

#: Appends a second of a master that grows.
_APPENDS = 100


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
    """Copy all of a master's log; prints the seconds until it is dispatched, those of a processor, and the bytes."""
    load_kernels()
    provide_memory(path, log_end(address))
    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        begin, used = time.monotonic(), time.process_time()
        Follower(store, address, acknowledges=True).run(Event(), once=True)
        store.wait_dispatched(timeout=600)
        seconds, used = time.monotonic() - begin, time.process_time() - used
        print(seconds, used, store.max_commit_log_offset - store.min_commit_log_offset)


def follow_live(path: str, address: str, ha_address: str, kept: str) -> None:
    """Follow; prints a line when a first message is there, and ends when all is there up to the offset that it reads.

    `kept` gets float64[steps, 2]: after each step the time, and the offset up to which the log can be read.
    """
    load_kernels()
    steps: list[tuple[float, int]] = []
    until: list[int] = []
    stop = Event()

    def note(state: FollowState) -> None:
        if state.end_offset > (steps[-1][1] if steps else 0):
            steps.append((time.monotonic(), state.end_offset))
            if len(steps) == 1:
                print("it follows", flush=True)
        if until and state.end_offset >= until[0]:
            stop.set()

    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        follower = Follower(store, address, ha_address=ha_address, acknowledges=True, on_state=note)
        thread = Thread(target=follower.run, args=(stop,))
        thread.start()
        until.append(int(sys.stdin.readline()))
        thread.join()
    np.save(kept, np.array(steps, np.float64))


def lead(path: str, ha_port: str, bytes_a_second: str, seconds: str, kept: str) -> None:
    """A broker with one message, which prints its address; from a line that it reads on its log grows.

    It prints the log's end then, and ends with the next line. `kept` gets float64[appends, 2]: of each append the time
    before it, and the log's end after it. The loop appends, and wakes the slaves, as it does for requests.
    """
    table = messages.table(int(bytes_a_second) // _APPENDS // messages.RECORD_SIZE)
    appends: list[tuple[float, int]] = []

    def append(state: BrokerState) -> None:
        begun = time.monotonic()
        state.store.put_arrow(table)
        state.dispatch.soon()
        appends.append((begun, state.store.max_commit_log_offset))

    local: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with Broker.start(path, ha_listen_port=int(ha_port), flush_disk_type="ASYNC_FLUSH", **local) as broker:
        broker.in_loop(append)
        print(broker.address, flush=True)
        sys.stdin.readline()
        appends.clear()
        begin = time.monotonic()
        for number in range(int(float(seconds) * _APPENDS)):
            time.sleep(max(0.0, begin + number / _APPENDS - time.monotonic()))
            broker.in_loop(append)
        np.save(kept, np.array(appends, np.float64))
        print(appends[-1][1], flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
