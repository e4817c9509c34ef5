"""Pruning: what of a log a query cannot want, and why the rest is read. A pruned read has the rows of a full scan.

Each rule needs a proof, and is left out without one:

- offsets: a record lies where it lies;
- times: the bounds of blocks that a walk of this log found (`reput.log.statistics`), or the first records of files
  and the user's word on how far the clock ever went back: a store time alone bounds nothing, since clocks jump;
- topics and queues: the consume queues, where they prove themselves (`reput.log.queue_records`);
- keys: the index, where it does (`reput.log.index_records`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK, FileLayer
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.kernels.record_scan import read_records_at
from reput.log.blocks import BEGIN, END, MAX_BORN_MS, MAX_STORE_MS, MIN_BORN_MS, MIN_STORE_MS
from reput.log.directory import LogFile, QueueFiles, StoreDirectory, open_listed
from reput.log.index_records import IndexedRecords, IndexNotProven
from reput.log.points import Points, run_starts
from reput.log.queue_records import (
    Gap,
    NotProven,
    QueueRecords,
    check_records,
    claimed_pieces,
    joined_records,
    proven_pieces,
)
from reput.log.selection import Selection

_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1
#: What opening a place costs, in bytes of a scan.
PLACE_BYTES = 16 << 10
#: Not more records are read one by one: the planner holds their places, in about 100 bytes each.
MOST_RECORDS = 3_000_000


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included."""

    low: int = _LEAST
    high: int = _LARGEST

    def within(self, low: int | None, high: int | None) -> Range:
        """What lies in another range, too; None: no bound."""
        return Range(
            self.low if low is None else max(self.low, low), self.high if high is None else min(self.high, high)
        )

    @property
    def is_bounded(self) -> bool:
        """Whether it leaves anything out."""
        return self != Range()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a row must be for a query to want it, as far as places can be found by it; all of it must hold.

    Attributes:
        topics, queue_ids, keys: one of these; None: any.
        queue_offset, commit_log_offset: ranges.
        store_ms, born_ms: ranges of the two timestamps, ms.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    keys: frozenset[str] | None = None
    queue_offset: Range = field(default_factory=Range)
    commit_log_offset: Range = field(default_factory=Range)
    store_ms: Range = field(default_factory=Range)
    born_ms: Range = field(default_factory=Range)

    @property
    def is_timed(self) -> bool:
        """Whether a time bounds it."""
        return self.store_ms.is_bounded or self.born_ms.is_bounded

    @property
    def is_queued(self) -> bool:
        """Whether consume queues or index can find it."""
        texts = (self.topics, self.keys, self.queue_ids)
        return any(text is not None for text in texts) or self.queue_offset.is_bounded

    def has_queue(self, queue: QueueFiles) -> bool:
        """Whether a queue's messages may be wanted."""
        return (self.topics is None or queue.topic in self.topics) and (
            self.queue_ids is None or queue.queue_id in self.queue_ids
        )


def wanted_by(selection: Selection) -> Wanted:
    """What a selection wants."""
    return Wanted(
        topics=selection.topics,
        keys=selection.keys,
        store_ms=Range().within(selection.begin_ms, selection.end_ms),
    )


def wanted_blocks(blocks: npt.NDArray[np.int64], wanted: Wanted) -> npt.NDArray[np.bool_]:
    """bool[n], the blocks of a walk that may hold a wanted record."""
    offset, store, born = wanted.commit_log_offset, wanted.store_ms, wanted.born_ms
    keep = (blocks[:, END] > offset.low) & (blocks[:, BEGIN] <= offset.high)
    if store.is_bounded:
        keep &= (blocks[:, MAX_STORE_MS] >= store.low) & (blocks[:, MIN_STORE_MS] <= store.high)
    if born.is_bounded:
        keep &= (blocks[:, MAX_BORN_MS] >= born.low) & (blocks[:, MIN_BORN_MS] <= born.high)
    return keep


def wanted_files(
    log_files: Sequence[LogFile], wanted: Wanted, clock_margin_ms: int | None, files: FileLayer = DISK
) -> npt.NDArray[np.bool_]:
    """bool[n], the files that may hold a wanted record, by their first records alone.

    Args:
        log_files: those that have begun, in order.
        clock_margin_ms: no record is older, by its store timestamp, than one before it by more than this: the word of
            the user; None: nothing is known.
    """
    offset, store = wanted.commit_log_offset, wanted.store_ms
    keep = np.array([file.end_offset > offset.low and file.start_offset <= offset.high for file in log_files], np.bool_)
    if clock_margin_ms is None or not store.is_bounded:
        return keep
    times = [_first_store_ms(file, files) for file in log_files]
    for i in range(len(log_files)):
        before = next((time for time in reversed(times[: i + 1]) if time is not None), None)
        behind = next((time for time in times[i + 1 :] if time is not None), None)
        if before is not None and before - clock_margin_ms > store.high:
            keep[i] = False
        if behind is not None and behind + clock_margin_ms < store.low:
            keep[i] = False
    return keep


class Places(NamedTuple):
    """Where the queues and the index say that wanted records are.

    Attributes:
        records: those that they name.
        gaps: stretches of which they tell nothing.
        end: behind the last record that any queue names.
        reason: what was asked, and what came of it.
    """

    records: QueueRecords
    gaps: list[Gap]
    end: int
    reason: str


