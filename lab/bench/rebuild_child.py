"""The processes of `rebuild_cores`: `python -m lab.bench.rebuild_child WHAT ARGUMENTS`, which prints its numbers."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from lab.bench.spark_child import most_resident_mb_of_workers
from reput.formats.index_file import DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM
from reput.jobs.rebuild import RebuildOptions, rebuild
from reput.jobs.runner import LocalRunner, Runner
from reput.kernels.queues.consume_queue import group_units
from reput.kernels.queues.index_file import IndexKeys, IndexTable, index_keys
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.scan import scan_split
from reput.log.splits import Split, plan_splits

_ROUNDS = 3


def local_rates(path: str, output: str, threads: str, begin: str) -> list[float]:
    """Messages a second of the kernels alone, and of a rebuild, by so many threads, both from the time `begin` on."""
    runner = LocalRunner(int(threads))
    kernels = partial(_kernels, path, runner)
    job = partial(_job, path, output, runner)
    kernels()
    job()
    time.sleep(max(float(begin) - time.time(), 0))
    return _rates(kernels, job)


def spark_rates(path: str, output: str, cores: str) -> list[float]:
    """The same in so many processors of Spark; then the memory of the worker that had most, in MB."""
    from reput.spark import session
    from reput.spark.runner import SparkRunner

    spark = session(f"local[{cores}]")
    runner = SparkRunner(spark)
    kernels = partial(_kernels, path, LocalRunner(int(cores)))
    job = partial(_job, path, output, runner)
    kernels()
    job()
    rates = _rates(kernels, job)
    (memory,) = runner.run(most_resident_mb_of_workers, [0], description="memory")
    spark.stop()
    return [*rates, max(memory)]


def _rates(*measured: Callable[[], float]) -> list[float]:
    """Medians over some rounds, in turns."""
    rounds = [[measure() for measure in measured] for _ in range(_ROUNDS)]
    return [float(np.median(values)) for values in zip(*rounds, strict=True)]


def _job(path: str, output: str, runner: Runner) -> float:
    result = rebuild(path, f"{output}/rebuilt", runner=runner)
    shutil.rmtree(f"{output}/rebuilt")
    return result.messages / result.seconds


def _kernels(path: str, runner: LocalRunner) -> float:
    """Work of a rebuild but for files: read the log, make units, build the index, all of it in memory."""
    started = time.perf_counter()
    splits = plan_splits(StoreDirectory(path).log_files(), RebuildOptions().split_bytes)
    scanned = runner.run(_scan, splits, description="scan")
    keys = [keys for _, of_split in scanned for keys in of_split]
    capacity = DEFAULT_INDEX_NUM - 1
    ends = np.cumsum([0, *(part.hashes.size for part in keys)])
    files = [_part(keys, ends, begin, capacity) for begin in range(0, int(ends[-1]), capacity)]
    runner.run(_build, files, description="build")
    return sum(rows for rows, _ in scanned) / (time.perf_counter() - started)


def _scan(split: Split) -> tuple[int, list[IndexKeys]]:
    rows, keys = 0, []
    for columns in scan_split(split, level=ScanLevel.KEYS):
        rows += columns.rows
        group_units(columns, columns["queue_offset"][columns.queue_rows].copy(), 0)
        found = index_keys(columns)
        keys.append(IndexKeys(found.hashes.copy(), found.offsets.copy(), found.timestamps.copy()))
    return rows, keys


def _part(keys: list[IndexKeys], ends: np.ndarray, begin: int, capacity: int) -> list[IndexKeys]:
    """The keys of one index file."""
    found = []
    for part, first in zip(keys, ends.tolist(), strict=False):
        piece = slice(max(begin - first, 0), max(begin + capacity - first, 0))
        if part.hashes[piece].size:
            found.append(IndexKeys(part.hashes[piece], part.offsets[piece], part.timestamps[piece]))
    return found


def _build(keys: list[IndexKeys]) -> int:
    table = IndexTable(DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM, 0, 0)
    for part in keys:
        table.put(part, 0)
    return int(table.count)


if __name__ == "__main__":
    _, what, *arguments = sys.argv
    print(*globals()[what](*arguments))
