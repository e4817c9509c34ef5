"""Rows of `diff`: a key and a hash for each message, first summed up by blocks of keys, then one by one.

A block is a range of keys of one queue, or of the log. Hashes add up in any order, so the sums of all tasks make the
sums of the store. Two stores agree in a block if its count and sum are equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import DISK
from reput.formats.consume_queue import FILLER, UNIT_SIZE, Unit
from reput.formats.paths import file_name_to_offset
from reput.formats.record_layout import SysFlag
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, UNIT_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.content_hash import hash_contents
from reput.kernels.records.record_scan import ScanLevel
from reput.kernels.records.stand_ins import without_stand_ins
from reput.log.damages import Damages
from reput.log.directory import QueueFiles
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitResult

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
By = Literal["log", "queue"]

#: Size of a block: in commit log bytes, and in queue offsets.
_LOG_BLOCK, _QUEUE_BLOCK = 1 << 20, 1 << 12
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


class Blocks(NamedTuple):
    """Counts and sums of rows, one element a block: int64[n], and uint64[n] for the sums of hashes."""

    names: tuple[Name, ...]
    queues: Int64s
    blocks: Int64s
    counts: Int64s
    sums: UInt64s


class WantedBlocks(NamedTuple):
    """Blocks whose rows are wanted, with columns of `Blocks`."""

    names: tuple[Name, ...]
    queues: Int64s
    blocks: Int64s


@dataclass(frozen=True, slots=True)
class RowTarget:
    """Options of tasks: key, ignored fields, and the blocks whose rows are wanted. Without `wanted`: sums of all."""

    by: By
    ignored: int
    wanted: WantedBlocks | None = None


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """Outcome of a task for one split, a `SplitOutcome`. Damage is passed over, so there is no fault."""

    read: SplitResult
    blocks: Blocks | None
    rows: tuple[Rows, ...]
    damages: Damages
    fault: CorruptRecordError | None = None


class QueueItem(NamedTuple):
    """One queue of a directory without a log."""

    files: QueueFiles
    is_batch: bool


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """Outcome of a task for one queue."""

    blocks: Blocks | None
    rows: tuple[Rows, ...]


def read_split_rows(target: RowTarget, split: Split) -> RowOutcome:
    """Task: read one split of a log. CRCs are not checked: a damaged body is a difference."""
    scan = scan_split(split, level=ScanLevel.QUEUES, check_crc=False, on_damage=OnDamage.SKIP)
    blocks, rows = _collect(
        target, (_record_rows(target, messages) for columns in scan if (messages := without_stand_ins(columns)).rows)
    )
    return RowOutcome(scan.result, blocks, rows, scan.damages)


def read_queue_rows(target: RowTarget, queue: QueueItem) -> QueueOutcome:
    """Task: read one queue of a directory without a log. A unit counts as a message."""
    blocks, rows = _collect(target, _unit_rows(queue))
    return QueueOutcome(blocks, rows)


def _collect(target: RowTarget, batches: Iterator[Rows]) -> tuple[Blocks | None, tuple[Rows, ...]]:
    if target.wanted is None:
        return add_up([_sums(target.by, rows) for rows in batches]), ()
    wanted = BlockSet(target.wanted)
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
        data = DISK.read_bytes(path)
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


def _blocks_of(by: By, keys: Int64s) -> Int64s:
    blocks: Int64s = keys // (_LOG_BLOCK if by == "log" else _QUEUE_BLOCK)
    return blocks


def _sums(by: By, rows: Rows) -> Blocks:
    blocks = _blocks_of(by, rows.keys)
    # A content hash may ignore the key. So it is mixed with the key: two rows that have swapped keys must be noticed.
    hashes = (rows.hashes ^ rows.keys.view(np.uint64)) * _ODD
    if by == "log":
        return _add_up((WHOLE_LOG,), np.zeros(blocks.size, np.int64), blocks, np.ones_like(blocks), hashes)
    return _add_up(rows.names, rows.queues, blocks, np.ones_like(blocks), hashes)


def _add_up(names: tuple[Name, ...], queues: Int64s, blocks: Int64s, counts: Int64s, sums: UInt64s) -> Blocks:
    """Add up rows to one element for each queue and block."""
    if not queues.size:
        return Blocks(names, queues, blocks, counts, sums)
    small = queues.astype(np.uint16) if len(names) < 1 << 16 else queues  # sixteen bits are sorted by counting
    order = np.argsort(small, kind="stable")
    if ((np.diff(blocks[order]) < 0) & (np.diff(queues[order]) == 0)).any():  # log order differs from queue order
        order = np.lexsort((blocks, queues))
    queues, blocks = queues[order], blocks[order]
    starts = np.flatnonzero(np.append(True, (np.diff(queues) != 0) | (np.diff(blocks) != 0)))
    return Blocks(
        names, queues[starts], blocks[starts], np.add.reduceat(counts[order], starts),
        np.add.reduceat(sums[order], starts),
    )  # fmt: skip


def add_up(results: Sequence[Blocks]) -> Blocks:
    """Add up the sums of several results by queue and block. Names are in the order of their first result."""
    numbers: dict[Name, int] = {}
    columns: list[tuple[npt.NDArray[np.int64 | np.uint64], ...]] = []
    for result in results:
        queue_numbers = np.array([numbers.setdefault(name, len(numbers)) for name in result.names], np.int64)
        if result.queues.size:
            columns.append((queue_numbers[result.queues], result.blocks, result.counts, result.sums))
    if not columns:
        none = np.empty(0, np.int64)
        return Blocks(tuple(numbers), none, none, none, np.empty(0, np.uint64))
    queues, blocks, counts, sums = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _add_up(tuple(numbers), queues, blocks, counts, sums)


class BlockSet:
    """Set of wanted blocks, which tests many blocks at once."""

    def __init__(self, wanted: WantedBlocks) -> None:
        self._numbers = {name: number for number, name in enumerate(wanted.names)}
        self._blocks = np.unique(wanted.blocks)
        self._keys = np.unique(self._key(wanted.queues, np.searchsorted(self._blocks, wanted.blocks)))

    def _key(self, numbers: Int64s, indices: Int64s) -> Int64s:
        """One number for a queue and a block's index."""
        return numbers * self._blocks.size + indices

    def has(self, names: tuple[Name, ...], queues: Int64s, blocks: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n], whether a block is wanted. `queues` are numbers into `names`."""
        numbers = np.array([self._numbers.get(name, -1) for name in names], np.int64)[queues]
        indices = np.minimum(np.searchsorted(self._blocks, blocks), self._blocks.size - 1)
        inside: npt.NDArray[np.bool_] = np.isin(self._key(numbers, indices), self._keys)
        inside &= (numbers >= 0) & (self._blocks[indices] == blocks)
        return inside


def _wanted_rows(by: By, rows: Rows, wanted: BlockSet) -> Rows:
    """The rows in wanted blocks."""
    blocks = _blocks_of(by, rows.keys)
    if by == "log":
        kept = wanted.has((WHOLE_LOG,), np.zeros_like(blocks), blocks)
    else:
        kept = wanted.has(rows.names, rows.queues, blocks)
    return Rows(
        rows.names, rows.queues[kept], rows.keys[kept], rows.hashes[kept], rows.offsets[kept], rows.sizes[kept],
        rows.queue_offsets[kept],
    )  # fmt: skip
