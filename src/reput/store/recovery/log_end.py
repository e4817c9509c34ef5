"""Search for the log's end at a start: a torn tail is to be cut off, damage is refused.

The search changes nothing (`find_log_end`, called for `reput.store.recovery.plan`), so a refused store stays as it was.
After the plan the log is cut, and records are dispatched again from where queues and index are known to be whole.
Dispatch drops what is there already, so the start after a killed start goes on and ends the same.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError
from reput.formats.checkpoint import Checkpoint, min_timestamp
from reput.formats.shutdown import Shutdown
from reput.kernels.records.columns import RecordColumns, RecordStatus, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.scan import first_rows
from reput.log.store_times import trusted_time
from reput.progress import Progress
from reput.store.dispatch.check import check_queue_offsets
from reput.store.dispatch.redispatch import ScannedBatch
from reput.store.log.commit_log import CommitLog
from reput.store.log.mapped_file import MappedFile
from reput.store.log.whole_records import find_whole, is_hiding
from reput.store.queues.tables import QueueTables
from reput.store.recovery.verification import Verification
from reput.store.recovery_report import LogEnd

_MAX_ROWS = 65_536


class ProtectedRecords(NamedTuple):
    """Whole records that are never cut off after damage.

    Attributes:
        until: Store time (ms); records before it are protected.
        reason: Why they are protected, for the error message.
        advice: What else can be done, for the error message.
    """

    until: int
    reason: str
    advice: str = ""


def _first_timestamp(file: MappedFile) -> int:
    """Store time of a file's first record; 0 if it has none."""
    columns = file.scan(RecordScanner(1, level=ScanLevel.HEADER), 0)
    file.mapping.release()  # a mebibyte was asked for: many such files are looked at, one after the other
    return int(columns["store_timestamp"][0]) if columns.rows else 0


def start_file(log: CommitLog, checkpoint: Checkpoint) -> int:
    """Start offset of the newest log file whose first record the checkpoint says was on the disk.

    As `CommitLog.isMappedFileMatchedRecover`; the log's first file if there is no such file.
    """
    safe = min_timestamp(checkpoint)
    for file in reversed(log.queue.mapped_files):
        if 0 < _first_timestamp(file) <= safe:
            return file.start_offset
    return log.min_offset


def find_log_end(
    log: CommitLog,
    begin: int,
    protected: ProtectedRecords,
    config: MessageStoreConfig,
    *,
    was_killed: bool,
    progress: Progress,
    data_end: int,
    verification: Verification | None = None,
    timestamp: int = 0,
) -> LogEnd:
    """Scan the records from `begin` on until the log ends.

    A wrong CRC ends the log: the CRC of a body, and if the configuration asks for it, the CRC of the whole record.

    Args:
        log: The log; its files are loaded.
        begin: Commit log offset at which a record starts.
        protected: Records after the end that are not to be cut off.
        config: Which CRCs are checked.
        was_killed: Whether records may lie after the end that a kill left.
        progress: Gets how far the scan is on the way to `data_end`.
        data_end: About where the log ends, commit log offset.
        verification: Is given each scanned batch, until it finds a difference.
        timestamp: Store time (ms) of the record before `begin`.

    Raises:
        CorruptRecordError: A record does not prove itself, and a protected record lies after it: this is damage, not a
            torn tail, and a cut would lose messages. Or a record has a queue offset that no log of this size can hold:
            dispatch would refuse it when the directory has changed already.
    """
    header_scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.HEADER)
    checks: dict[str, Any] = {
        "check_crc": config.check_crc_on_recover,
        "require_property_crc": config.force_verify_prop_crc,
    }
    faults = RecordStatus.BAD_BODY_CRC
    if config.enabled_append_prop_crc or config.force_verify_prop_crc:
        faults |= RecordStatus.BAD_PROPERTY_CRC
    offset, times = begin, [timestamp] if timestamp else []
    while (file := log.queue.find(offset)) is not None:
        progress(offset - begin, max(data_end, offset) - begin, "looking for the end of the log")
        position = offset - file.start_offset
        verifying = verification if verification is not None and verification.is_going else None
        columns = file.scan(verifying or header_scanner, position, **checks)
        fault = columns.first_fault(faults)
        if verifying is not None:
            verifying.take(first_rows(columns, fault), file.mapping, position)
        else:
            ScannedBatch(columns, file.mapping, position).release()
        check_queue_offsets(columns, fault, file.path)
        if fault:
            times = [*times, *columns["store_timestamp"][max(fault - 2, 0) : fault].tolist()][-2:]
        if fault < columns.rows:
            offset += int(columns["position"][fault])
            break
        offset = columns.next_offset
        if columns.stop is ScanStop.BLANK:
            if is_hiding(file, offset - file.start_offset, min(times, default=None)):
                break
            offset = file.start_offset + file.size
        elif columns.stop is not ScanStop.FULL:
            break
    timestamp = trusted_time(times, int(time.time() * 1000))
    has_tail, cut_records = _check_tail(log, offset, timestamp, protected, was_killed=was_killed)
    return LogEnd(offset, timestamp, has_tail, offset - begin, cut_records)