def wanted_places(directory: StoreDirectory, log_files: Sequence[LogFile], wanted: Wanted, scan_bytes: int) -> Places:
    """The places of wanted records, by consume queues and index.

    Args:
        log_files: those that have begun, in order.
        scan_bytes: what reading the log without them costs.

    Raises NotProven with the reason why the log is better read as it is: no proof, or nothing gained.
    """
    if wanted.keys is None:
        _check_few(directory, log_files, wanted, scan_bytes)
        return _placed_by(directory, log_files, wanted, scan_bytes, "consume queues", None)
    topics = {queue.topic for queue in directory.queues()}
    index = IndexedRecords(topics, wanted.keys, directory.index_files(), directory.files)
    try:
        return _placed_by(directory, log_files, wanted, scan_bytes, "consume queues and index", index)
    except IndexNotProven as reason:
        means = f"consume queues (not the index: {reason})"
        return _placed_by(directory, log_files, wanted, scan_bytes, means, None)


def _check_few(directory: StoreDirectory, log_files: Sequence[LogFile], wanted: Wanted, scan_bytes: int) -> None:
    """Raises NotProven where the queues that are wanted, which are few, tell that asking all is not worth it."""
    gain = _Gain(scan_bytes)
    queues = [queue for queue in directory.queues() if wanted.has_queue(queue)]
    for _, _, claimed in claimed_pieces(queues, log_files, directory.files):
        gain.add(_in_ranges(claimed, wanted))


def _placed_by(
    directory: StoreDirectory,
    log_files: Sequence[LogFile],
    wanted: Wanted,
    scan_bytes: int,
    means: str,
    index: IndexedRecords | None,
) -> Places:
    """The places, by one piece of the log after the other: of what is proven of it, only what is wanted is kept."""
    files, queues = directory.files, directory.queues()
    gain = _Gain(scan_bytes)
    of_queues = np.array([wanted.has_queue(queue) for queue in queues], np.bool_)
    found: list[QueueRecords] = []
    gaps: list[Gap] = []
    end = -1
    for piece in proven_pieces(queues, log_files, files):
        keep = of_queues[piece.records.queues]
        if index is not None:
            keep &= index.rows(piece.records, piece.end)
        if keep.size:
            end = int(piece.records.offsets[-1] + piece.records.sizes[-1])
        found.append(_in_ranges(piece.records.rows(keep), wanted))
        gain.add(found[-1])
        gaps += piece.gaps
    if index is not None:
        index.check_rest()
    if end < 0:
        raise NotProven("no consume queue has a record of this log")
    inner = [gap.end - gap.begin for gap in gaps if gap.begin < end]  # behind the end is nothing, or what both read
    gain.scan_bytes = min(scan_bytes, end - log_files[0].start_offset)
    gain.add_gaps(inner)
    records = joined_records(found)
    check_records(records, log_files, files)
    reason = f"{means}: {gain.count} records, and {sum(inner)} bytes of which they tell nothing"
    return Places(records, gaps, end, reason)


def _in_ranges(records: QueueRecords, wanted: Wanted) -> QueueRecords:
    """The records within the ranges of offsets."""
    return records.rows(
        (records.queue_offsets >= wanted.queue_offset.low)
        & (records.queue_offsets <= wanted.queue_offset.high)
        & (records.offsets >= wanted.commit_log_offset.low)
        & (records.offsets <= wanted.commit_log_offset.high)
    )


class _Gain:
    """What reading records and gaps costs, beside reading `scan_bytes`; adding raises NotProven above half of it."""

    def __init__(self, scan_bytes: int) -> None:
        self.scan_bytes = scan_bytes
        self.count = 0
        self._places = 0
        self._cost = 0

    def add(self, records: QueueRecords) -> None:
        """Records that must be read."""
        if records.offsets.size:
            places = run_starts(records.offsets, records.sizes).size
            self.count += records.offsets.size
            self._places += places
            self._cost += int(records.sizes.sum()) + places * PLACE_BYTES
        if self.count > MOST_RECORDS:
            raise NotProven(f"more than {MOST_RECORDS} records are wanted")
        self._check()

    def add_gaps(self, sizes: Sequence[int]) -> None:
        """All stretches that must be read."""
        self._cost += sum(sizes) + len(sizes) * PLACE_BYTES
        self._check()

    def _check(self) -> None:
        if 2 * self._cost > self.scan_bytes:
            raise NotProven(
                f"{self.count} records in {self._places} places are no cheaper than all {self.scan_bytes} bytes"
            )


def points_of(records: QueueRecords, log_files: Sequence[LogFile], cuts: Sequence[int]) -> list[Points]:
    """The records as points; at the offsets of `cuts` something else comes between them."""
    points = []
    for file in log_files:
        part = records.of_file(file)
        rows = np.searchsorted(part.offsets, np.unique([cut for cut in cuts if cut < file.end_offset]))
        for begin, end in pairwise(np.unique([0, *rows.tolist(), part.offsets.size]).tolist()):
            points.append(Points(file, part.offsets[begin:end], part.sizes[begin:end]))
    return points


def _first_store_ms(file: LogFile, files: FileLayer) -> int | None:
    """Store time of a file's first record; None where that does not prove itself."""
    with open_listed(files, file.path) as opened:
        size = int.from_bytes(opened.read(0, 4), "big", signed=True)
        if not MIN_RECORD_SIZE <= size <= file.size:
            return None
        data = np.frombuffer(opened.read(0, size), np.uint8)
    columns = read_records_at(data, np.zeros(1, np.int64), np.array([file.start_offset]), check_crc=True)
    return int(columns["store_timestamp"][0]) if columns.first_fault() else None
