"""Measurements in a process of their own: `python -m lab.bench.child WHAT PATH [COUNT]`, which prints one number.

Nothing is imported here but what Python has loaded anyway, so that the imports which are measured are whole.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def import_reput() -> float:
    """Seconds of `import reput`."""
    start = time.perf_counter()
    import reput  # noqa: F401

    return time.perf_counter() - start


def open_empty(path: str) -> float:
    """Seconds from nothing imported to an open store at `path`, where nothing was."""
    start = time.perf_counter()
    import reput

    store = reput.MessageStore.open(path)
    seconds = time.perf_counter() - start
    store.close()
    return seconds


def killed(path: str, count: str) -> float:
    """Append a fourth of `count` messages to a new store and close it; open it again, append the rest, die at once."""
    import signal

    import reput
    from lab.bench.setting import fill, put

    fill(path, int(count) // 4)
    store = reput.MessageStore.open(path, flush_disk_type="ASYNC_FLUSH")
    put(store, int(count) - int(count) // 4, first=int(count) // 4)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed processes do not come here")


def put_at_rate(path: str, rate: str, seconds: str) -> float:
    """Put messages at a rate for some seconds, in tables of a 50th of a second; returns their number."""
    import reput
    from lab.bench import messages

    table, put = messages.table(int(rate) // 50), 0
    with reput.MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < float(seconds):
            if put <= elapsed * int(rate):
                store.put_arrow(table)
                put += table.num_rows
            else:
                time.sleep(0.002)
    return put


def resident_after_import() -> float:
    """MB of memory of a process that has imported reput."""
    import_reput()
    return _resident_mb("VmRSS")


def resident_after_open(path: str) -> float:
    """MB of memory of a process that has an empty store open."""
    import reput

    with reput.MessageStore.open(path):
        return _resident_mb("VmRSS")


def resident_after_read(path: str) -> float:
    """MB of memory, at its highest, of a process that has read all of a store as Arrow, batch by batch."""
    import reput

    for _ in reput.read_log(path):
        pass
    return _resident_mb("VmHWM")


def anonymous_of_put(path: str, count: str) -> float:
    """MB by which the memory that is no file's grows while a reader is put whose batches are made one by one."""
    import pyarrow as pa

    import reput
    from lab.bench import messages

    most = 0.0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for first in range(0, int(count), 65_536):
            yield from messages.table(65_536, first=first).to_batches()
            most = max(most, _resident_mb("RssAnon"))

    schema = messages.table(1).schema
    with reput.MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        before = _resident_mb("RssAnon")
        store.put_arrow(pa.RecordBatchReader.from_batches(schema, batches()))
        store.wait_dispatched(timeout=600)
        return most - before


def resident_after_rebuild(path: str, output: str) -> float:
    """MB of memory, at its highest, of a process that has rebuilt queues and index of a store in one thread."""
    from reput.jobs.rebuild.job import rebuild
    from reput.jobs.runner import LocalRunner

    rebuild(path, output, runner=LocalRunner(1))
    return _resident_mb("VmHWM")


def _resident_mb(name: str) -> float:
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1000
    raise AssertionError(f"no {name} in /proc/self/status")


if __name__ == "__main__":
    _, what, *arguments = sys.argv
    print(globals()[what](*arguments))
