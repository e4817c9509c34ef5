"""Single puts under ASYNC_FLUSH, from one thread and from sixteen."""

from __future__ import annotations

import time
from threading import Barrier, Thread

from lab.bench import messages
from lab.bench.apache import Apache
from lab.bench.figures import Figure, Goal, percentile
from lab.bench.setting import Setting
from reput import FlushDiskType, MessageStore

_THREADS = {1: "1 thread", 16: "16 threads"}


def measure(setting: Setting) -> list[Figure]:
    """Rates with the creation of the messages in them (of RocketMQ's: of their properties), and latencies of a call."""
    figures = []
    for threads, name in _THREADS.items():
        rate = Figure(f"put_message, ASYNC_FLUSH, {name}", "msg/s", goal=Goal(least=150_000))
        rate.note = "bound by the interpreter"
        figures += series(setting, rate, FlushDiskType.ASYNC_FLUSH, threads, setting.count(600_000), least=0.6)
        if threads == 1:
            figures[-1].goal = Goal(most=50)
    return figures


def series(
    setting: Setting, rate: Figure, flush_disk_type: FlushDiskType, threads: int, count: int, *, least: float
) -> list[Figure]:
    """The rate of `count` puts from several threads until all are dispatched, and the p50 and p99 of a put.

    `least` is how many times RocketMQ's rate it should reach.
    """
    figures = [rate, Figure(f"{rate.name}, p50", "us"), Figure(f"{rate.name}, p99", "us")]
    if setting.apache is not None:
        for figure in figures:
            figure.other = setting.apache.other()
        rate.other = setting.apache.other(least)
    count += -count % (20 * threads)  # so that its parts below are whole for every thread
    for _ in range(setting.repeats):
        path = setting.folder("put")
        with MessageStore.open(path, flush_disk_type=flush_disk_type) as store:
            _put(store, threads, count // 20)
            seconds = _put(store, threads, count)[0]
            latencies = _put(store, threads, count // 4, timed=True)[1]
        percentiles = (percentile(latencies, share) * 1e6 for share in (0.5, 0.99))
        for figure, value in zip(figures, (count / seconds, *percentiles), strict=True):
            figure.values.append(value)
        if setting.apache is not None:
            _put_into_apache(setting.apache, setting.folder("put"), flush_disk_type, threads, count, figures)
        setting.remove(path)
    return figures


def _put_into_apache(
    apache: Apache, path: str, flush_disk_type: str, threads: int, count: int, figures: list[Figure]
) -> None:
    """Measure RocketMQ, as `series` measures reput."""
    with apache.open(path, flush_disk_type) as store:
        store.put(count // 20, threads=threads)
        rate = count / store.put(count, threads=threads)["dispatched"]
        timed = store.put(count // 4, threads=threads, timed=True)
    for figure, value in zip(figures, (rate, timed["p50"], timed["p99"]), strict=True):
        figure.add_other(value)


def _put(store: MessageStore, threads: int, count: int, *, timed: bool = False) -> tuple[float, list[float]]:
    """Seconds until `threads` threads have put `count` messages and all are dispatched, and of each timed call."""
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
    store.wait_dispatched(timeout=600)
    return time.perf_counter() - start, [sample for samples in latencies for sample in samples]
