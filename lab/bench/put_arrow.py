"""Appending one table with live dispatch running: until it is appended, and until queues and index have it."""

from __future__ import annotations

import time

import pyarrow as pa

from lab.bench import messages
from lab.bench.figures import Figure, Goal, Other
from lab.bench.limits import durable_write
from lab.bench.setting import Setting
from reput import FlushDiskType, MessageStore


def measure(setting: Setting) -> list[Figure]:
    """First fresh stores side by side, then stores in the memory that removed ones have given back."""
    table = messages.table(setting.count(1_000_000))
    fresh, recycled, durable = _figures(setting)
    for i in range(setting.repeats):
        _take_turns(setting, str(i), table, fresh)
    for i in range(setting.repeats):
        _take_turns(setting, str(i), table, recycled)
        durable.values.append(table.num_rows / _put(setting, f"put-{i}", table, FlushDiskType.SYNC_FLUSH)[0])
        seconds = durable_write(setting.folder(f"put-{i}"), table.num_rows * messages.RECORD_SIZE)
        durable.add_other(table.num_rows / seconds)
    for i in range(setting.repeats):
        for who in ("put", "apache"):
            setting.remove(setting.folder(f"{who}-{i}"))
    return [*fresh, *recycled, durable]


def _figures(setting: Setting) -> tuple[list[Figure], list[Figure], Figure]:
    """Appended and dispatched of each memory, and durable."""
    pairs = {}
    for memory in ("fresh", "recycled"):
        limit = setting.records_limit(f"page cache pwrite, {memory}")
        pairs[memory] = [
            Figure(f"put_arrow, {state}, {memory} memory", "msg/s", limit=limit)
            for state in ("appended, dispatch running", "appended and dispatched")
        ]
        pairs[memory][0].note = "of RocketMQ too: until the last put was answered"
        if setting.apache is not None:
            how = "putMessages, 1000 a call" if setting.apache.batch else "putMessage"
            least = 5 if memory == "recycled" else None
            pairs[memory][0].other, pairs[memory][1].other = setting.apache.other(), setting.apache.other(least)
            pairs[memory][1].note = f"RocketMQ by {how}, the faster of its two ways here"
    pairs["fresh"][0].note = "memory as the host lends it; compare the two page cache limits"
    pairs["recycled"][0].goal = Goal(least=1_500_000)
    durable = Figure("put_arrow, SYNC_FLUSH, durable", "msg/s", limit=setting.records_limit("durable sequential write"))
    durable.other = Other("the disk", least=0.8)
    durable.note = "recycled memory; the disk: as many bytes in a new file, by the fastest of four ways"
    return pairs["fresh"], pairs["recycled"], durable


def _take_turns(setting: Setting, name: str, table: pa.Table, figures: list[Figure]) -> None:
    """One round of ours, and one of RocketMQ's."""
    for figure, seconds in zip(figures, _put(setting, f"put-{name}", table, FlushDiskType.ASYNC_FLUSH), strict=True):
        figure.values.append(table.num_rows / seconds)
    if setting.apache is None:
        return
    with setting.apache.open(setting.folder(f"apache-{name}")) as store:
        answer = store.put(table.num_rows, batch=setting.apache.batch)
    for figure, state in zip(figures, ("appended", "dispatched"), strict=True):
        figure.add_other(table.num_rows / answer[state])


def _put(setting: Setting, name: str, table: pa.Table, flush_disk_type: FlushDiskType) -> tuple[float, float]:
    """Seconds until the table is appended (under SYNC_FLUSH: on the disk), and until it is dispatched."""
    with MessageStore.open(setting.folder(name), flush_disk_type=flush_disk_type) as store:
        store.put_arrow(messages.table(100))
        store.wait_dispatched()
        start = time.perf_counter()
        store.put_arrow(table)
        appended = time.perf_counter() - start
        store.wait_dispatched(timeout=600)
        return appended, time.perf_counter() - start
