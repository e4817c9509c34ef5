"""What a start found and did: `LogEnd` and `RecoveryReport`."""

from __future__ import annotations

from typing import NamedTuple

from reput.errors import CorruptConsumeQueueError, CorruptRecordError


class LogEnd(NamedTuple):
    """Where the written part of a log ends, and what lies behind it.

    Attributes:
        offset: Commit log offset behind the last whole record (or behind a blank one).
        last_timestamp: Store time (ms) of the last record that was read; 0 when none was.
        has_tail: Whether bytes behind it are not zero: a torn record, or older ones.
        scanned_bytes: What was read to find out.
        cut_records: Whole records behind it, not older than the last one, which nothing says were on the disk.
    """

    offset: int
    last_timestamp: int
    has_tail: bool
    scanned_bytes: int
    cut_records: int = 0


class RecoveryReport(NamedTuple):
    """What a start had to do.

    Attributes:
        was_killed: Whether the last exit was no clean one.
        log_end: See `LogEnd`.
        dispatched_from: Commit log offset from which records were dispatched again.
        dispatched_records: How many that were.
        verified_records: How many before them had what dispatch writes in queues and index, and were left alone.
        damage: Read-only: what ended the log or a queue before its time; what lies before it can be read.
    """

    was_killed: bool
    log_end: LogEnd
    dispatched_from: int
    dispatched_records: int
    verified_records: int = 0
    damage: CorruptRecordError | CorruptConsumeQueueError | None = None

    @property
    def confirmed_records(self) -> int:
        """Former name of `verified_records`, for one release."""
        return self.verified_records
