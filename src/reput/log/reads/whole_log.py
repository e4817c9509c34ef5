"""Read of a whole log, file after file, up to the end that it has when the read begins."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from reput.log.clean_exit_check import lost_end
from reput.log.directory import LogFile, StoreDirectory
from reput.log.reads.batches import read_scan
from reput.log.scan import OnDamage, scan_split
from reput.log.selection import Selection
from reput.log.sink_commits import SinkWatch, committed_end
from reput.log.splits import Split, SplitStop

logger = logging.getLogger("reput.log")


def read_whole_log(
    directory: StoreDirectory, log_files: Sequence[LogFile], selection: Selection, *, flushed: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of all records of a log.

    Args:
        log_files: all files of the log, in order.
        flushed: whether to end at the checkpoint's time.

    Raises as `reput.read_log`.
    """
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
            changed = yield from read_scan(scan, selection, flushed_ms, watch)
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
