"""`statistics`: how many messages and bytes a log holds, by topic, queue, tag and time.

Each task reduces its split to a small table; the merge adds the tables up. Headers and properties are read, no body is
looked at. What counts is the stored record: an inner batch is one message, and a compressed body counts as stored.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from reput.errors import ConfigError, CorruptRecordError
from reput.jobs.runner import Progress, Runner
from reput.jobs.split_tasks import run_over_splits
from reput.kernels.columns import RecordColumns
from reput.kernels.record_batch import record_batch
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.scan import scan_split
from reput.log.splits import Split, SplitResult, plan_splits

Dimension = Literal["topic", "queue", "tag"]

SPLIT_BYTES = 64 << 20
_COLUMN_OF = {"topic": "topic", "queue": "queue_id", "tag": "tags"}
_SUMS = ("messages", "bytes", "body_bytes")
_BUCKET = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Statistics:
    """What `statistics` found.

    Attributes:
        table: a row a group: the columns of `by` in their order (topic string, queue_id int32, tags string, null for
            messages without), `store_timestamp` or `born_timestamp` (timestamp[us, UTC], the bucket's start, null for
            times outside the years 1 to 9999), then messages, bytes (whole records) and body_bytes, int64. Sorted by
            the group's columns, null last.
        messages: of the whole log.
        log_bytes: of all their records.
        seconds: of the job.
    """

    table: pa.Table
    messages: int
    log_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Grouping:
    """The columns of a group, and the width of a time bucket in ms (0: no time)."""

    columns: tuple[str, ...]
    time_column: str
    bucket_ms: int

    @property
    def names(self) -> list[str]:
        """All columns of a group."""
        return [*self.columns, *([self.time_column] if self.bucket_ms else [])]

    @property
    def level(self) -> ScanLevel:
        """How much a scan must extract."""
        return ScanLevel.PROPERTIES if "tags" in self.columns else ScanLevel.QUEUES


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one task tells the merge; `read` and `fault` as in `SplitOutcome`."""

    read: SplitResult
    table: pa.Table | None
    fault: CorruptRecordError | None


def statistics(
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    by: Sequence[Dimension] = ("topic", "queue", "tag"),
    bucket: str | None = "1h",
    time_of: Literal["store", "born"] = "store",
    commit_log_path: str | os.PathLike[str] | None = None,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
) -> Statistics:
    """Count the messages of a log by some of topic, queue and tag, and by time.

    Args:
        by: what makes a group, beside the time.
        bucket: width of a time bucket: a number and s, m, h or d (`15m`), aligned to 1970 UTC; None for no time.
        time_of: whether the bucket is that of the store timestamp or of the born timestamp.

    Raises:
        ConfigError: an unknown name in `by` or `time_of`, or a `bucket` that is no width.
        StoreFormatError: no store, or a foreign file in its log.
        CorruptRecordError: damage in the log.
    """
    started = time.perf_counter()
    grouping = _grouping(by, bucket, time_of)
    splits = plan_splits(StoreDirectory(store_path, commit_log_path=commit_log_path).log_files(), split_bytes)
    outcomes, _ = run_over_splits(
        runner, partial(_reduce, grouping), splits, description="read the log", progress=progress
    )
    tables = [outcome.table for outcome in outcomes if outcome.table is not None]
    table = _add_up(tables, grouping) if tables else _empty(grouping)
    order = [(name, "ascending") for name in grouping.names]
    table = table.sort_by(order) if order else table
    messages, log_bytes = (sum(table[name].to_pylist()) for name in ("messages", "bytes"))
    return Statistics(table, messages, log_bytes, time.perf_counter() - started)


