"""read_log: the messages of a store directory as Arrow record batches, in log order."""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.counts import counted
from reput.errors import ConfigError, CorruptRecordError
from reput.files import DISK, FileLayer
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.gather import total_size
from reput.kernels.records.record_batch import record_batch
from reput.log.damages import Damage
from reput.log.directory import LogFile, StoreDirectory
from reput.log.lost_end import lost_end
from reput.log.object_storage import files_of
from reput.log.points import Points, read_records
from reput.log.reads.bodies import shown_rows
from reput.log.reads.open_batches import batch_reader
from reput.log.scan import MAX_ROWS, OnDamage, SplitScan, first_rows, scan_split, with_rows
from reput.log.selection import Selection, make_selection
from reput.log.sink_commits import SinkWatch, committed_end
from reput.log.splits import Split, SplitStop

MAX_BATCH_BYTES = 32 << 20
#: Damages of a file that have a line each in the log.
_MOST_LINES = 20

logger = logging.getLogger("reput.log")


def read_log(
    path: str | os.PathLike[str],
    columns: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    begin: datetime | int | None = None,
    end: datetime | int | None = None,
    until: Literal["proven", "flushed"] = "proven",
    *,
    raw_body: bool = False,
    commit_log_path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    mode: Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"] = "FAILFAST",
    files: FileLayer = DISK,
) -> pa.RecordBatchReader:
    """Read the messages of a store as Arrow record batches; the store is not opened or locked, and no byte is changed.

    Batches hold at most 32 768 rows and about 32 MiB, and are read on demand. Of a store that is open for writing,
    messages put after the first batch was asked for are not read: a loop that puts what it reads ends. Columns that are
    not asked for cost nothing.

    Args:
        path: the store directory, or its URL on object storage (`s3://bucket/store`), by fsspec (the extra `lake`).
        columns: names of `reput.kernels.records.record_batch.SCHEMA`, in any order; None: all.
        topics: only rows of these topics.
        keys: only rows that have one of these as unique key or among their keys.
        begin, end: bounds of the store timestamp, both included: a datetime with a time zone, or ms since 1970.
        until: "proven": up to the last record that proves itself; "flushed": only up to the checkpoint's
            physicMsgTimestamp, which is on the disk; no row without a checkpoint.
        raw_body: True: bodies as stored, an inner batch as one row; False: decompressed and unfolded.
        commit_log_path: the commit log's folder if it is not below `path`; several are separated by commas.
        store: the value of the column `store`; None: the directory's name.
        mode: what happens at a record that does not prove itself although a later record does. "FAILFAST": an error.
            "PERMISSIVE": the read goes on at the next record that proves itself, and one row reports what is lost: its
            status is `DAMAGED: <reason>`, its commit_log_offset and store_size are of the skipped bytes, and its
            other columns are null, so that it is left out if topics, keys or times are given. "DROPMALFORMED": as
            PERMISSIVE, without that row.
        files: the file layer.

    Raises ConfigError for a wrong argument and StoreFormatError for a directory that is no store. During the read
    raises CorruptRecordError under FAILFAST for damage before the log's end, and StoreError for a file that cannot be
    read, or that retention has deleted since the call.
    """
    if until not in ("proven", "flushed"):
        raise ConfigError(f'until: {until!r} is neither "proven" nor "flushed"')
    directory = StoreDirectory(path, commit_log_path=commit_log_path, files=files_of(path, files))
    selection = make_selection(
        columns=columns, topics=topics, keys=keys, begin=begin, end=end, raw_body=raw_body,
        store=directory.name if store is None else store, mode=mode,
    )  # fmt: skip
    batches = _read_files(directory, directory.log_files(), selection, until == "flushed")
    return batch_reader(selection.schema, batches)


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

    Raises CorruptRecordError where a record does not prove itself.
    """
    selection = replace(selection, topics=None)
    for columns in read_records(points, files=files):
        yield from _batches(selection.select(columns), selection)


def read_scan(scan: SplitScan, selection: Selection, flushed_ms: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a scan, and a row for each skipped damage if the selection shows damage, in order."""
    return _read_scan(scan, selection, flushed_ms, None)


def record_batches(columns: RecordColumns, selection: Selection) -> list[pa.RecordBatch]:
    """Scanned records in the form of `read_log`; all rows are taken as wanted."""
    return list(_batches(columns, selection))


def _read_files(
    directory: StoreDirectory, log_files: Sequence[LogFile], selection: Selection, flushed: bool
) -> Iterator[pa.RecordBatch]:
    flushed_ms = None
    if flushed:
        checkpoint = directory.checkpoint()
        flushed_ms = checkpoint.physic_msg_timestamp if checkpoint else 0
    begin: int | None = 0
    while begin is not None:
        begin = yield from _read_from(begin, directory, log_files, selection, flushed_ms)


def _read_from(
    begin: int, directory: StoreDirectory, log_files: Sequence[LogFile], selection: Selection, flushed_ms: int | None
) -> Generator[pa.RecordBatch, None, int | None]:
    """Read from a record's start on; returns None at the end, or the offset to go on from when a sink's batch began."""
    watch: SinkWatch | None = None
    before = SinkWatch(directory.files, directory.path)
    if directory.was_killed or before.begin_offset is not None:
        # A live store, too, has `abort`: its files have their full length at once, and fill while they are read.
        log_end = committed_end(directory, log_files)
    else:
        watch, log_end = before, log_files[-1].end_offset if log_files else 0
    end = begin
    for file in log_files:
        if begin < file.end_offset:
            split = Split(file, max(begin, file.start_offset), min(file.end_offset, log_end), is_record_start=True)
            scan = scan_split(split, level=selection.level, on_damage=selection.on_damage, files=directory.files)
            changed = yield from _read_scan(scan, selection, flushed_ms, watch)
            if changed is not None:
                return changed
            end = scan.end_offset or end
            if scan.stop is not SplitStop.BLANK:
                break
    if flushed_ms is None and (lost := lost_end(directory, end)) is not None:
        if selection.on_damage is OnDamage.RAISE:
            raise selection.named_modes(lost.error())
        logger.warning("%s", lost.error())
        if selection.shows_damage:
            yield selection.damage_rows([lost])
    return None


def _read_scan(
    scan: SplitScan, selection: Selection, flushed_ms: int | None, watch: SinkWatch | None
) -> Generator[pa.RecordBatch, None, int | None]:
    """Yield the wanted rows of a scan; ends if `watch` saw a sink's batch, and returns the offset not yet yielded."""
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
    """Batches of rows, with those of the damage that was passed over between them, if the selection shows it."""
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
    """The rows of a batch and those of damage, in the order of the log."""
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
