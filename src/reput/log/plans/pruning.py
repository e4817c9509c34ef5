"""Pruning: which parts of a log cannot hold a wanted row. A pruned read has the same rows as a full scan.

Each rule needs a proof, and is not applied without it:

- offsets: by where a record lies;
- times: by the bounds of zones that a walk of this log found (`reput.log.plans.statistics`), or by the first records
  of files and the user's word on how far the clock ever went back. A store timestamp alone bounds nothing: clocks jump;
- topics and queues: by the consume queues, if they prove themselves (`reput.log.plans.queue_records`);
- keys: by the index, if it proves itself (`reput.log.plans.index_records`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files import DISK, FileLayer
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.kernels.records.record_scan import read_records_at
from reput.log.directory import LogFile, QueueFiles, StoreDirectory, open_listed
from reput.log.plans.header_walk import BEGIN, END, MAX_BORN_MS, MAX_STORE_MS, MIN_BORN_MS, MIN_STORE_MS
from reput.log.plans.index_records import IndexedRecords, IndexNotProven
from reput.log.plans.queue_records import (
    Gap,
    NotProven,
    QueueRecords,
    check_records,
    claimed_batches,
    joined_records,
    proven_batches,
)
from reput.log.point_reads import Points, run_starts
from reput.log.selection import Selection

#: Cost of one more read at another location, in bytes of a scan.
SEEK_BYTES = 16 << 10
#: Limit of records that are read one by one: the planner holds their locations, about 100 bytes each.
MOST_RECORDS = 3_000_000
#: Limit of ranges that no queue covers: each is an object, and its neighbours are read.
MOST_GAPS = 100_000


class Range(NamedTuple):
    """Range of integers from `low` to `high`, both included."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def within(self, low: int | None, high: int | None) -> Range:
        """Intersection with another range; None: no bound."""
        return Range(
            self.low if low is None else max(self.low, low), self.high if high is None else min(self.high, high)
        )

    @property
    def is_bounded(self) -> bool:
        """Whether the range leaves any number out."""
        return self != Range()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Conditions of a query that can prune; a wanted row meets all of them.

    Attributes:
        topics, queue_ids, keys: the row has one of these; None: any.
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
    def text(self) -> str:
        """The conditions, each in one form."""
        values = [getattr(self, name) for name in self.__dataclass_fields__]
        return repr([sorted(value) if isinstance(value, frozenset) else value for value in values])

    @property
    def is_timed(self) -> bool:
        """Whether a timestamp is bounded."""
        return self.store_ms.is_bounded or self.born_ms.is_bounded

    @property
    def is_queued(self) -> bool:
        """Whether consume queues or the index can find the rows."""
        texts = (self.topics, self.keys, self.queue_ids)
        return any(text is not None for text in texts) or self.queue_offset.is_bounded

    def has_queue(self, queue: QueueFiles) -> bool:
        """Whether messages of a queue may be wanted."""
        return (self.topics is None or queue.topic in self.topics) and (
            self.queue_ids is None or queue.queue_id in self.queue_ids
        )


def wanted_by(selection: Selection) -> Wanted:
    """The conditions of a selection."""
    return Wanted(
        topics=selection.topics,
        keys=selection.keys,
        store_ms=Range().within(selection.begin_ms, selection.end_ms),
    )


def wanted_zones(zones: npt.NDArray[np.int64], wanted: Wanted) -> npt.NDArray[np.bool_]:
    """bool[n], which zones of a walk may hold a wanted record."""
    offset, store, born = wanted.commit_log_offset, wanted.store_ms, wanted.born_ms
    keep = (zones[:, END] > offset.low) & (zones[:, BEGIN] <= offset.high)
    if store.is_bounded:
        keep &= (zones[:, MAX_STORE_MS] >= store.low) & (zones[:, MIN_STORE_MS] <= store.high)
    if born.is_bounded:
        keep &= (zones[:, MAX_BORN_MS] >= born.low) & (zones[:, MIN_BORN_MS] <= born.high)
    return keep


