"""Decompression of bodies and unfolding of inner batches into one row for each message.

A changed record is encoded again, as RocketMQ would have stored it, and appended to the scanned bytes; so a changed row
has the same columns as any other row. Unchanged rows are not handled one by one. See SYSFLAG and "batches" in
docs/formats/commit-log.md, and RocketMQ's `MessageDecoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from reput.formats.message_batch import INNER_BATCH, unfold_record
from reput.formats.record_layout import SYS_FLAG, SysFlag, unpack_record
from reput.kernels.records.columns import N_SIZE, N_STATUS, W_COMMIT_LOG_OFFSET, RecordColumns, RecordStatus
from reput.kernels.records.record_scan import read_records_at
from reput.log.reads.compression import MAX_BODY_BYTES, decompress
from reput.log.scan import with_rows

#: Changed rows are yielded in batches of about this many bytes of records.
_BATCH_BYTES = 32 << 20
_INT32 = struct.Struct(">i")


def shown_rows(columns: RecordColumns, *, bodies: bool) -> Iterator[RecordColumns]:
    """Yield the rows with inner batches unfolded and, if `bodies` is set, bodies decompressed; in one or more batches.

    A row whose body cannot be decoded stays as stored and has `BODY_UNDECODED` in its status. A changed row keeps the
    store size and body CRC of its record; bits of SYSFLAG that no longer hold are cleared.
    """
    sys_flag = columns["sys_flag"]
    if not (sys_flag & (INNER_BATCH | SysFlag.COMPRESSED)).any():
        yield columns
        return
    changed = (sys_flag & INNER_BATCH) == INNER_BATCH
    if bodies:
        changed |= (sys_flag & SysFlag.COMPRESSED) != 0
    if not changed.any():
        yield columns
        return
    begin, batch_bytes = 0, 0
    records: dict[int, list[bytes]] = {}
    for row in np.flatnonzero(changed).tolist():
        position, size = int(columns["position"][row]), int(columns["store_size"][row])
        records[row] = _records_shown(columns.buffer[position : position + size].tobytes())
        batch_bytes += sum(map(len, records[row]))
        if batch_bytes >= _BATCH_BYTES:
            yield _with_records(columns, begin, row + 1, records)
            begin, batch_bytes, records = row + 1, 0, {}
    if begin < columns.rows:
        yield _with_records(columns, begin, columns.rows, records)


def _records_shown(record: bytes) -> list[bytes]:
    """The records to show in place of one record; none if its body cannot be decoded."""
    (sys_flag,) = _INT32.unpack_from(record, SYS_FLAG)
    body: bytes | None = None
    if sys_flag & SysFlag.COMPRESSED:
        _, (begin, end, *_) = unpack_record(record, 0)
        body = decompress(record[begin:end], sys_flag)
        if body is None:
            return []
    return unfold_record(record, body, max_bytes=MAX_BODY_BYTES) or []


def _with_records(columns: RecordColumns, begin: int, end: int, records: dict[int, list[bytes]]) -> RecordColumns:
    """Rows [begin, end), each row of `records` replaced by its records there; a row without records is marked."""
    counts = np.ones(end - begin, np.int64)
    for row, shown in records.items():
        counts[row - begin] = max(len(shown), 1)
    rows = np.repeat(np.arange(begin, end), counts)
    wide, narrow = np.take(columns.wide, rows, axis=1), np.take(columns.narrow, rows, axis=1)
    written = np.isin(rows, [row for row, shown in records.items() if shown])
    failed = np.isin(rows, [row for row, shown in records.items() if not shown])
    narrow[N_STATUS, failed] |= RecordStatus.BODY_UNDECODED
    all_shown = [record for shown in records.values() for record in shown]
    buffer = np.concatenate([columns.buffer, np.frombuffer(b"".join(all_shown), np.uint8)])
    sizes = np.fromiter(map(len, all_shown), np.int64, len(all_shown))
    positions = columns.buffer.size + np.cumsum(sizes) - sizes
    read = read_records_at(buffer, positions, np.ascontiguousarray(wide[W_COMMIT_LOG_OFFSET, written]))
    assert read.rows == len(all_shown), "a record that was written here proves itself"
    read.narrow[N_SIZE] = narrow[N_SIZE, written]
    wide[:, written], narrow[:, written] = read.wide, read.narrow
    return with_rows(columns, wide, narrow, buffer)
