"""Single puts under ASYNC_FLUSH, from one thread and from sixteen."""

from __future__ import annotations

import time
from threading import Barrier, Thread

from bench import messages
from bench.figures import Figure, Goal, percentile
from bench.setting import Setting
from reput import MessageStore

_THREADS = {1: "1 thread", 16: "16 threads"}


def measure(setting: Setting) -> list[Figure]:
    """Rates with the creation of the messages in them, and latencies of the call alone."""
    figures = []
    for threads, name in _THREADS.items():
        rate = Figure(f"put_message, ASYNC_FLUSH, {name}", "msg/s", goal=Goal(least=150_000))
        rate.note = "bound by the interpreter"
        figures += series(setting, rate, "ASYNC_FLUSH", threads, setting.count(600_000))
    return figures


def series(setting: Setting, rate: Figure, flush_disk_type: str, threads: int, count: int) -> list[Figure]:
    """The rate of `count` puts from so many threads, and the p50 and p99 of a put."""
    half = Figure(f"{rate.name}, p50", "us")
    most = Figure(f"{rate.name}, p99", "us")
    count -= count % threads
    for _ in range(setting.repeats):
        path = setting.folder("put")
        with MessageStore.open(path, flush_disk_type=flush_disk_type) as store:
            _put(store, threads, max(count // 20, threads))
            rate.values.append(count / _put(store, threads, count)[0])
            latencies = _put(store, threads, max(count // 4, threads), timed=True)[1]
            half.values.append(percentile(latencies, 0.5) * 1e6)
            most.values.append(percentile(latencies, 0.99) * 1e6)
        setting.remove(path)
    return [rate, half, most]


def _put(store: MessageStore, threads: int, count: int, *, timed: bool = False) -> tuple[float, list[float]]:
    """Seconds that `threads` threads need to put `count` messages, and the seconds of each call where asked for."""
    each = count // threads
    barrier = Barrier(threads + 1)
    latencies: list[list[float]] = [[] for _ in range(threads)]

    def run(number: int) -> None:
        put, make, payload, queue_id = (
            store.put_message,
            messages.message,
            messages.body(number),
            number % messages.QUEUES,
        )
        samples, clock = latencies[number], time.perf_counter
        barrier.wait()
        if timed:
            for i in range(number * each, (number + 1) * each):
                message = make(i, payload=payload)
                start = clock()
                put(message, queue_id)
                samples.append(clock() - start)
        else:
            for i in range(number * each, (number + 1) * each):
                put(make(i, payload=payload), queue_id)

    workers = [Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start, [sample for samples in latencies for sample in samples]
