"""The job that writes a log as Parquet, synced, and what JSON bodies cost that become columns."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.figures import Figure, Goal
from bench.setting import Setting
from reput.jobs import export as job
from reput.jobs.decoding import make_decoder
from reput.jobs.runner import LocalRunner

_JSON_ROWS = 1_000_000
_BATCH_ROWS = 32_768
_SCHEMA = "id bigint, price double, customer string, paid boolean, region string, note string"


def measure(setting: Setting) -> list[Figure]:
    """Messages a second of a whole run, of one thread and of two; of a run that finds nothing new; of JSON alone."""
    rates = [
        Figure("export to Parquet, all columns, synced", "msg/s", goal=Goal(least=1_200_000)),
        Figure("export to Parquet, all columns, one thread", "msg/s"),
    ]
    small = Figure("export to Parquet, five columns and bodies", "msg/s")
    nothing = Figure("export of a log with nothing new", "s")
    for i in range(1 + setting.repeats):
        output = setting.folder("exported")
        for figure, threads in zip(rates, (2, 1), strict=True):
            value = _export(setting, output, threads)
            if i:  # the first round has taken memory from the host
                figure.values.append(value)
        started = time.perf_counter()
        job.export(setting.stock(), output, runner=LocalRunner(2))
        if i:
            nothing.values.append(time.perf_counter() - started)
        value = _export(setting, output, 2, columns=["store_timestamp", "tags", "keys", "unique_key", "body"])
        if i:
            small.values.append(value)
    for figure in (*rates, small):
        figure.limit = setting.records_limit("memcpy, two threads")
        figure.note = "Parquet, zstd 1"
    setting.remove(output)
    return [*rates, small, nothing, *_json(setting)]


def _export(setting: Setting, output: str, threads: int, columns: list[str] | None = None) -> float:
    """Messages a second of an export into an empty folder."""
    setting.remove(output)
    options = replace(job.ExportOptions(), columns=columns)
    result = job.export(setting.stock(), output, runner=LocalRunner(threads), options=options)
    if result.messages != setting.stock_count:
        raise AssertionError(f"{result.messages} of {setting.stock_count} messages were exported")
    return result.messages / result.seconds


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