def wanted_files(
    log_files: Sequence[LogFile], wanted: Wanted, clock_margin_ms: int | None, files: FileLayer = DISK
) -> npt.NDArray[np.bool_]:
    """bool[n], which files may hold a wanted record, by the files' first records alone.

    Args:
        log_files: the files that have records, in order.
        clock_margin_ms: the user's word that no store timestamp is smaller than an earlier record's by more than this;
            None: nothing is known.
    """
    offset, store = wanted.commit_log_offset, wanted.store_ms
    keep = np.array([file.end_offset > offset.low and file.start_offset <= offset.high for file in log_files], np.bool_)
    if clock_margin_ms is None or not store.is_bounded:
        return keep
    times = [_first_store_ms(file, files) for file in log_files]
    for i in range(len(log_files)):
        before = next((time for time in reversed(times[: i + 1]) if time is not None), None)
        after = next((time for time in times[i + 1 :] if time is not None), None)
        if before is not None and before - clock_margin_ms > store.high:
            keep[i] = False
        if after is not None and after + clock_margin_ms < store.low:
            keep[i] = False
    return keep


class Locations(NamedTuple):
    """Locations of the wanted records, by queues and index.

    Attributes:
        records: the wanted records that queues and index name.
        gaps: ranges of the log that they do not cover.
        last, end: log offsets of the last record that any queue names, and after it.
        reason: what was asked, and the result.
    """

    records: QueueRecords
    gaps: list[Gap]
    last: int
    end: int
    reason: str


def wanted_locations(
    directory: StoreDirectory, log_files: Sequence[LogFile], wanted: Wanted, scan_bytes: int
) -> Locations:
    """Locations of the wanted records, by consume queues and index.

    Args:
        log_files: the files that have records, in order.
        scan_bytes: cost of reading the log without queues and index, in bytes.

    Raises NotProven, with the reason, if the log is better read in full: there is no proof, or nothing is gained.
    """
    try:
        return _wanted_locations(directory, log_files, wanted, scan_bytes)
    except StoreError as error:  # of derived files, which may be damaged or gone: the log has all records
        raise NotProven(str(error)) from None


def _wanted_locations(
    directory: StoreDirectory, log_files: Sequence[LogFile], wanted: Wanted, scan_bytes: int
) -> Locations:
    if wanted.keys is None:
        _check_few(directory, log_files, wanted, scan_bytes)
        return _locations_by(directory, log_files, wanted, scan_bytes, "consume queues", None)
    topics = {queue.topic for queue in directory.queues()}
    try:
        index = IndexedRecords(topics, wanted.keys, directory.index_files(), directory.files)
        return _locations_by(directory, log_files, wanted, scan_bytes, "consume queues and index", index)
    except (IndexNotProven, StoreError) as reason:
        means = f"consume queues (not the index: {reason})"
        return _locations_by(directory, log_files, wanted, scan_bytes, means, None)


def _check_few(directory: StoreDirectory, log_files: Sequence[LogFile], wanted: Wanted, scan_bytes: int) -> None:
    """Raises NotProven if the units of the wanted queues alone show that locations are no cheaper than a scan."""
    gain = _Gain(scan_bytes)
    queues = [queue for queue in directory.queues(wanted.topics) if wanted.has_queue(queue)]
    for _, _, claimed in claimed_batches(queues, log_files, directory.files):
        gain.add(_in_ranges(claimed, wanted))