def _check_tail(
    log: CommitLog, offset: int, timestamp: int, protected: ProtectedRecords, *, was_killed: bool
) -> tuple[bool, int]:
    """Whether bytes after the log's end are not zero, and the number of whole records not older than `timestamp` (ms).

    Raises CorruptRecordError if one of these records is protected: it must not be cut off.
    """
    has_tail, cut_records = False, 0
    for file in log.queue.mapped_files:
        position = max(0, offset - file.start_offset)
        if position >= file.size or not file.file.has_data_from(position):
            continue
        has_tail = True
        # After a clean exit the queues say where the log ends; bytes after the end are what an earlier recovery left.
        record = find_whole(file, position) if was_killed else None
        while record is not None:
            stored = int(record["store_timestamp"][0])
            if timestamp <= stored < protected.until:
                raise _damage(log, offset, record, protected)
            cut_records += stored >= timestamp
            record = find_whole(file, record.next_offset - file.start_offset)
    return has_tail, cut_records


def _damage(log: CommitLog, offset: int, record: RecordColumns, protected: ProtectedRecords) -> CorruptRecordError:
    file = log.queue.find(offset)
    fault = f"expected a record, found a whole one only at {record.base_offset}, {protected.reason}"
    if record.base_offset == offset:
        fault = (
            "expected a CRC of the whole record (enabledAppendPropCRC, forceVerifyPropCRC), and found none or another, "
            "though its body's fits"
        )
    return CorruptRecordError(
        file.path if file else "",
        offset,
        f"{fault}. This is damage, not a torn tail: nothing was changed; copy the store, see what `reput repair` "
        f"can save, or restore the file from a replica or a backup{protected.advice}",
    )


def check_against_queues(log: CommitLog, end: LogEnd, queues_end: int) -> None:
    """Check that the log of a cleanly closed store reaches at least as far as its queues.

    Raises:
        CorruptRecordError: The log is shorter: its last records are damaged.
    """
    if end.offset < queues_end:
        raise CorruptRecordError(
            log.queue.path_of(end.offset),
            end.offset,
            f"expected a record, for the last clean exit left records up to {queues_end}; nothing was changed; copy "
            "the store, see what `reput repair` can save, or restore the file from a replica or a backup",
        )


def queues_are_complete(shutdown: Shutdown, queues: QueueTables) -> bool:
    """Whether every queue of the last clean exit is there, and no shorter than it was."""
    return all(
        (queue := queues.find(topic, queue_id)) is not None and queue.max_offset >= max_offset
        for (topic, queue_id), max_offset in shutdown.max_offsets.items()
    )
