"""Count the rows of a scan by groups. Each dimension becomes numbers, and the numbers of a row become one number.

A dimension from a header column costs a few nanoseconds a message; texts become numbers by Arrow's dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.jobs.statistics.latency import latency_codes
from reput.kernels.records.columns import N_QUEUE, RecordColumns
from reput.kernels.records.record_batch import record_batch
from reput.kernels.records.record_scan import ScanLevel

#: Columns that are summed for each group.
SUMS = ("messages", "bytes", "body_bytes")
#: Column of latency codes; see `reput.jobs.statistics.latency`.
LATENCY = "latency"

TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "tags": pa.string(),
    "key": pa.string(),
    "born_host": pa.string(),
    "store_timestamp": pa.timestamp("us", "UTC"),
    "born_timestamp": pa.timestamp("us", "UTC"),
    LATENCY: pa.int64(),
}
_TEXTS = frozenset({"tags", "key"})
#: Milliseconds of 0001-01-01 and of 10000-01-01: the times that readers of Arrow can show.
_FIRST_MS, _END_MS = -62_135_596_800_000, 253_402_300_800_000
#: Group numbers up to this size are counted in an array of counters; larger ones are sorted first.
_TABLE = 1 << 17
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Grouping:
    """Columns and time bucket that make a group.

    Attributes:
        columns: some of topic, queue_id, tags, key and born_host.
        time_column: store_timestamp or born_timestamp.
        bucket_ms: width of a time bucket; 0: groups without time.
        latency: whether latency codes are counted, too.
    """

    columns: tuple[str, ...]
    time_column: str = "store_timestamp"
    bucket_ms: int = 0
    latency: bool = False

    @property
    def names(self) -> list[str]:
        """The columns of a group."""
        return [*self.columns, *([self.time_column] if self.bucket_ms else [])]

    @property
    def fine_names(self) -> list[str]:
        """The columns of the counted rows: the columns of a group, and the latency if it is wanted."""
        return [*self.names, *([LATENCY] if self.latency else [])]

    @property
    def level(self) -> ScanLevel:
        """Level of the scan that the columns need."""
        return ScanLevel.QUEUES if _TEXTS.isdisjoint(self.columns) else ScanLevel.PROPERTIES

    @property
    def counts_twice(self) -> bool:
        """Whether a message may be in several groups: it is counted for each of its keys."""
        return "key" in self.columns

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table from `count`."""
        return pa.schema([(name, TYPES[name]) for name in self.fine_names] + [(name, pa.int64()) for name in SUMS])


class _Dimension(NamedTuple):
    """Number of each row in 0 <= n < size, and the value of each number: columns of `size` values."""

    numbers: npt.NDArray[Any]
    values: dict[str, pa.Array]
    size: int


def count(columns: RecordColumns, grouping: Grouping) -> pa.Table:
    """Count the rows of one scan by groups: a table with `grouping.schema`, a row a group, in any order."""
    dimensions = []
    if not {"topic", "queue_id"}.isdisjoint(grouping.columns):
        dimensions.append(_queues(columns))
    if "tags" in grouping.columns:
        dimensions.append(_texts("tags", record_batch(columns, ["tags"]).column(0)))
    if "born_host" in grouping.columns:
        dimensions.append(_hosts(columns))
    if grouping.bucket_ms:
        dimensions.append(_buckets(columns[grouping.time_column], grouping))
    if grouping.latency:
        codes = latency_codes(columns["born_timestamp"], columns["store_timestamp"])
        dimensions.append(_integers(LATENCY, codes, pa.int64()))
    sizes = columns["store_size"], columns["body_size"]
    if "key" in grouping.columns:
        rows, keys = _keys(columns)
        sizes = sizes[0][rows], sizes[1][rows]
        dimensions = [one._replace(numbers=one.numbers[rows]) for one in dimensions]
        dimensions.append(_texts("key", keys))
    return _counted(dimensions, grouping, sizes)


def queues_of_points(columns: RecordColumns) -> RecordColumns:
    """Rows that were read at points, with their queues."""
    topics = record_batch(columns, ["topic"]).column(0).dictionary_encode()
    numbers = np.asarray(topics.indices).astype(np.int64) << 32 | columns["queue_id"].view(np.uint32)
    return _with_queues(columns, numbers)


def queues_of_selected(columns: RecordColumns) -> RecordColumns:
    """Rows that were selected from a scan, with their queues."""
    return _with_queues(columns, columns["queue"])


def _with_queues(columns: RecordColumns, queues: npt.NDArray[Any]) -> RecordColumns:
    """The rows with their queues, from a number for each row: the same number, the same queue."""
    _, firsts, numbers = np.unique(queues, return_index=True, return_inverse=True)
    narrow = columns.narrow.copy()
    narrow[N_QUEUE] = numbers
    return RecordColumns(
        columns.buffer, columns.base_offset, columns.consumed, columns.stop, columns.wide, narrow,
        firsts.astype(np.int32), columns.key_hashes, columns.key_rows,
    )  # fmt: skip


