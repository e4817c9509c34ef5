"""Task of an archive: a log file becomes a table of its messages and the rest of its bytes, and is proven.

The proof has three steps. The record of each row is built from its columns, and compared with the log. What was
written is read again from the target, and compared with the hash of what was to be written. The log file is made of it
as a restore does, and its SHA-256 compared with that of the store's file. Only then is the manifest written.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from reput.files import File, FileLayer
from reput.formats.archive import (
    REST,
    ROWS,
    ArchivedFile,
    ArchiveObject,
    archived_file_name,
    encode_archived_file,
)
from reput.formats.backup import LastBackedUp, LogRange
from reput.formats.paths import offset_to_file_name
from reput.jobs.archived_files import prove_file, read_archived_file, sha256_of
from reput.jobs.backup.source import backed_up
from reput.kernels.archive.archived_rows import CODED, REST_SCHEMA, ROWS_SCHEMA, gathered, proven_rows
from reput.kernels.archive.rest_pieces import MOST_PIECE_BYTES, find_rest
from reput.kernels.records.record_scan import ScanLevel, read_records_at
from reput.log.directory import LogFile, open_listed
from reput.log.resume_points import last_record_of
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitStop

TEMPORARY = ".tmp"
#: Log bytes of a row group: a reader of a few messages decodes one.
_GROUP_BYTES = 4 << 20
#: Pieces, and their bytes, that are one row group of the rest.
_PIECES, _PIECE_BYTES = 1 << 16, 4 * MOST_PIECE_BYTES
_WRITE_BYTES = 1 << 20
_ZSTD_LEVEL = 3
#: Columns of few values, by their paths in Parquet. A dictionary of others costs time and saves nothing.
_FEW_VALUES = [
    *CODED, "queue_id", "magic_code", "flag", "sys_flag", "reconsume_times", "tags", "born_timestamp",
    "store_timestamp", "properties.key_value.key", "properties.key_value.value",
]  # fmt: skip
_ASCENDING = dict.fromkeys(("commit_log_offset", "queue_offset", "prepared_transaction_offset"), "DELTA_BINARY_PACKED")
#: No statistics of these: least and greatest values of them are large, and select nothing.
_UNBOUNDED = {"body", "properties", "raw_properties", "property_order", "keys"}


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Outcome of a task: the manifest, whether the file was archived by this task, and damage of the log file."""

    archived: ArchivedFile
    is_new: bool
    damages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Task: archive a log file that no process writes any more. A file that the archive has is left as it is.

    Attributes:
        archive: path of the archive's folder.
        files: the file layer.
    """

    archive: str
    files: FileLayer

    def __call__(self, log_file: LogFile) -> WrittenFile:
        """Write the objects, prove them, and write the manifest."""
        manifest = os.path.join(self.archive, archived_file_name(log_file.start_offset))
        if self.files.exists(manifest):
            return WrittenFile(read_archived_file(self.archive, log_file.start_offset, self.files), is_new=False)
        scanned = _scan(log_file, self.files)
        archived = self._write(log_file, scanned)
        prove_file(self.archive, archived, self.files)
        temporary = _of_this_attempt(manifest)
        with self.files.open(temporary, writable=True, create=True) as file:
            file.write(0, encode_archived_file(archived))
            file.sync()
        self.files.rename(temporary, manifest)
        return WrittenFile(archived, True, scanned.damages)

    def _write(self, log_file: LogFile, scanned: _Scanned) -> ArchivedFile:
        """Write rows and rest."""
        name = offset_to_file_name(log_file.start_offset)
        with open_listed(self.files, log_file.path) as file:
            sha256 = sha256_of(file)
            mapping = file.map(expected=log_file.size)
        mapping.ask(0, mapping.size)
        log = np.frombuffer(mapping.view, np.uint8)
        path = os.path.join(self.archive, name)
        is_given = np.zeros(scanned.rows, np.bool_)
        with _Object(path + ROWS, ROWS_SCHEMA, self.files) as rows:
            for part in scanned.row_groups():
                offsets = log_file.start_offset + scanned.positions[part]
                batch, is_given[part] = proven_rows(read_records_at(log, scanned.positions[part], offsets))
                rows.write(batch)
            rows_object = rows.finish()
        rest_object, rest_bytes = self._write_rest(path, log_file.start_offset, log, scanned, is_given)
        return ArchivedFile(
            LogRange(log_file.start_offset, log_file.end_offset, sha256), int(np.count_nonzero(is_given)),
            scanned.last, rows_object, rest_object, rest_bytes,
        )  # fmt: skip

    def _write_rest(
        self, path: str, base: int, log: npt.NDArray[np.uint8], scanned: _Scanned, is_given: npt.NDArray[np.bool_]
    ) -> tuple[ArchiveObject | None, int]:
        """Write all that no row gives back, if there is anything: returns the object, and the number of bytes."""
        begins = scanned.positions[is_given]
        ends = begins + scanned.sizes[is_given]
        positions, sizes = np.empty(_PIECES, np.int64), np.empty(_PIECES, np.int32)
        state, total = np.zeros(2, np.int64), 0
        with _Object(path + REST, REST_SCHEMA, self.files) as rest:
            while count := find_rest(log.ctypes.data, log.size, begins, ends, _PIECE_BYTES, positions, sizes, state):
                pieces = gathered(log, positions[:count], sizes[:count])
                offsets = pa.array(base + positions[:count])
                rest.write(pa.RecordBatch.from_arrays([offsets, pieces], schema=REST_SCHEMA))
                total += int(sizes[:count].sum(dtype=np.int64))
            return (rest.finish() if total else None), total


@dataclass(frozen=True, slots=True)
class _Scanned:
    """Records of a log file that prove themselves, in log order.

    Attributes:
        positions, sizes: of the records in the file.
        order: int64[rows], the records by topic, queue id and place: so a reader of a queue reads few row groups.
        last: the last record.
        damages: damage before a later record.
    """

    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    last: LastBackedUp | None
    damages: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of records."""
        return self.positions.size

    def row_groups(self) -> Iterator[npt.NDArray[np.int64]]:
        """Records of each row group, in its order: about `_GROUP_BYTES` of the log."""
        ends = np.cumsum(self.sizes[self.order], dtype=np.int64)
        begin = 0
        while begin < ends.size:
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _GROUP_BYTES, "right")))
            yield self.order[begin:end]
            begin = end


