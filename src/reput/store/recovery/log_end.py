"""Start-up: where the log ends, what is damage and what a torn tail, and queues and index brought in step with it.

First everything is looked at and nothing is changed (`find_log_end`, `reput.store.recovery.plan`): a store that is
refused stays as it was. Then the log is cut, and records are dispatched again from where queues and index are known to
be whole. Dispatching drops what is there already, so a start that is killed itself goes on, and ends the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError
from reput.formats.checkpoint import Checkpoint, min_timestamp
from reput.formats.shutdown import Shutdown
from reput.kernels.columns import RecordColumns, RecordStatus, ScanStop
from reput.kernels.record_scan import RecordScanner, ScanLevel, find_record
from reput.log.scan import first_rows
from reput.store.dispatch.check import check_queue_offsets
from reput.store.dispatch.redispatch import Progress
from reput.store.log.commit_log import CommitLog
from reput.store.log.mapped_file import MappedFile
from reput.store.queues.tables import QueueTables
from reput.store.recovery.verification import Verification
from reput.store.recovery_report import LogEnd

_MAX_ROWS = 65_536


class ProtectedRecords(NamedTuple):
    """Which whole records behind damage are never cut off: those stored before a time (ms), and why, and what helps."""

    until: int
    reason: str
    advice: str = ""


def _bytes(file: MappedFile, position: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(file.view[position:], np.uint8)


def _first_timestamp(file: MappedFile) -> int:
    """Store time of a file's first record; 0 where it has none."""
    columns = RecordScanner(1, level=ScanLevel.HEADER).scan(_bytes(file, 0), file.start_offset)
    return int(columns["store_timestamp"][0]) if columns.rows else 0


def start_file(log: CommitLog, checkpoint: Checkpoint) -> int:
    """Offset of the newest file whose first record is as old as what the checkpoint knows to be on the disk.

    As `CommitLog.isMappedFileMatchedRecover`; the log's first file where there is none.
    """
    safe = min_timestamp(checkpoint)
    for file in reversed(log.queue.mapped_files):
        if 0 < _first_timestamp(file) <= safe:
            return file.start_offset
    return log.min_offset


def find_log_end(
    log: CommitLog,
    begin: int,
    known: ProtectedRecords,
    config: MessageStoreConfig,
    *,
    was_killed: bool,
    progress: Progress,
    data_end: int,
    verification: Verification | None = None,
    timestamp: int = 0,
) -> LogEnd:
    """Walk the records from an offset at which one starts, to where they end; `timestamp` is that of the one before.

    `progress` is told how far that is on the way to `data_end`.

    A wrong CRC ends them: that of the body, and where the configuration asks for them, that of the whole record too.
    Each piece that was read goes to `verification` on the way.

    Raises:
        CorruptRecordError: A record does not prove itself, and behind it lies one that is `known`: that is damage, not
            a torn tail, and cutting there would lose messages. Or one has a queue offset that no log of this size can
            hold: dispatch would refuse it, when the directory has changed already.
    """
    header_scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.HEADER)
    checks = {"check_crc": config.check_crc_on_recover, "require_property_crc": config.force_verify_prop_crc}
    faults = RecordStatus.BAD_BODY_CRC
    if config.enabled_append_prop_crc or config.force_verify_prop_crc:
        faults |= RecordStatus.BAD_PROPERTY_CRC
    offset = begin
    while (file := log.queue.find(offset)) is not None:
        progress("looking for the end of the log", offset - begin, max(data_end, offset) - begin)
        position = offset - file.start_offset
        comparing = verification if verification is not None and verification.is_going else None
        columns = (comparing or header_scanner).scan(_bytes(file, position), offset, **checks)
        fault = columns.first_fault(faults)
        if comparing is not None:
            comparing.take(first_rows(columns, fault), file.mapping, position)
        else:
            file.mapping.release(position, position + columns.consumed)  # a start over gigabytes keeps little of them
        check_queue_offsets(columns, fault, file.path)
        if fault:
            timestamp = int(columns["store_timestamp"][fault - 1])
        if fault < columns.rows:
            offset += int(columns["position"][fault])
            break
        offset = columns.next_offset
        if columns.stop is ScanStop.BLANK:
            offset = file.start_offset + file.size
        elif columns.stop is not ScanStop.FULL:
            break
    has_tail, cut_records = _check_tail(log, offset, timestamp, known, was_killed=was_killed)
    return LogEnd(offset, timestamp, has_tail, offset - begin, cut_records)


def _check_tail(
    log: CommitLog, offset: int, timestamp: int, known: ProtectedRecords, *, was_killed: bool
) -> tuple[bool, int]:
    """Whether something lies behind the end, and how many whole records not older than `timestamp` (ms) are in it.

    Raises CorruptRecordError where one of these is `known`: it must not be cut off.
    """
    has_tail, cut_records, scanner = False, 0, RecordScanner(1, level=ScanLevel.HEADER)
    for file in log.queue.mapped_files:
        position = max(0, offset - file.start_offset)
        if position >= file.size or not file.file.has_data_from(position):
            continue
        has_tail = True
        # After a clean exit the queues say where the log ends; what lies behind is what an earlier recovery left.
        found = _find_whole(scanner, file, position) if was_killed else None
        while found is not None:
            stored = int(found["store_timestamp"][0])
            if timestamp <= stored < known.until:
                raise _damage(log, offset, found, known)
            cut_records += stored >= timestamp
            found = _find_whole(scanner, file, found.next_offset - file.start_offset)
    return has_tail, cut_records


def _find_whole(scanner: RecordScanner, file: MappedFile, position: int) -> RecordColumns | None:
    """The first record at or behind a position whose CRC fits, which proves it: the next one may be torn again."""
    while (found := find_record(_bytes(file, position), file.start_offset + position, records=1)) >= 0:
        position += found
        columns = scanner.scan(_bytes(file, position), file.start_offset + position, check_crc=True)
        if columns.first_fault():
            return columns
        position += columns.consumed
    return None


def _damage(log: CommitLog, offset: int, following: RecordColumns, known: ProtectedRecords) -> CorruptRecordError:
    file = log.queue.find(offset)
    fault = f"expected a record, and none proves itself; but one does at {following.base_offset}, {known.reason}"
    if following.base_offset == offset:
        fault = (
            "expected a CRC of the whole record (enabledAppendPropCRC, forceVerifyPropCRC), and found none or another, "
            "though its body's fits"
        )
    return CorruptRecordError(
        file.path if file else "",
        offset,
        f"{fault}. This is damage, not a torn tail: nothing was changed; copy the store, see what `reput repair` "
        f"can save, or restore the file from a replica or a backup{known.advice}",
    )


def check_against_queues(log: CommitLog, end: LogEnd, queues_end: int) -> None:
    """After a clean exit the log reaches at least as far as its queues.

    Raises:
        CorruptRecordError: It does not: its last records are damaged.
    """
    if end.offset < queues_end:
        raise CorruptRecordError(
            log.queue.path_of(end.offset),
            end.offset,
            f"expected a record, for the last clean exit left records up to {queues_end}; nothing was changed; copy "
            "the store, see what `reput repair` can save, or restore the file from a replica or a backup",
        )


def queues_are_complete(shutdown: Shutdown, queues: QueueTables) -> bool:
    """Whether every queue that the last shutdown knew is there, as long as it was."""
    return all(
        (queue := queues.find(topic, queue_id)) is not None and queue.max_offset >= max_offset
        for (topic, queue_id), max_offset in shutdown.max_offsets.items()
    )
