"""Single puts under SYNC_FLUSH: each waits for the disk, and one sync serves all that wait."""

from __future__ import annotations

from lab.bench.figures import Figure, Goal
from lab.bench.put_message import series
from lab.bench.setting import Setting
from reput import FlushDiskType

_THREADS = {1: "1 thread", 16: "16 threads", 64: "64 threads"}
_GOALS = {16: Goal(least=20_000)}
#: How many times as fast as RocketMQ.
_TIMES = {1: 0.9, 16: 1.4, 64: 1.4}


def measure(setting: Setting) -> list[Figure]:
    """Rates with the creation of the messages in them, and latencies of the call alone."""
    figures = []
    syncs = "fdatasync of small writes"
    for threads, name in _THREADS.items():
        rate = Figure(f"put_message, SYNC_FLUSH, {name}", "msg/s", goal=_GOALS.get(threads))
        rate.limit = (syncs, setting.limits[syncs])
        rate.note = (
            "bound by one fdatasync a put" if threads == 1 else "bound by waking threads; one sync serves several"
        )
        figures += series(
            setting,
            rate,
            FlushDiskType.SYNC_FLUSH,
            threads,
            setting.count(10_000 + 800 * threads),
            least=_TIMES[threads],
        )  # fmt: skip
    return figures