def add_up(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    """Add up tables of counts (at least one): a row a group, the columns `names` and `SUMS`."""
    rows = pa.concat_tables(tables).select([*names, *SUMS])
    if not rows.num_rows:
        return rows  # Arrow's group_by without names makes one row of none
    grouped = rows.group_by(names, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return grouped.select([*names, *(f"{name}_sum" for name in SUMS)]).rename_columns([*names, *SUMS])


def _counted(dimensions: Sequence[_Dimension], grouping: Grouping, sizes: Sequence[npt.NDArray[np.int32]]) -> pa.Table:
    rows = sizes[0].size
    groups, total = np.zeros(rows, np.int64), 1
    for one in dimensions:
        if total * one.size > _LARGEST:
            groups, total = _ranks(groups)
        groups = groups * one.size + one.numbers
        total *= one.size
    if total > _TABLE:
        groups, total = _ranks(groups)
    messages = np.bincount(groups, minlength=total)
    # float64 holds these sums exactly: a scan has less than 2^53 bytes.
    sums = [np.bincount(groups, weights=size, minlength=total).astype(np.int64) for size in sizes]
    row_of = np.empty(total, np.int64)
    row_of[groups] = np.arange(rows)  # any row of a group has the values of the group
    present = np.flatnonzero(messages)
    named: dict[str, pa.Array] = {}
    for one in dimensions:
        taken = pa.array(one.numbers[row_of[present]])
        named |= {name: values.take(taken) for name, values in one.values.items()}
    arrays = [named[name] for name in grouping.fine_names] + [pa.array(array[present]) for array in (messages, *sums)]
    return pa.Table.from_arrays(arrays, schema=grouping.schema)


def _ranks(groups: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Rank of each number among the distinct numbers, and the count of distinct numbers."""
    distinct, ranks = np.unique(groups, return_inverse=True)
    return ranks, distinct.size


def _queues(columns: RecordColumns) -> _Dimension:
    queues = columns.queues()
    topics = pa.array([topic.decode("utf-8", "replace") for topic, _ in queues], pa.string())
    queue_ids = pa.array([queue_id for _, queue_id in queues], pa.int32())
    return _Dimension(columns["queue"], {"topic": topics, "queue_id": queue_ids}, len(queues))


def _texts(name: str, texts: pa.Array) -> _Dimension:
    coded = texts.dictionary_encode(null_encoding="encode")
    return _Dimension(np.asarray(coded.indices), {name: coded.dictionary}, len(coded.dictionary))


def _hosts(columns: RecordColumns) -> _Dimension:
    """Dimension of born hosts without their port, which differs from connection to connection of a producer."""
    hosts = _texts("born_host", record_batch(columns, ["born_host"]).column(0))
    addresses = [text.rpartition(":")[0] for text in hosts.values["born_host"].to_pylist()]
    return hosts._replace(values={"born_host": pa.array(addresses, pa.string())})


def _keys(columns: RecordColumns) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Row and text of each key of each message. A key named twice counts once; a message without keys has a null."""
    keys = record_batch(columns, ["keys"]).column(0)
    rows, texts = pc.list_parent_indices(keys), keys.flatten()
    if len(texts) > columns.rows or pc.max(pc.list_value_length(keys)).as_py() > 1:
        pairs = pa.table({"row": rows, "key": texts}).group_by(["row", "key"], use_threads=False).aggregate([])
        rows, texts = pairs["row"].combine_chunks(), pairs["key"].combine_chunks()
    without = np.flatnonzero(np.diff(np.asarray(keys.offsets)) == 0)
    if not without.size:
        return np.asarray(rows, np.int64), texts
    texts = pa.concat_arrays([texts, pa.nulls(without.size, pa.string())])
    return np.concatenate([np.asarray(rows, np.int64), without]), texts


def _buckets(times: npt.NDArray[np.int64], grouping: Grouping) -> _Dimension:
    """Dimension of time buckets by their start; null for a bucket outside the years 1 to 9999."""
    numbers = int(times.min()) // grouping.bucket_ms, int(times.max()) // grouping.bucket_ms
    if numbers[0] == numbers[1]:  # the usual case; dividing the time of each row takes as long as all other steps
        dimension = _Dimension(np.zeros(times.size, np.int64), {"bucket": pa.array(numbers[:1], pa.int64())}, 1)
    else:
        dimension = _integers("bucket", times // grouping.bucket_ms, pa.int64())
    starts = np.asarray(dimension.values["bucket"]) * grouping.bucket_ms
    outside = (starts < _FIRST_MS) | (starts >= _END_MS)
    starts = pa.array(np.where(outside, 0, starts) * 1000, mask=outside).view(TYPES[grouping.time_column])
    return dimension._replace(values={grouping.time_column: starts})


def _integers(name: str, values: npt.NDArray[np.int64], kind: pa.DataType) -> _Dimension:
    """Dimension of integers: numbered by the distance from the least integer, or by rank if they lie far apart."""
    low, high = int(values.min()), int(values.max())
    if high - low < 4096:
        return _Dimension(values - low, {name: pa.array(np.arange(low, high + 1), kind)}, high - low + 1)
    ranked, ranks = np.unique(values, return_inverse=True)
    return _Dimension(ranks, {name: pa.array(ranked, kind)}, ranked.size)
