"""Scans and point reads of a log as Arrow record batches: the wanted rows and columns."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.counts import counted
from reput.errors import CorruptRecordError
from reput.files import DISK, FileLayer
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.gather import total_size
from reput.kernels.records.record_batch import record_batch
from reput.log.damages import Damage
from reput.log.point_reads import Points, read_records
from reput.log.reads.bodies import shown_rows
from reput.log.scan import MAX_ROWS, SplitScan, first_rows, scan_split, with_rows
from reput.log.selection import Selection
from reput.log.sink_commits import SinkWatch
from reput.log.splits import Split

MAX_BATCH_BYTES = 32 << 20
#: Damages of a file that have a line each in the log.
_MOST_LINES = 20

logger = logging.getLogger("reput.log")


def read_split(
    split: Split, selection: Selection, *, flushed_ms: int | None = None, files: FileLayer = DISK
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of the records that start in a split, in batches of the same limits as in `read_log`.

    Args:
        flushed_ms: a record with a later store timestamp ends the log.

    A split that begins inside a file finds its first record by the bytes: see `check_stitches`.
    """
    scan = scan_split(split, level=selection.level, on_damage=selection.on_damage, files=files)
    return read_scan(scan, selection, flushed_ms)


def read_points(points: Points, selection: Selection, *, files: FileLayer = DISK) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of records at known offsets; all of these records have one of the selection's topics.

    Raises CorruptRecordError if a record does not prove itself.
    """
    selection = replace(selection, topics=None)
    for columns in read_records(points, files=files):
        yield from _batches(selection.select(columns), selection)


def record_batches(columns: RecordColumns, selection: Selection) -> list[pa.RecordBatch]:
    """Scanned records in the form of `read_log`; all rows are taken as wanted."""
    return list(_batches(columns, selection))


def read_scan(
    scan: SplitScan, selection: Selection, flushed_ms: int | None = None, watch: SinkWatch | None = None
) -> Generator[pa.RecordBatch, None, int | None]:
    """Yield the wanted rows of a scan, and a row for each skipped damage if the selection shows damage, in order.

    Args:
        watch: ends the read if a sink's batch began meanwhile. Then the offset that is not yet yielded is returned.
    """
    lines = _DamageLines()
    try:
        for columns in scan:
            if watch is not None and watch.committed(columns.next_offset) != columns.next_offset:
                return min([columns.base_offset, *(damage.begin for damage in scan.passed[:1])])
            passed = [_within(damage, scan.split) for damage in scan.passed]
            lines.tell(passed)
            flushed = columns.rows
            if flushed_ms is not None and (columns["store_timestamp"] > flushed_ms).any():
                flushed = int(np.argmax(columns["store_timestamp"] > flushed_ms))
            kept = first_rows(columns, flushed)
            before = [damage for damage in passed if damage.begin < kept.next_offset]
            yield from _batches(selection.select(kept), selection, before)
            if flushed < columns.rows:
                return None
    except CorruptRecordError as error:
        raise selection.named_modes(error) from None
    passed = [_within(damage, scan.split) for damage in scan.passed]
    lines.tell(passed)
    lines.end()
    yield from _damage_batches(passed, selection)
    return None


def _within(damage: Damage, split: Split) -> Damage:
    """The part of a damage in its split; what is after the split's end is left to the next split."""
    return damage._replace(end=min(damage.end, split.end))


class _DamageLines:
    """Lines of the log about the damage of one scan: the first of it, and a count at the end."""

    def __init__(self) -> None:
        self._told = self._others = self._bytes = 0

    def tell(self, passed: Sequence[Damage]) -> None:
        """Tell of damage that was passed over."""
        for damage in passed[: _MOST_LINES - self._told]:
            logger.warning("%s", damage)
        others = passed[_MOST_LINES - self._told :]
        self._told += len(passed) - len(others)
        self._others += len(others)
        self._bytes += sum(damage.end - damage.begin for damage in others)

    def end(self) -> None:
        """Tell how much more there was."""
        if self._others:
            logger.warning("and %s more; passed over %d bytes", counted(self._others, "damage"), self._bytes)


def _batches(columns: RecordColumns, selection: Selection, passed: Sequence[Damage] = ()) -> Iterator[pa.RecordBatch]:
    """Batches of rows, with the passed over damage between them as rows, if the selection shows it."""
    damages = list(passed) if selection.shows_damage else []
    batches = [columns] if selection.raw_body else shown_rows(columns, bodies=selection.needs_bodies)
    for batch in batches:
        if batch is not columns:
            batch = selection.select_by_keys(batch)
        for rows in _cut(batch):
            built = record_batch(rows, selection.columns, store=selection.store)
            offsets = rows["commit_log_offset"]
            count = bisect_left(damages, int(offsets[-1]), key=attrgetter("begin"))
            if count:
                yield from _with_damages(built, offsets, damages[:count], selection)
                del damages[:count]
            else:
                yield built
    yield from _damage_batches(damages, selection)


def _with_damages(
    batch: pa.RecordBatch, offsets: npt.NDArray[np.int64], damages: Sequence[Damage], selection: Selection
) -> Iterator[pa.RecordBatch]:
    """The rows of a batch and of damage, in the order of the log."""
    begins = np.array([damage.begin for damage in damages], np.int64)
    order = np.argsort(np.concatenate([offsets, begins]), kind="stable")
    rows = pa.Table.from_batches([batch, selection.damage_rows(damages)])
    yield from rows.take(order).combine_chunks().to_batches(max_chunksize=MAX_ROWS)


def _damage_batches(damages: Sequence[Damage], selection: Selection) -> Iterator[pa.RecordBatch]:
    if selection.shows_damage:
        for begin in range(0, len(damages), MAX_ROWS):
            yield selection.damage_rows(damages[begin : begin + MAX_ROWS])


def _cut(columns: RecordColumns) -> Iterator[RecordColumns]:
    """Cut into batches of at most MAX_ROWS rows and MAX_BATCH_BYTES of bodies and properties, but at least one row."""
    sizes = columns["body_size"] + columns["properties_size"]
    if 0 < columns.rows <= MAX_ROWS and total_size(sizes) <= MAX_BATCH_BYTES:
        yield columns
        return
    ends = np.cumsum(sizes, dtype=np.int64)
    begin = 0
    while begin < columns.rows:
        limit = MAX_BATCH_BYTES + (int(ends[begin - 1]) if begin else 0)
        end = min(max(int(np.searchsorted(ends, limit, "right")), begin + 1), begin + MAX_ROWS)
        yield with_rows(columns, columns.wide[:, begin:end], columns.narrow[:, begin:end])
        begin = end
