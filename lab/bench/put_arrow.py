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
    """Each store is in the memory that a removed one has given back; the first round does not count."""
    table = messages.table(setting.count(1_000_000))
    appended, dispatched, durable = figures = _figures(setting)
    for i in range(1 + setting.repeats):
        ours = _put(setting, table, FlushDiskType.ASYNC_FLUSH)
        theirs = _put_by_apache(setting, table)
        synced = _put(setting, table, FlushDiskType.SYNC_FLUSH)[0]
        disk = durable_write(setting.folder("put"), table.num_rows * messages.RECORD_SIZE)
        if i:
            for figure, seconds in zip((appended, dispatched, durable), (*ours, synced), strict=True):
                figure.values.append(table.num_rows / seconds)
            for figure, seconds in zip((appended, dispatched), theirs, strict=False):
                figure.add_other(table.num_rows / seconds)
            durable.add_other(table.num_rows / disk)
    for who in ("put", "apache"):
        setting.remove(setting.folder(who))
    return list(figures)


def _figures(setting: Setting) -> tuple[Figure, Figure, Figure]:
    """Appended, dispatched, and durable."""
    limit = setting.records_limit("page cache pwrite, recycled")
    appended = Figure("put_arrow, appended, dispatch running, recycled memory", "msg/s", limit=limit)
    dispatched = Figure("put_arrow, appended and dispatched, recycled memory", "msg/s", limit=limit)
    durable = Figure("put_arrow, SYNC_FLUSH, durable", "msg/s", limit=setting.records_limit("durable sequential write"))
    appended.goal = Goal(least=1_500_000)
    appended.note = "of RocketMQ too: until the last put was answered"
    if setting.apache is not None:
        how = "putMessages, 1000 a call" if setting.apache.batch else "putMessage"
        appended.other, dispatched.other = setting.apache.other(), setting.apache.other(5)
        dispatched.note = f"RocketMQ by {how}, the faster of its two ways here"
    durable.other = Other("the disk", least=0.8)
    durable.note = "recycled memory; the disk: as many bytes in a new file, by the fastest of four ways"
    return appended, dispatched, durable


def _put_by_apache(setting: Setting, table: pa.Table) -> tuple[float, ...]:
    """Seconds of RocketMQ until the messages are appended, and until they are dispatched; none where it is left out."""
    if setting.apache is None:
        return ()
    with setting.apache.open(setting.folder("apache")) as store:
        answer = store.put(table.num_rows, batch=setting.apache.batch)
    return answer["appended"], answer["dispatched"]


def _put(setting: Setting, table: pa.Table, flush_disk_type: FlushDiskType) -> tuple[float, float]:
    """Seconds until the table is appended (under SYNC_FLUSH: on the disk), and until it is dispatched."""
    with MessageStore.open(setting.folder("put"), flush_disk_type=flush_disk_type) as store:
        store.put_arrow(messages.table(100))
        store.wait_dispatched()
        start = time.perf_counter()
        store.put_arrow(table)
        appended = time.perf_counter() - start
        store.wait_dispatched(timeout=600)
        return appended, time.perf_counter() - start
