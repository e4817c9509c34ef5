"""Rows of `diff`: a key and a hash for each message, first summed up by buckets of keys, then one by one.

A bucket is a range of keys of one queue, or of the log. Hashes add up in any order, so the sums of all tasks make the
sums of the store. Two stores agree in a bucket if its count and sum are equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE, Unit
from reput.formats.paths import file_name_to_offset
from reput.formats.record_layout import SysFlag
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, UNIT_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.content_hash import hash_contents
from reput.kernels.records.placeholders import without_placeholders
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import Damages
from reput.log.directory import QueueFiles
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitResult

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
By = Literal["log", "queue"]

#: Size of a bucket: in commit log bytes, and in queue offsets.
_LOG_BUCKET, _QUEUE_BUCKET = 1 << 20, 1 << 12
_ODD = np.uint64(0x9FB21C651E98DF25)

#: Topic and queue id; `WHOLE_LOG` for rows of the whole log.
Name = tuple[bytes, int]
WHOLE_LOG: Name = (b"", 0)


def has_properties_as_map(by: By) -> bool:
    """Whether properties are compared as the map that RocketMQ reads; else by their bytes.

    A client or a store that puts a message again may write its properties in another order, as Java's HashMap does. Two
    logs with the same offsets are copies of each other, byte for byte.
    """
    return by == "queue"


class Rows(NamedTuple):
    """Messages, one element each.

    Attributes:
        names: of queues.
        queues: int64[n], numbers into `names`.
        keys: int64[n], the queue offset (-1 for prepared and rolled back messages, which have none), or the commit log
            offset. Messages with the same key are compared.
        hashes: uint64[n], of the contents.
        offsets, sizes, queue_offsets: int64[n], of the records.
    """

    names: tuple[Name, ...]
    queues: Int64s
    keys: Int64s
    hashes: UInt64s
    offsets: Int64s
    sizes: Int64s
    queue_offsets: Int64s


class Buckets(NamedTuple):
    """Counts and sums of rows, one element a bucket: int64[n], and uint64[n] for the sums of hashes."""

    names: tuple[Name, ...]
    queues: Int64s
    buckets: Int64s
    counts: Int64s
    sums: UInt64s


class WantedBuckets(NamedTuple):
    """Buckets whose rows are wanted, with columns of `Buckets`."""

    names: tuple[Name, ...]
    queues: Int64s
    buckets: Int64s


@dataclass(frozen=True, slots=True)
class RowTarget:
    """Options of tasks: key, ignored fields, and the buckets whose rows are wanted. Without `wanted`: sums of all."""

    by: By
    ignored: int
    wanted: WantedBuckets | None = None


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """Outcome of a task for one split, a `SplitOutcome`. Damage is passed over, so there is no fault."""

    read: SplitResult
    buckets: Buckets | None
    rows: tuple[Rows, ...]
    damages: Damages
    fault: CorruptRecordError | None = None


class QueueItem(NamedTuple):
    """One queue of a directory without a log."""

    files: QueueFiles
    is_batch: bool
    layer: FileLayer


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """Outcome of a task for one queue."""

    buckets: Buckets | None
    rows: tuple[Rows, ...]


def read_split_rows(target: RowTarget, split: Split) -> RowOutcome:
    """Task: read one split of a log. CRCs are not checked: a damaged body is a difference."""
    scan = scan_split(split, level=ScanLevel.QUEUES, check_crc=False, on_damage=OnDamage.SKIP)
    buckets, rows = _collect(
        target, (_record_rows(target, messages) for columns in scan if (messages := without_placeholders(columns)).rows)
    )
    return RowOutcome(scan.result, buckets, rows, scan.damages)


def read_queue_rows(target: RowTarget, queue: QueueItem) -> QueueOutcome:
    """Task: read one queue of a directory without a log. A unit counts as a message."""
    buckets, rows = _collect(target, _unit_rows(queue))
    return QueueOutcome(buckets, rows)


def _collect(target: RowTarget, batches: Iterator[Rows]) -> tuple[Buckets | None, tuple[Rows, ...]]:
    if target.wanted is None:
        return add_up([_sums(target.by, rows) for rows in batches]), ()
    wanted = BucketSet(target.wanted)
    return None, tuple(_wanted_rows(target.by, rows, wanted) for rows in batches)


def _record_rows(target: RowTarget, columns: RecordColumns) -> Rows:
    offsets, queue_offsets = columns["commit_log_offset"], columns["queue_offset"]
    keys = offsets
    if target.by == "queue":
        kind = columns["sys_flag"] & SysFlag.TRANSACTION_MASK
        has_none = (kind == SysFlag.TRANSACTION_PREPARED) | (kind == SysFlag.TRANSACTION_ROLLBACK)
        keys = np.where(has_none, -1, queue_offsets)
    return Rows(
        tuple(columns.queues()), columns["queue"].astype(np.int64), keys,
        hash_contents(columns, target.ignored, properties_as_map=has_properties_as_map(target.by)),
        offsets, columns["store_size"].astype(np.int64), queue_offsets,
    )  # fmt: skip


def _unit_rows(queue: QueueItem) -> Iterator[Rows]:
    kind = BATCH_UNIT_TYPE if queue.is_batch else UNIT_TYPE
    for path in queue.files.paths:
        start = file_name_to_offset(os.path.basename(path))
        assert start is not None, "StoreDirectory lists no other files"
        data = queue.layer.read_bytes(path)
        units = np.frombuffer(data, kind, len(data) // kind.itemsize)
        used = np.flatnonzero(
            (units["size"] > 0) & (units["message_count"] > 0 if queue.is_batch else units["size"] != FILLER.size)
        )
        units = units[used]
        offsets, sizes = units["commit_log_offset"].astype(np.int64), units["size"].astype(np.int64)
        fields = ("store_timestamp", "message_count") if queue.is_batch else ()
        words = [units[name].astype(np.int64).view(np.uint64) for name in (*Unit._fields, *fields)]
        hashes = np.zeros(used.size, np.uint64)
        for word in words:
            hashes = (hashes ^ word) * _ODD
            hashes ^= hashes >> np.uint64(32)
        slots = units["base_offset"].astype(np.int64) if queue.is_batch else start // UNIT_SIZE + used
        queues, name = np.zeros(used.size, np.int64), (queue.files.topic.encode(), queue.files.queue_id)
        yield Rows((name,), queues, slots, hashes, offsets, sizes, slots)


def _buckets_of(by: By, keys: Int64s) -> Int64s:
    buckets: Int64s = keys // (_LOG_BUCKET if by == "log" else _QUEUE_BUCKET)
    return buckets


def _sums(by: By, rows: Rows) -> Buckets:
    buckets = _buckets_of(by, rows.keys)
    # A content hash may ignore the key. So it is mixed with the key: two rows that have swapped keys must be noticed.
    hashes = (rows.hashes ^ rows.keys.view(np.uint64)) * _ODD
    if by == "log":
        return _add_up((WHOLE_LOG,), np.zeros(buckets.size, np.int64), buckets, np.ones_like(buckets), hashes)
    return _add_up(rows.names, rows.queues, buckets, np.ones_like(buckets), hashes)


def _add_up(names: tuple[Name, ...], queues: Int64s, buckets: Int64s, counts: Int64s, sums: UInt64s) -> Buckets:
    """Add up rows to one element for each queue and bucket."""
    if not queues.size:
        return Buckets(names, queues, buckets, counts, sums)
    small = queues.astype(np.uint16) if len(names) < 1 << 16 else queues  # sixteen bits are sorted by counting
    order = np.argsort(small, kind="stable")
    if ((np.diff(buckets[order]) < 0) & (np.diff(queues[order]) == 0)).any():  # log order differs from queue order
        order = np.lexsort((buckets, queues))
    queues, buckets = queues[order], buckets[order]
    starts = np.flatnonzero(np.append(True, (np.diff(queues) != 0) | (np.diff(buckets) != 0)))
    return Buckets(
        names, queues[starts], buckets[starts], np.add.reduceat(counts[order], starts),
        np.add.reduceat(sums[order], starts),
    )  # fmt: skip


def add_up(results: Sequence[Buckets]) -> Buckets:
    """Add up the sums of several results by queue and bucket. Names are in the order of their first result."""
    numbers: dict[Name, int] = {}
    columns: list[tuple[npt.NDArray[np.int64 | np.uint64], ...]] = []
    for result in results:
        queue_numbers = np.array([numbers.setdefault(name, len(numbers)) for name in result.names], np.int64)
        if result.queues.size:
            columns.append((queue_numbers[result.queues], result.buckets, result.counts, result.sums))
    if not columns:
        none = np.empty(0, np.int64)
        return Buckets(tuple(numbers), none, none, none, np.empty(0, np.uint64))
    queues, buckets, counts, sums = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _add_up(tuple(numbers), queues, buckets, counts, sums)


class BucketSet:
    """Set of wanted buckets, which tests many buckets at once."""

    def __init__(self, wanted: WantedBuckets) -> None:
        self._numbers = {name: number for number, name in enumerate(wanted.names)}
        self._buckets = np.unique(wanted.buckets)
        self._keys = np.unique(self._key(wanted.queues, np.searchsorted(self._buckets, wanted.buckets)))

    def _key(self, numbers: Int64s, indices: Int64s) -> Int64s:
        """One number for a queue and a bucket's index."""
        return numbers * self._buckets.size + indices

    def has(self, names: tuple[Name, ...], queues: Int64s, buckets: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n], whether a bucket is wanted. `queues` are numbers into `names`."""
        numbers = np.array([self._numbers.get(name, -1) for name in names], np.int64)[queues]
        indices = np.minimum(np.searchsorted(self._buckets, buckets), self._buckets.size - 1)
        inside: npt.NDArray[np.bool_] = np.isin(self._key(numbers, indices), self._keys)
        inside &= (numbers >= 0) & (self._buckets[indices] == buckets)
        return inside


def _wanted_rows(by: By, rows: Rows, wanted: BucketSet) -> Rows:
    """The rows in wanted buckets."""
    buckets = _buckets_of(by, rows.keys)
    if by == "log":
        kept = wanted.has((WHOLE_LOG,), np.zeros_like(buckets), buckets)
    else:
        kept = wanted.has(rows.names, rows.queues, buckets)
    return Rows(
        rows.names, rows.queues[kept], rows.keys[kept], rows.hashes[kept], rows.offsets[kept], rows.sizes[kept],
        rows.queue_offsets[kept],
    )  # fmt: skip
