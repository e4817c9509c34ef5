"""What ten thousand queues cost over ten: putting, dispatching, opening, closing, in one run."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa

from bench import messages
from bench.figures import Figure, Goal, stopwatch
from bench.setting import Setting
from reput import Message, MessageStore

_TOPICS_SHARE = 4
_FEW, _MANY = 10, 10_000


def measure(setting: Setting) -> list[Figure]:
    """Rates over many queues as parts of those over few; seconds of a start and an end with many."""
    count, singles = setting.count(1_000_000), setting.count(100_000)
    many = max(setting.count(_MANY), 2 * _FEW)
    arrow = Figure("put_arrow over many queues, part of the rate over ten", "x", goal=Goal(least=0.9))
    single = Figure("put_message over many queues, part of the rate over ten", "x", goal=Goal(least=0.9))
    dispatched = Figure("put_arrow over many queues, appended and dispatched", "msg/s", goal=Goal(least=1_000_000))
    closing = Figure("close of many queues, all written", "s", goal=Goal(most=5))
    opening = Figure("open of many queues after a clean exit", "s", goal=Goal(most=5))
    recovery = Figure("open of many queues after a kill", "s", goal=Goal(most=5))
    for i in range(setting.repeats):
        few_rates = _rates(setting.folder(f"few-{i}"), _FEW, count, singles)
        path = setting.folder(f"many-{i}")
        rates = _rates(path, many, count, singles)
        arrow.values.append(rates["appended"] / few_rates["appended"])
        single.values.append(rates["single"] / few_rates["single"])
        dispatched.values.append(rates["dispatched"])
        closing.values.append(rates["close"])
        for figure, killed in ((opening, False), (recovery, True)):
            if killed:  # what a kill leaves: the log whole, the marker there, and nothing that says how far it is
                with open(f"{path}/abort", "w"):
                    pass
            with stopwatch() as watch:
                store = MessageStore.open(path, flush_disk_type="ASYNC_FLUSH")
            figure.values.append(watch.seconds)
            figure.note = f"{many:,} queues, {len(os.listdir('/proc/self/fd'))} descriptors open"
            store.close()
    for i in range(setting.repeats):  # not before: files made right after others were removed take far longer
        setting.remove(f"{setting.directory}/few-{i}")
        setting.remove(f"{setting.directory}/many-{i}")
    return [arrow, single, dispatched, closing, opening, recovery]


def _rates(path: str, queues: int, count: int, singles: int) -> dict[str, float]:
    table, body = _table(count, queues), messages.body(0)
    several = [Message(f"topic{i % _topics(queues):05d}", body) for i in range(singles)]
    store = MessageStore.open(path, flush_disk_type="ASYNC_FLUSH")
    store.put_arrow(table.slice(0, 2 * queues))
    store.wait_dispatched(timeout=600)
    begin = time.perf_counter()
    store.put_arrow(table)
    appended = time.perf_counter()
    store.wait_dispatched(timeout=600)
    dispatched = time.perf_counter()
    for message in several:
        store.put_message(message)
    ended = time.perf_counter()
    store.wait_dispatched(timeout=600)
    with stopwatch() as watch:
        store.close()
    return {
        "appended": count / (appended - begin),
        "dispatched": count / (dispatched - begin),
        "single": singles / (ended - dispatched),
        "close": watch.seconds,
    }


def _topics(queues: int) -> int:
    return max(queues // _TOPICS_SHARE, 1)


def _table(count: int, queues: int) -> pa.Table:
    """The messages of `bench.messages`, over the queues in a random order."""
    table, topics = messages.table(count), _topics(queues)
    numbers = np.random.default_rng(queues).permutation(np.arange(count) % queues)
    names = pa.array([f"topic{i:05d}" for i in range(topics)])
    topic = names.take(pa.array(numbers % topics))
    queue_id = pa.array((numbers // topics).astype(np.int32))
    for name, column in (("topic", topic), ("queue_id", queue_id)):
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
