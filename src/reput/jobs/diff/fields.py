"""Find the fields in which two records differ, by reading both records again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.files import DISK
from reput.formats.property_crc import PROPERTY_CRC32, PROPERTY_CRC_SIZE
from reput.jobs.diff.match import Match
from reput.jobs.diff.rows import Int64s
from reput.kernels.columns import RecordColumns
from reput.kernels.record_batch import record_batch
from reput.kernels.record_scan import read_records_at
from reput.log.directory import LogFile, open_listed

_NUMBERS = (
    "commit_log_offset", "queue_offset", "queue_id", "magic_code", "flag", "sys_flag", "born_timestamp",
    "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc",
)  # fmt: skip
_HOSTS = ("born_host", "store_host")
_SLICES = ("topic", "body", "properties")
#: Bytes of records of both sides that are held in memory at once.
_CHUNK_BYTES = 16 << 20


class DifferingFields:
    """Adds the names of differing fields to differences.

    Args:
        log_files: of the left store, and of the right store.
        ignored: names of fields that may differ.
    """

    def __init__(self, log_files: Sequence[Sequence[LogFile]], ignored: Sequence[str]) -> None:
        self._log_files = log_files
        self._ignored = frozenset(ignored)

    def table(self, match: Match) -> pa.Table:
        """Make the table of differences with their fields."""
        fields: list[list[str] | None] = [None] * match.kinds.size
        for rows in _chunks(match.different, match.left_sizes + match.right_sizes):
            left = self._read(0, match.left_offsets[rows], match.left_sizes[rows])
            right = self._read(1, match.right_offsets[rows], match.right_sizes[rows])
            for row, names in zip(rows.tolist(), self._fields(left, right), strict=True):
                fields[row] = names
        return match.table(fields)

    def _read(self, side: int, offsets: Int64s, sizes: Int64s) -> RecordColumns:
        files, records = self._log_files[side], []
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
            file = next(file for file in files if file.start_offset <= offset < file.end_offset)
            with open_listed(DISK, file.path) as opened:
                records.append(opened.read(offset - file.start_offset, size))
        positions = np.cumsum(sizes) - sizes
        return read_records_at(np.frombuffer(b"".join(records), np.uint8), positions, np.ascontiguousarray(offsets))

    def _fields(self, left: RecordColumns, right: RecordColumns) -> list[list[str]]:
        """Names of the differing fields of each row, as RocketMQ names them, and in its order as far as it has one."""
        rows = min(left.rows, right.rows)
        differs = {
            name: (left[name][:rows] != right[name][:rows]).tolist() for name in _NUMBERS if name not in self._ignored
        }
        hosts = [record_batch(side, _HOSTS).slice(0, rows) for side in (left, right)]
        for name in _HOSTS:
            if name not in self._ignored:
                differs[name] = pc.not_equal(hosts[0][name], hosts[1][name]).to_pylist()
        for name in _SLICES:
            differs[name] = [self._slice(left, name, row) != self._slice(right, name, row) for row in range(rows)]
        return [[name for name, column in differs.items() if column[row]] for row in range(rows)]

    def _slice(self, columns: RecordColumns, name: str, row: int) -> bytes:
        begin, size = int(columns[f"{name}_position"][row]), int(columns[f"{name}_size"][row])
        data = columns.buffer[begin : begin + size].tobytes()
        if name == "properties" and "property_crc" in self._ignored:
            last = data[-PROPERTY_CRC_SIZE:]
            return data.removesuffix(last) if last.startswith(PROPERTY_CRC32.encode()) else data
        return data


def _chunks(rows: Int64s, sizes: Int64s) -> Iterator[Int64s]:
    """Split rows into chunks of about `_CHUNK_BYTES`."""
    ends = np.cumsum(sizes[rows])
    cuts = np.flatnonzero(np.diff(ends // _CHUNK_BYTES)) + 1
    yield from (chunk for chunk in np.split(rows, cuts) if chunk.size)
