"""Resume points in a commit log: where a reader goes on, and the record that it read before."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np

from reput.kernels.records.columns import RecordColumns


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The record before a resume point, as it was when it was read.

    A record's header has its own offset, its store timestamp, its queue offset, its sizes and the CRC of its body. So a
    CRC of the header identifies the record, and is computed from at most 112 bytes, however large the body.

    Attributes:
        offset: commit log offset of the record.
        store_timestamp: ms since 1970.
        header_size: bytes before the body.
        header_crc: CRC-32 of these bytes.
    """

    offset: int
    store_timestamp: int
    header_size: int
    header_crc: int

    def __str__(self) -> str:
        return (
            f"a record stored at {np.datetime64(self.store_timestamp, 'ms')}Z with header CRC {self.header_crc:#010x}"
        )


def last_record_of(columns: RecordColumns) -> LastRecord:
    """The last row of scanned records, as it was scanned: a record that is being written may get another header."""
    begin, body = int(columns["position"][-1]), int(columns["body_position"][-1])
    return LastRecord(
        int(columns["commit_log_offset"][-1]), int(columns["store_timestamp"][-1]), body - begin,
        zlib.crc32(columns.buffer[begin:body].data),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Commit log offset where a record starts or will start; `last` is None if no record was read before."""

    offset: int
    last: LastRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TailLimit:
    """Limits of a walk before the log's end.

    Attributes:
        max_bytes: log bytes; but one record is always taken.
        max_rows: records.
        end_offset: a commit log offset; no record is taken that starts there or later.
        newest_ms: a record with a later store timestamp ends the log.
    """

    max_bytes: int | None = None
    max_rows: int | None = None
    end_offset: int | None = None
    newest_ms: int | None = None

    def before(self, offset: int | None) -> TailLimit:
        """The same limits, with `offset` as `end_offset` if that is earlier."""
        if offset is None or (self.end_offset is not None and self.end_offset <= offset):
            return self
        return replace(self, end_offset=offset)

    def rows_within(self, columns: RecordColumns, begin: int, rows_before: int) -> int:
        """Rows of a batch within the limits, in a walk that began at offset `begin` and has taken `rows_before`."""
        rows: int = columns.rows
        offsets = columns["commit_log_offset"]
        if self.end_offset is not None:
            rows = min(rows, int(np.searchsorted(offsets, self.end_offset)))
        if self.newest_ms is not None and (columns["store_timestamp"] > self.newest_ms).any():
            rows = min(rows, int(np.argmax(columns["store_timestamp"] > self.newest_ms)))
        if self.max_rows is not None:
            rows = min(rows, self.max_rows - rows_before)
        if self.max_bytes is not None:
            fitting = int(np.searchsorted(offsets + columns["store_size"], begin + self.max_bytes, "right"))
            rows = min(rows, max(fitting, 0 if rows_before else 1))
        return rows


NO_LIMIT = TailLimit()
