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
from reput.formats.record import MIN_RECORD_SIZE
from reput.kernels.record_scan import read_records_at
from reput.log.blocks import BEGIN, END, MAX_BORN_MS, MAX_STORE_MS, MIN_BORN_MS, MIN_STORE_MS
from reput.log.directory import LogFile, QueueFiles, StoreDirectory, open_listed
from reput.log.index_records import rows_with_keys
from reput.log.points import Points, run_starts
from reput.log.queue_records import Gap, NotProven, QueueRecords, check_records, proven_records, read_queues
from reput.log.selection import Selection

_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1
#: What opening a place costs, in bytes of a scan.
PLACE_BYTES = 16 << 10


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
    files = directory.files
    queues = directory.queues()
    if wanted.keys is None:  # the few queues that are wanted tell soon whether asking all of them is worth it
        few = read_queues([queue for queue in queues if wanted.has_queue(queue)], log_files, files)
        _check_gain(_in_ranges(few, wanted), 0, scan_bytes)
    records, gaps = proven_records(queues, log_files, files)
    end = int(records.offsets[-1] + records.sizes[-1])
    of_queues = np.array([wanted.has_queue(queue) for queue in queues], np.bool_)
    keep = of_queues[records.queues]
    means = "consume queues"
    if wanted.keys is not None:
        try:
            keep &= rows_with_keys(records, wanted.keys, directory.index_files(), files)
            means = "consume queues and index"
        except NotProven as reason:
            means = f"consume queues (not the index: {reason})"
    found = _in_ranges(records.rows(keep), wanted)
    inner = [gap.end - gap.begin for gap in gaps if gap.begin < end]  # behind the end is nothing, or what both read
    gap_bytes = sum(inner)
    written = end - log_files[0].start_offset
    _check_gain(found, gap_bytes + len(inner) * PLACE_BYTES, min(scan_bytes, written))
    check_records(found, log_files, files)
    return Places(
        found, gaps, end, f"{means}: {found.offsets.size} records, and {gap_bytes} bytes of which they tell nothing"
    )


def _in_ranges(records: QueueRecords, wanted: Wanted) -> QueueRecords:
    """The records within the ranges of offsets."""
    return records.rows(
        (records.queue_offsets >= wanted.queue_offset.low)
        & (records.queue_offsets <= wanted.queue_offset.high)
        & (records.offsets >= wanted.commit_log_offset.low)
        & (records.offsets <= wanted.commit_log_offset.high)
    )


def _check_gain(records: QueueRecords, gap_cost: int, scan_bytes: int) -> None:
    """Raises NotProven where records and gaps cost more than half of a scan."""
    count = records.offsets.size
    places = run_starts(records.offsets, records.sizes).size if count else 0
    cost = int(records.sizes.sum()) + places * PLACE_BYTES + gap_cost
    if 2 * cost > scan_bytes:
        raise NotProven(f"{count} records in {places} places are no cheaper than all {scan_bytes} bytes")


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