def _scan(log_file: LogFile, files: FileLayer) -> _Scanned:
    """Find the records of a log file, and their order. Damage is passed over: its bytes are kept as they are."""
    split = Split(log_file, log_file.start_offset, log_file.end_offset, is_record_start=True)
    scan = scan_split(split, level=ScanLevel.QUEUES, on_damage=OnDamage.SKIP, files=files)
    positions, sizes, queues, last = [], [], [], None
    numbers: dict[tuple[bytes, int], int] = {}
    for columns in scan:
        known = np.array([numbers.setdefault(queue, len(numbers)) for queue in columns.queues()], np.int32)
        positions.append(columns["commit_log_offset"] - log_file.start_offset)
        sizes.append(columns["store_size"].copy())
        queues.append(known[columns["queue"]])
        last = backed_up(last_record_of(columns))
    damages = [str(damage) for damage in scan.damages]
    if scan.stop is not SplitStop.BLANK and scan.end_offset != log_file.end_offset:
        end = scan.end_offset if scan.end_offset is not None else log_file.start_offset
        damages.append(f"{log_file.path}: no record follows the one that ends at offset {end}")
    ranks = np.empty(len(numbers), np.int64)
    ranks[[numbers[queue] for queue in sorted(numbers)]] = np.arange(len(numbers))
    queue_of = np.concatenate(queues) if queues else np.empty(0, np.int32)
    return _Scanned(
        np.concatenate(positions) if positions else np.empty(0, np.int64),
        np.concatenate(sizes) if sizes else np.empty(0, np.int32),
        np.argsort(ranks[queue_of], kind="stable"),
        last,
        tuple(damages),
    )


def _of_this_attempt(path: str) -> str:
    """Temporary name that no other attempt has: one that counts as lost, on another machine, may still run."""
    return f"{path}.{uuid.uuid4().hex}{TEMPORARY}"


class _Object:
    """Writer of one Parquet file of an archive; a context manager that leaves nothing of an abandoned file."""

    def __init__(self, path: str, schema: pa.Schema, files: FileLayer) -> None:
        self._path, self._schema, self._files = path, schema, files
        self._temporary = _of_this_attempt(path)
        self._file = files.open(self._temporary, writable=True, create=True)
        self._end = _HashedEnd(self._file)
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._end, mode="w"), _WRITE_BYTES)
        self._writer = parquet.ParquetWriter(
            self._stream, schema, compression="zstd", compression_level=_ZSTD_LEVEL,
            use_dictionary=[path for path in _FEW_VALUES if path.partition(".")[0] in schema.names],
            column_encoding={name: kind for name, kind in _ASCENDING.items() if name in schema.names},
            write_statistics=[name for name in schema.names if name not in _UNBOUNDED | {"bytes"}],
            write_page_index=True, write_page_checksum=True,
        )  # fmt: skip

    def __enter__(self) -> _Object:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()
        self._writer.is_open = False  # else Arrow would write the footer of an abandoned file when it is collected
        self._file.close()
        if self._files.exists(self._temporary):
            self._files.unlink(self._temporary)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a row group."""
        self._writer.write_table(pa.Table.from_batches([batch]), row_group_size=max(batch.num_rows, 1))

    def finish(self) -> ArchiveObject:
        """Write the footer, sync the file, and give it its name.

        One of this name is of a task that was killed, or of another attempt of this task, which wrote the same bytes.
        It is replaced at once: it may count already.
        """
        self._writer.close()
        self._stream.flush()
        self._file.sync()
        self._files.rename(self._temporary, self._path)
        return ArchiveObject(self._end.position, self._end.digest.hexdigest())


class _HashedEnd:
    """File object for Arrow that appends to a file, with the hash of what it was given."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.position = 0
        self.digest: Any = hashlib.sha256()
        self.closed = False

    def write(self, data: bytes) -> None:
        """Append bytes; do nothing after `close`."""
        if not self.closed:
            self._file.write(self.position, data)
            self.digest.update(data)
            self.position += len(data)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Accept no more bytes."""
        self.closed = True