def _locations_by(
    directory: StoreDirectory,
    log_files: Sequence[LogFile],
    wanted: Wanted,
    scan_bytes: int,
    means: str,
    index: IndexedRecords | None,
) -> Locations:
    """The locations; each processor proves its part of the log, batch by batch."""
    queues = directory.queues()
    of_queues = np.array([wanted.has_queue(queue) for queue in queues], np.bool_)
    stopped = Event()

    def of_part(part: Sequence[LogFile]) -> tuple[list[QueueRecords], list[Gap], tuple[int, int]]:
        """Wanted records, gaps, and offset and end of the last record: of each proven batch no more is kept."""
        gain = _Gain(scan_bytes)
        found: list[QueueRecords] = []
        gaps: list[Gap] = []
        last = end = -1
        inner = 0
        for batch in proven_batches(queues, part, directory.files, log_files[-1].end_offset):
            keep = of_queues[batch.records.queues]
            if index is not None:
                keep &= index.rows(batch.records, batch.end)
            if keep.size:
                last = int(batch.records.offsets[-1])
                end = last + int(batch.records.sizes[-1])
            records = _in_ranges(batch.records.rows(np.flatnonzero(keep)), wanted)
            gain.add(records)
            if records.offsets.size or not found:  # most ranges of a long log have none
                found.append(records)
            gaps += batch.gaps
            before = _gaps_before(end, gaps[inner:])
            inner += len(before)
            gain.add_gaps([gap.end - gap.begin for gap in before])
            if stopped.is_set():
                break
        return found, gaps, (last, end)

    # The index proves its entries from the first to the last. Queues prove any files of the log without the others.
    parts = 1 if index is not None else min(len(os.sched_getaffinity(0)), len(log_files))
    cuts = [len(log_files) * number // parts for number in range(parts + 1)]
    with ThreadPoolExecutor(parts, thread_name_prefix="reput-proof") as pool:
        try:
            proven = list(pool.map(of_part, [log_files[begin:end] for begin, end in pairwise(cuts)]))
        finally:
            stopped.set()
    if index is not None:
        index.check_rest()
    last, end = max(last for _, _, last in proven)
    if end < 0:
        raise NotProven("no consume queue has a record of this log")
    records = joined_records([records for found, _, _ in proven for records in found])
    gaps = [gap for _, of_one, _ in proven for gap in of_one]
    gain = _Gain(min(scan_bytes, end - log_files[0].start_offset))
    gain.add(records)
    gain.add_gaps([gap.end - gap.begin for gap in _gaps_before(end, gaps)])
    check_records(records, log_files, directory.files)
    reason = f"{means}: {gain.count} records, and {gain.gap_bytes} bytes that they do not cover"
    return Locations(records, gaps, last, end, reason)


def _gaps_before(end: int, gaps: Sequence[Gap]) -> list[Gap]:
    """The gaps before the end of the last record; later ones are empty, or are read by a scan, too."""
    return [gap for gap in gaps if gap.begin < end]


def _in_ranges(records: QueueRecords, wanted: Wanted) -> QueueRecords:
    """The records within the wanted ranges of offsets."""
    return records.rows(
        (records.queue_offsets >= wanted.queue_offset.low)
        & (records.queue_offsets <= wanted.queue_offset.high)
        & (records.offsets >= wanted.commit_log_offset.low)
        & (records.offsets <= wanted.commit_log_offset.high)
    )


class _Gain:
    """Cost of reading records and gaps; `add` raises NotProven when it exceeds half of `scan_bytes`."""

    def __init__(self, scan_bytes: int) -> None:
        self.scan_bytes = scan_bytes
        self.count = self.gap_bytes = 0
        self._gaps = 0
        self._locations = 0
        self._cost = 0

    def add(self, records: QueueRecords) -> None:
        """Add records that must be read."""
        if records.offsets.size:
            locations = run_starts(records.offsets, records.sizes).size
            self.count += records.offsets.size
            self._locations += locations
            self._cost += int(records.sizes.sum()) + locations * SEEK_BYTES
        if self.count > MOST_RECORDS:
            raise NotProven(f"more than {MOST_RECORDS} records are wanted")
        self._check()

    def add_gaps(self, sizes: Sequence[int]) -> None:
        """Add the sizes of gaps; they must be read."""
        self.gap_bytes += sum(sizes)
        self._gaps += len(sizes)
        self._cost += sum(sizes) + len(sizes) * SEEK_BYTES
        if self._gaps > MOST_GAPS:
            raise NotProven(f"the consume queues leave out more than {MOST_GAPS} ranges of the log")
        self._check()

    def _check(self) -> None:
        if 2 * self._cost > self.scan_bytes:
            raise NotProven(
                f"{self.count} records in {self._locations} locations are no cheaper than all {self.scan_bytes} bytes"
            )


def points_of(records: QueueRecords, log_files: Sequence[LogFile], cuts: Sequence[int]) -> list[Points]:
    """The records as points; no points go across an offset of `cuts`, where something else is read."""
    points = []
    for file in log_files:
        in_file = records.of_file(file)
        rows = np.searchsorted(in_file.offsets, np.unique([cut for cut in cuts if cut < file.end_offset]))
        for begin, end in pairwise(np.unique([0, *rows.tolist(), in_file.offsets.size]).tolist()):
            points.append(Points(file, in_file.offsets[begin:end], in_file.sizes[begin:end]))
    return points


def _first_store_ms(file: LogFile, files: FileLayer) -> int | None:
    """Store timestamp of a file's first record, ms; None if the record does not prove itself."""
    with open_listed(files, file.path) as opened:
        size = int.from_bytes(opened.read(0, 4), "big", signed=True)
        if not MIN_RECORD_SIZE <= size <= file.size:
            return None
        data = np.frombuffer(opened.read(0, size), np.uint8)
    columns = read_records_at(data, np.zeros(1, np.int64), np.array([file.start_offset]), check_crc=True)
    return int(columns["store_timestamp"][0]) if columns.first_fault() else None
