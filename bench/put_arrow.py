"""Appending one table with live dispatch running: until it is appended, and until queues and index have it."""

from __future__ import annotations

import time

from bench import messages
from bench.figures import Figure, Goal
from bench.setting import Setting
from reput import MessageStore


def measure(setting: Setting) -> list[Figure]:
    """First fresh stores side by side, then stores in the memory that removed ones have given back."""
    count = setting.count(1_000_000)
    table = messages.table(count)
    appended = {
        memory: Figure(
            f"put_arrow, appended, dispatch running, {memory} memory",
            "msg/s",
            limit=setting.records_limit(f"page cache pwrite, {memory}"),
        )
        for memory in ("fresh", "recycled")
    }
    appended["fresh"].note = "memory as the host lends it; compare the two page cache limits"
    appended["recycled"].goal = Goal(least=1_500_000)
    dispatched = Figure("put_arrow, appended and dispatched", "msg/s", limit=appended["recycled"].limit)
    dispatched.note = "recycled memory"
    durable = Figure("put_arrow, SYNC_FLUSH, durable", "msg/s", limit=setting.records_limit("durable sequential write"))
    durable.note = "recycled memory"
    for i in range(setting.repeats):
        appended["fresh"].values.append(count / _put(setting, f"put-{i}", table, "ASYNC_FLUSH")[0])
    for i in range(setting.repeats):
        seconds = _put(setting, f"put-{i}", table, "ASYNC_FLUSH")
        appended["recycled"].values.append(count / seconds[0])
        dispatched.values.append(count / seconds[1])
        durable.values.append(count / _put(setting, f"put-{i}", table, "SYNC_FLUSH")[0])
    for i in range(setting.repeats):
        setting.remove(setting.folder(f"put-{i}"))
    return [*appended.values(), dispatched, durable]


def _put(setting: Setting, name: str, table: object, flush_disk_type: str) -> tuple[float, float]:
    """Seconds until the table is appended (under SYNC_FLUSH: on the disk), and until it is dispatched."""
    with MessageStore.open(setting.folder(name), flush_disk_type=flush_disk_type) as store:
        store.put_arrow(messages.table(100))
        store.wait_dispatched()
        start = time.perf_counter()
        store.put_arrow(table)
        appended = time.perf_counter() - start
        store.wait_dispatched(timeout=600)
        return appended, time.perf_counter() - start
