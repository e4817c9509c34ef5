"""Findings of the log's damage, its tail, and the times of the checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from reput.counts import counted
from reput.files import DISK
from reput.formats.checkpoint import POSITIONS
from reput.formats.hosts import HOST_GROWTH
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import MIN_RECORD_SIZE, STORE_TIMESTAMP, SYS_FLAG, SysFlag
from reput.jobs.audit.files import StoreListing, list_store
from reput.jobs.audit.scan_task import SplitAudit
from reput.jobs.findings import Finding
from reput.kernels.records.record_scan import ScanLevel, read_records_at
from reput.log.directory import LogFile, StoreDirectory
from reput.log.file_window import is_blank
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitStop

_HEAD_BYTES = 4 << 20
_HOUR_MS = 3_600_000
#: fileReservedTime if nobody tells it: RocketMQ's code has 72 hours, and the broker.conf that comes with it 48.
_LEAST_RESERVED_HOURS = 48


def damage_findings(listing: StoreListing, may_grow: bool, outcomes: Sequence[SplitAudit]) -> Iterator[Finding]:
    """Findings of the first damage inside the log, and of bytes after its end."""
    for outcome in outcomes:
        file = outcome.read.split.file
        of_codes = {
            "record-damaged": outcome.damages,
            "queue-offset-wrong": outcome.misnumbered,
            "compression-wrong": outcome.compressions,
        }
        for code, damages in of_codes.items():
            for damage in damages.told:
                size, position = damage.end - damage.begin, damage.begin - file.start_offset
                yield Finding(code, damage.path, damage.reason, position, damage.begin, count=size)
    for file, end in _ends(listing, outcomes):
        finding = _tail_finding(listing, may_grow, file, end)
        if finding is not None:
            yield finding


def late_begin_finding(
    listing: StoreListing, units: int, entries: int, newest_ms: int, file_reserved_time: int | None
) -> Finding | None:
    """Finding of a log whose files before the first one are gone before their time; None if nothing proves that.

    Retention deletes a file when its last write is `file_reserved_time` hours old, so a younger message proves it.
    Without that number it must be younger than the shortest time that RocketMQ comes with.

    Args:
        units, entries: count of units and index entries of messages before the log.
        newest_ms: store time of the newest of these messages that an index entry has; 0 without entries.
    """
    age_hours = (time.time() * 1000 - newest_ms) / _HOUR_MS
    reserved_hours = _LEAST_RESERVED_HOURS if file_reserved_time is None else file_reserved_time
    if not newest_ms or not 0 <= age_hours < reserved_hours:
        return None
    first = listing.log_files[0]
    path = os.path.join(os.path.dirname(first.path), offset_to_file_name(first.start_offset - first.size))
    stored = datetime.fromtimestamp(newest_ms / 1000, UTC).isoformat(timespec="seconds")
    before = (
        f"{counted(units, 'unit')} of queues and {counted(entries, 'entry')} of the index are of messages before it"
    )
    text = (
        f"the log begins at {first.start_offset}; {before}; the newest was stored at {stored}, and fileReservedTime is "
        f"{reserved_hours} hours"
    )
    return Finding("log-begins-late", path, text, count=units)


def early_end_finding(listing: StoreListing, log_end: int, known_end: int, by_exit: int) -> Finding | None:
    """Finding of the log of a closed store that ends before its known end; None for one that reaches it.

    Args:
        log_end: end of the log's last record, or of a loss behind it that has a finding of its own.
        known_end: end of the last record that units of queues prove.
        by_exit: end of the log at the last clean exit; 0 for unknown.
    """
    if log_end >= max(known_end, by_exit):
        return None
    end = max(known_end, by_exit)
    last = next((file for file in listing.log_files if file.end_offset > log_end), listing.log_files[-1])
    why = "the last clean exit recorded" if end == by_exit else "units of queues lead to"
    text = f"the log ends at {log_end}, and {why} messages up to {end}"
    return Finding("log-ends-early", last.path, text, log_end - last.start_offset, log_end, count=end - log_end)


def checkpoint_findings(listing: StoreListing, newest_ms: int) -> Iterator[Finding]:
    """Findings of a checkpoint that speaks of later records than the log has.

    A log without records is fine if it begins after offset 0: retention has deleted the records.

    Args:
        newest_ms: store timestamp of the log's newest record; 0 without records.
    """
    checkpoint = listing.checkpoint
    if checkpoint is not None and (newest_ms or not any(file.start_offset for file in listing.log_files[:1])):
        newest = f"the newest record of the log was stored at {newest_ms}" if newest_ms else "the log has no record"
        for name, code, timestamp in (
            ("physicMsgTimestamp", "checkpoint-ahead", checkpoint.physic_msg_timestamp),
            ("logicsMsgTimestamp", "checkpoint-wrong", checkpoint.logics_msg_timestamp),
            ("indexMsgTimestamp", "checkpoint-wrong", checkpoint.index_msg_timestamp),
        ):
            if timestamp > newest_ms:
                text = f"{name} is {timestamp}, {newest}"
                yield Finding(code, listing.checkpoint_path, text, POSITIONS[name])


def has_grown(directory: StoreDirectory, end: int) -> bool:
    """Whether a record was put at the end of the log that was read: then units that lead there may be right.

    Only a record at `end` itself counts: bytes farther on may be older than the last cut of the log.
    """
    for file in list_store(directory).log_files:
        if file.end_offset > end:
            split = Split(file, max(end, file.start_offset), file.end_offset, is_record_start=True)
            scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.END)
            if any(columns.rows for columns in scan):
                return True
            if scan.stop is not SplitStop.BLANK:
                break
    return False


def _ends(listing: StoreListing, outcomes: Sequence[SplitAudit]) -> Iterator[tuple[LogFile, int]]:
    """Files whose records end before the file does, with that end: one file, or several if log files are missing."""
    by_path: dict[str, list[SplitAudit]] = {}
    for outcome in outcomes:
        by_path.setdefault(outcome.read.split.file.path, []).append(outcome)
    for file in listing.log_files:
        of_file = by_path.get(file.path, [])
        ends = [outcome.read.end_offset for outcome in of_file if outcome.read.end_offset is not None]
        is_blank = any(outcome.read.stop is SplitStop.BLANK for outcome in of_file)
        if of_file and not is_blank and max(ends, default=0) < file.end_offset:
            yield file, max(ends, default=file.start_offset)
            if listing.log_is_whole:
                return


def _tail_finding(listing: StoreListing, may_grow: bool, file: LogFile, end: int) -> Finding | None:
    """Finding of bytes from the end of the records on; None if there are none, or a record was put meanwhile."""
    position = end - file.start_offset
    with DISK.open(file.path) as opened:
        if not opened.has_data_from(position):
            return None
        head = opened.read(position, _HEAD_BYTES)
    read = read_records_at(
        np.frombuffer(head, np.uint8), np.zeros(1, np.int64), np.array([end], np.int64), check_crc=True
    )
    if min(read.first_fault(), read.rows) or is_blank(np.frombuffer(head, np.uint8), file.end_offset - end):
        return None  # a record was put meanwhile, here or in the next file
    checkpoint, stored_ms = listing.checkpoint, _store_timestamp(head)
    was_flushed = checkpoint is not None and 0 < stored_ms <= checkpoint.physic_msg_timestamp
    later = any(other.start_offset > file.start_offset for other in listing.log_files)
    if may_grow and not was_flushed and (listing.log_is_whole or not later):
        return Finding("torn-tail", file.path, "bytes that no record proves", position, end)
    why = "the checkpoint says that it was on the disk" if was_flushed else "the store was closed"
    text = f"no record here, nor after it, where one was: {why}"
    return Finding("record-damaged", file.path, text, position, end, count=file.end_offset - end)


def _store_timestamp(head: bytes) -> int:
    """Store timestamp of a record that begins with these bytes, if they are one; 0 for too few bytes."""
    if len(head) < MIN_RECORD_SIZE + HOST_GROWTH:
        return 0
    sys_flag = int.from_bytes(head[SYS_FLAG : SYS_FLAG + 4], "big")
    begin = STORE_TIMESTAMP + (HOST_GROWTH if sys_flag & SysFlag.BORN_HOST_V6 else 0)
    return int.from_bytes(head[begin : begin + 8], "big", signed=True)
