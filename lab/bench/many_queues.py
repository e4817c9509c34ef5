"""Cost of ten thousand queues over ten: putting, dispatching, opening, closing, in one run."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa

from lab.bench import messages
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.setting import Setting
from reput import Message, MessageStore

_TOPICS_SHARE = 4
_FEW, _MANY = 10, 10_000
_ROUNDS = 5


def measure(setting: Setting) -> list[Figure]:
    """Rates over many queues as parts of those over few; seconds of a start and an end with many.

    Both stores hold a message in each queue before anything counts, and live as long as the run: making a queue is
    another cost, and the making of ten thousand files is as slow as the disk. They take turns, each in memory that a
    removed file has just given back, with nothing left to be written; the first of a round is the second of the next.
    """
    count, singles = setting.count(1_000_000), setting.count(100_000)
    many = max(setting.count(_MANY), 2 * _FEW)
    arrow = Figure("put_arrow over many queues, part of the rate over ten", "x", goal=Goal(least=0.9))
    single = Figure("put_message over many queues, part of the rate over ten", "x", goal=Goal(least=0.9))
    dispatched = Figure("put_arrow over many queues, appended and dispatched", "msg/s", goal=Goal(least=1_000_000))
    closing = Figure("close of many queues, all written", "s", goal=Goal(most=5))
    opening = Figure("open of many queues after a clean exit", "s", goal=Goal(most=5))
    recovery = Figure("open of many queues after a kill", "s", goal=Goal(most=5))
    turns = [_Turns(setting, "few", _FEW, count, singles), _Turns(setting, "many", many, count, singles)]
    for i in range(1 if setting.quick else _ROUNDS):
        rates = {turn.name: turn.take() for turn in (turns if i % 2 == 0 else reversed(turns))}
        arrow.values.append(rates["many"]["appended"] / rates["few"]["appended"])
        single.values.append(rates["many"]["single"] / rates["few"]["single"])
        dispatched.values.append(rates["many"]["dispatched"])
        closing.values.append(rates["many"]["close"])
        opening.values.append(rates["many"]["open"])
    path = f"{setting.directory}/many"
    for _ in range(setting.repeats):
        with open(f"{path}/abort", "w"):  # what a kill leaves: the log whole, and nothing that says how far it is
            pass
        with stopwatch() as watch:
            store = MessageStore.open(path, flush_disk_type="ASYNC_FLUSH")
        recovery.values.append(watch.seconds)
        opening.note = recovery.note = f"{many:,} queues, {len(os.listdir('/proc/self/fd'))} descriptors open"
        store.close()
        del store  # gives its maps back now, and not while the next one is timed
    for turn in turns:  # not before: files made right after others were removed take far longer
        setting.remove(f"{setting.directory}/{turn.name}")
    return [arrow, single, dispatched, closing, opening, recovery]


class _Turns:
    """A store that puts the same messages again and again.

    Attributes:
        name: Its folder.
    """

    def __init__(self, setting: Setting, name: str, queues: int, count: int, singles: int) -> None:
        self.name = name
        self._spare = f"{setting.directory}/spare"
        self._path = setting.folder(name)
        self._queues = queues
        self._table = _table(count, queues)
        body = messages.body(0)
        self._singles = [Message(f"topic{i % _topics(queues):05d}", body) for i in range(singles)]
        with MessageStore.open(self._path, flush_disk_type="ASYNC_FLUSH") as store:
            self._warm_up(store)

    def _warm_up(self, store: MessageStore) -> None:
        """A message into each queue: the store makes it, or has not looked at it since it was opened."""
        store.put_arrow(_table(self._queues, self._queues))
        store.wait_dispatched(timeout=600)

    def take(self) -> dict[str, float]:
        """Messages a second, and the seconds of open and close."""
        with stopwatch() as opening:
            store = MessageStore.open(self._path, flush_disk_type="ASYNC_FLUSH")
        self._warm_up(store)
        count, singles = self._table.num_rows, len(self._singles)
        _lend_memory(self._spare, (count + singles) * messages.RECORD_SIZE)
        begin = time.perf_counter()
        store.put_arrow(self._table)
        appended = time.perf_counter()
        store.wait_dispatched(timeout=600)
        dispatched = time.perf_counter()
        for message in self._singles:
            store.put_message(message)
        ended = time.perf_counter()
        store.wait_dispatched(timeout=600)
        with stopwatch() as closing:
            store.close()
        return {
            "appended": count / (appended - begin),
            "dispatched": count / (dispatched - begin),
            "single": singles / (ended - dispatched),
            "open": opening.seconds,
            "close": closing.seconds,
        }


def _lend_memory(path: str, size: int) -> None:
    """Have the host of a virtual machine lend so much memory, and nothing left to be written to the disk."""
    chunk = bytes(1 << 20)
    with open(path, "wb") as file:
        for _ in range(0, size, len(chunk)):
            file.write(chunk)
    os.remove(path)
    os.sync()


def _topics(queues: int) -> int:
    return max(queues // _TOPICS_SHARE, 1)


def _table(count: int, queues: int) -> pa.Table:
    """The messages of `lab.bench.messages`, over the queues in a random order."""
    table, topics = messages.table(count), _topics(queues)
    numbers = np.random.default_rng(queues).permutation(np.arange(count) % queues)
    names = pa.array([f"topic{i:05d}" for i in range(topics)])
    topic = names.take(pa.array(numbers % topics))
    queue_id = pa.array((numbers // topics).astype(np.int32))
    for name, column in (("topic", topic), ("queue_id", queue_id)):
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