def _grouping(by: Sequence[str], bucket: str | None, time_of: str) -> _Grouping:
    unknown = [name for name in by if name not in _COLUMN_OF]
    if unknown or len(set(by)) != len(by):
        raise ConfigError(f"by={','.join(by)}: expected each of topic, queue and tag at most once")
    if time_of not in ("store", "born"):
        raise ConfigError(f"time_of={time_of}: expected store or born")
    match = _BUCKET.fullmatch(bucket) if bucket is not None else None
    if bucket is not None and match is None:
        raise ConfigError(f"bucket={bucket}: expected a number and s, m, h or d: 15m, 1h, 1d")
    bucket_ms = int(match[1]) * _UNIT_MS[match[2]] if match else 0
    return _Grouping(tuple(_COLUMN_OF[name] for name in by), f"{time_of}_timestamp", bucket_ms)


def _reduce(grouping: _Grouping, split: Split) -> _Outcome:
    """The task: one split -> a table with a row a group."""
    scan = scan_split(split, level=grouping.level, check_crc=False)
    tables: list[pa.Table] = []
    fault: CorruptRecordError | None = None
    try:
        for columns in scan:
            tables.append(_count(columns, grouping))
    except CorruptRecordError as error:
        fault = error
    return _Outcome(scan.result, _add_up(tables, grouping) if tables else None, fault)


def _count(columns: RecordColumns, grouping: _Grouping) -> pa.Table:
    """The groups of one scan. Rows are grouped by queue number and by the tag's number; names come last."""
    arrays: dict[str, Any] = {"queue": pa.array(columns["queue"].copy())}
    tags: Any = None
    if "tags" in grouping.columns:
        tags = record_batch(columns, ["tags"]).column(0).dictionary_encode()
        arrays["tag"] = tags.indices
    if grouping.bucket_ms:
        arrays[grouping.time_column] = _buckets(columns, grouping)
    codes = list(arrays)
    arrays["bytes"] = pa.array(columns["store_size"].copy())
    arrays["body_bytes"] = pa.array(columns["body_size"].copy())
    grouped = pa.table(arrays).group_by(codes, use_threads=False)
    counted = grouped.aggregate([([], "count_all"), ("bytes", "sum"), ("body_bytes", "sum")])
    topics = pa.array([topic.decode("utf-8", "replace") for topic, _ in columns.queues()], pa.string())
    queue_ids = pa.array([queue_id for _, queue_id in columns.queues()], pa.int32())
    named = {
        "topic": topics.take(counted["queue"].combine_chunks()),
        "queue_id": queue_ids.take(counted["queue"].combine_chunks()),
    }
    if tags is not None:
        named["tags"] = tags.dictionary.take(counted["tag"].combine_chunks())
    if grouping.bucket_ms:
        named[grouping.time_column] = counted[grouping.time_column]
    sums = [counted["count_all"], counted["bytes_sum"], counted["body_bytes_sum"]]
    return pa.table([*(named[name] for name in grouping.names), *sums], names=[*grouping.names, *_SUMS])


def _buckets(columns: RecordColumns, grouping: _Grouping) -> pa.Array:
    """timestamp[us, UTC], the start of each row's bucket."""
    times = record_batch(columns, [grouping.time_column]).column(0)
    width = 1000 * grouping.bucket_ms
    starts = np.asarray(times.view(pa.int64()).fill_null(0)) // width * width
    return pa.array(starts, mask=np.asarray(times.is_null())).view(times.type)


def _add_up(tables: Sequence[pa.Table], grouping: _Grouping) -> pa.Table:
    """One row for each group of all tables."""
    grouped = (
        pa.concat_tables(tables)
        .group_by(grouping.names, use_threads=False)
        .aggregate([(name, "sum") for name in _SUMS])
    )
    names = [*grouping.names, *(f"{name}_sum" for name in _SUMS)]
    return grouped.select(names).rename_columns([*grouping.names, *_SUMS])


def _empty(grouping: _Grouping) -> pa.Table:
    types = {"topic": pa.string(), "queue_id": pa.int32(), "tags": pa.string()}
    fields = [(name, types.get(name, pa.timestamp("us", "UTC"))) for name in grouping.names]
    return pa.schema([*fields, *((name, pa.int64()) for name in _SUMS)]).empty_table()
