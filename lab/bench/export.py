"""The job that writes a log as Parquet, synced, and what JSON bodies cost that become columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.bench.apache import Broker
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.jobs.decoding import make_decoder
from reput.jobs.lake import export_job as job
from reput.jobs.runner import LocalRunner

_JSON_ROWS = 1_000_000
_BATCH_ROWS = 32_768
_SCHEMA = "id bigint, price double, customer string, paid boolean, region string, note string"


def measure(setting: Setting) -> list[Figure]:
    """Messages a second of a whole run, by one thread and by two; a run that finds nothing new; JSON by itself."""
    both = Figure("export to Parquet, all columns, synced", "msg/s", goal=Goal(least=1_200_000))
    one = Figure("export to Parquet, all columns, one thread", "msg/s")
    three = Figure("export to Parquet, all columns, three threads", "msg/s", note="one more waits for the disk")
    few = Figure("export to Parquet, four columns and bodies", "msg/s")
    nothing = Figure("export of a log with nothing new", "s")
    output = setting.folder("exported")
    asked: list[tuple[list[float], Callable[[], float]]] = [
        (one.values, lambda: _export(setting, output, 1)),
        (both.values, lambda: _export(setting, output, 2)),
        (three.values, lambda: _export(setting, output, 3)),
        (nothing.values, lambda: _again(setting, output)),
        (few.values, lambda: _export(setting, output, 2, ["store_timestamp", "tags", "keys", "unique_key", "body"])),
    ]
    figures = [both, one, three, few, nothing]
    broker = None
    if setting.apache is not None:
        broker = Broker(setting.copy(setting.stock(), "stock-broker"))
        both.note = "the other: RocketMQ's client, 1000 a pull through its broker, written nowhere"
        both.other = setting.apache.other()
        pulled = Figure("RocketMQ's client through its broker, 32 a pull", "msg/s", note="by default, 8 threads")
        figures.append(pulled)
        for values, batch in ((both.other.values, 1_000), (pulled.values, 32)):
            asked.append((values, partial(broker.pull, setting.stock_count, batch)))
    with broker or nullcontext():
        for i in range(1 + setting.repeats):
            for values, ask in asked:
                value = ask()
                if i:  # the first round has taken memory from the host, and warmed a JVM
                    values.append(value)
    for figure in (both, one, three, few):
        figure.limit = setting.records_limit("memcpy, two threads")
    setting.remove(output)
    return [*figures, *_json(setting)]


def _export(setting: Setting, output: str, threads: int, columns: Sequence[str] | None = None) -> float:
    """Messages a second of an export into an empty folder."""
    setting.remove(output)
    options = job.ExportOptions(columns=columns)
    result = job.export(setting.stock(), output, runner=LocalRunner(threads), options=options)
    if result.messages != setting.stock_count:
        raise AssertionError(f"{result.messages} of {setting.stock_count} messages were exported")
    return result.messages / result.seconds


def _again(setting: Setting, output: str) -> float:
    """Seconds of one more export into the same folder."""
    started = time.perf_counter()
    job.export(setting.stock(), output, runner=LocalRunner(2))
    return time.perf_counter() - started


def _json(setting: Setting) -> list[Figure]:
    """Bodies a second that become columns, on one core; all good, and with one bad in a thousand."""
    good = json_bodies(setting.count(_JSON_ROWS))
    bad = pc.if_else(pc.equal(pc.bit_wise_and(np.arange(len(good)), 1023), 0), pa.scalar(b"no object"), good)
    decoder = make_decoder("json", _SCHEMA)
    figures = []
    for kind, bodies in (("one core", good), ("one core, one bad in a thousand", bad)):
        figure = Figure(f"JSON bodies to columns, {kind}", "msg/s")
        figure.note = f"six fields, {good.nbytes // len(good) - 4} bytes a body"
        for _ in range(setting.repeats):
            started = time.perf_counter()
            for begin in range(0, len(bodies), _BATCH_ROWS):
                decoder.decode(bodies.slice(begin, _BATCH_ROWS))
            figure.values.append(len(bodies) / (time.perf_counter() - started))
        figures.append(figure)
    return figures


def json_bodies(rows: int) -> pa.Array:
    """Orders as JSON objects of six fields, a binary array."""
    numbers = pa.array(np.arange(rows))
    texts = numbers.cast(pa.string())
    return pc.binary_join_element_wise(
        '{"id": ', texts, ', "price": ', pc.divide(numbers, 8.0).cast(pa.string()), ', "customer": "customer-', texts,
        '", "paid": true, "region": "eu-central", "note": "left at the neighbour\'s door"}', "",
    ).cast(pa.binary())  # fmt: skip
