"""Report of a start: `LogEnd` and `RecoveryReport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reput.errors import CorruptConsumeQueueError, CorruptRecordError

if TYPE_CHECKING:
    from reput.store.retention_plan import ExpiredFile


class LogEnd(NamedTuple):
    """End of the written log, and what lies after it.

    Attributes:
        offset: Commit log offset after the last whole record, or after a blank record.
        last_timestamp: Store time (ms) of the last record that was read; 0 when none was read.
        has_tail: Whether bytes after the end are not zero: a torn record, or records of an earlier life of the file.
        scanned_bytes: Bytes that were read to find the end.
        cut_records: Whole records after the end that are not older than the last record before it. Nothing says that
            they were on the disk.
    """

    offset: int
    last_timestamp: int
    has_tail: bool
    scanned_bytes: int
    cut_records: int = 0


class RecoveryReport(NamedTuple):
    """Findings of a start, and the records that it dispatched again.

    Attributes:
        was_killed: Whether the last exit was not clean.
        log_end: See `LogEnd`.
        dispatched_from: Commit log offset from which records were dispatched again. Read-only: the end of the log, or
            the offset from which another process is still to dispatch it.
        dispatched_records: Number of records that were dispatched again.
        verified_records: Number of records before `dispatched_from` whose units and index entries were found right.
        damage: Read-only: damage that ends the log or a queue early; what lies before it can be read.
        deleted_files: Log files that had expired, and were deleted first, as the disk was full (`retention`).
        hides_queues: Read-only: whether the store has queues that are not read, and shows none for them.
    """

    was_killed: bool
    log_end: LogEnd
    dispatched_from: int
    dispatched_records: int
    verified_records: int = 0
    damage: CorruptRecordError | CorruptConsumeQueueError | None = None
    deleted_files: tuple[ExpiredFile, ...] = ()
    hides_queues: bool = False
