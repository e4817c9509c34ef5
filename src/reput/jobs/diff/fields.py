"""Find the fields in which two records differ, by reading both records again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.files import DISK
from reput.formats.properties import decode_properties
from reput.formats.property_crc import PROPERTY_CRC32, PROPERTY_CRC_SIZE
from reput.formats.record_layout import SysFlag
from reput.jobs.diff.match import Match, PropertyPair
from reput.jobs.diff.rows import Int64s
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_batch import record_batch
from reput.kernels.records.record_scan import read_records_at
from reput.log.directory import LogFile, open_listed

_NUMBERS = (
    "commit_log_offset", "queue_offset", "queue_id", "magic_code", "flag", "sys_flag", "born_timestamp",
    "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc",
)  # fmt: skip
_HOSTS = ("born_host", "store_host")
#: Bits of `sys_flag` that belong to a host.
_HOST_FLAGS = {"born_host": SysFlag.BORN_HOST_V6, "store_host": SysFlag.STORE_HOST_V6}
_SLICES = ("topic", "body")
#: Characters of a property that are shown.
_SHOWN_CHARACTERS = 100
#: Bytes of records of both sides that are held in memory at once.
_CHUNK_BYTES = 16 << 20


class DifferingFields:
    """Adds the names of differing fields to differences, and the properties that differ.

    Args:
        log_files: of the left store, and of the right store.
        ignored: names of fields that may differ.
        properties_as_map: properties differ only if RocketMQ reads other ones; else if their bytes differ.
    """

    def __init__(
        self, log_files: Sequence[Sequence[LogFile]], ignored: Sequence[str], *, properties_as_map: bool
    ) -> None:
        self._log_files = log_files
        self._ignored = frozenset(ignored)
        self._as_map = properties_as_map

    def table(self, match: Match) -> pa.Table:
        """Make the table of differences with their fields."""
        fields: list[list[str] | None] = [None] * match.kinds.size
        properties: list[list[PropertyPair] | None] = [None] * match.kinds.size
        for rows in _chunks(match.different, match.left_sizes + match.right_sizes):
            left = self._read(0, match.left_offsets[rows], match.left_sizes[rows])
            right = self._read(1, match.right_offsets[rows], match.right_sizes[rows])
            pairs = self._properties(left, right)
            for row, names, found in zip(rows.tolist(), self._fields(left, right), pairs, strict=True):
                fields[row] = names if found is None else [*names, "properties"]
                properties[row] = found
        return match.table(fields, properties)

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
        flags = sum(flag for name, flag in _HOST_FLAGS.items() if name in self._ignored)
        differs["sys_flag"] = ((left["sys_flag"][:rows] ^ right["sys_flag"][:rows]) & ~flags != 0).tolist()
        hosts = [record_batch(side, _HOSTS).slice(0, rows) for side in (left, right)]
        for name in _HOSTS:
            if name not in self._ignored:
                differs[name] = pc.not_equal(hosts[0][name], hosts[1][name]).to_pylist()
        for name in _SLICES:
            differs[name] = [_slice(left, name, row) != _slice(right, name, row) for row in range(rows)]
        return [[name for name, column in differs.items() if column[row]] for row in range(rows)]

    def _properties(self, left: RecordColumns, right: RecordColumns) -> list[list[PropertyPair] | None]:
        """The properties that differ of each row, empty if only their bytes do; None if they do not differ."""
        found: list[list[PropertyPair] | None] = []
        for row in range(min(left.rows, right.rows)):
            texts = [self._properties_text(side, row) for side in (left, right)]
            pairs = _differing_pairs(*texts) if texts[0] != texts[1] else []
            is_different = bool(pairs) if self._as_map else texts[0] != texts[1]
            found.append(pairs if is_different and "properties" not in self._ignored else None)
        return found

    def _properties_text(self, columns: RecordColumns, row: int) -> bytes:
        data = _slice(columns, "properties", row)
        last = data[-PROPERTY_CRC_SIZE:]
        is_crc = "property_crc" in self._ignored and last.startswith(PROPERTY_CRC32.encode())
        return data.removesuffix(last) if is_crc else data


def _slice(columns: RecordColumns, name: str, row: int) -> bytes:
    begin, size = int(columns[f"{name}_position"][row]), int(columns[f"{name}_size"][row])
    return columns.buffer[begin : begin + size].tobytes()


def _differing_pairs(left: bytes, right: bytes) -> list[PropertyPair]:
    """The properties that two texts do not have in common, by name."""
    of_left, of_right = (decode_properties(text, "surrogateescape") for text in (left, right))
    return [
        PropertyPair(_shown(name), _shown(of_left.get(name)), _shown(of_right.get(name)))
        for name in sorted(of_left.keys() | of_right.keys())
        if of_left.get(name) != of_right.get(name)
    ]


def _shown(text: str | None) -> str | None:
    if text is None:
        return None
    whole = text.encode(errors="surrogateescape").decode(errors="replace")
    return whole if len(whole) <= _SHOWN_CHARACTERS else f"{whole[:_SHOWN_CHARACTERS]}…"


def _chunks(rows: Int64s, sizes: Int64s) -> Iterator[Int64s]:
    """Split rows into chunks of about `_CHUNK_BYTES`."""
    ends = np.cumsum(sizes[rows])
    cuts = np.flatnonzero(np.diff(ends // _CHUNK_BYTES)) + 1
    yield from (chunk for chunk in np.split(rows, cuts) if chunk.size)
