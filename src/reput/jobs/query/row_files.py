"""Write rows to one Parquet, Arrow or CSV file batch by batch. The file gets its name when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from reput.errors import ConfigError
from reput.files import DISK, File, FileLayer

FileKind = Literal["parquet", "arrow", "csv"]


def file_kind(path: str | os.PathLike[str]) -> FileKind:
    """Kind of a file by its name; raises ConfigError for other endings than .parquet, .arrow and .csv."""
    kinds: tuple[FileKind, ...] = ("parquet", "arrow", "csv")
    for kind in kinds:
        if os.fspath(path).lower().endswith(f".{kind}"):
            return kind
    raise ConfigError(f"{os.fspath(path)}: expected a name that ends with .parquet, .arrow or .csv")


def write_rows(reader: pa.RecordBatchReader, path: str | os.PathLike[str], *, files: FileLayer = DISK) -> int:
    """Write all rows; returns their count. An existing file is replaced at the end, and kept after an error.

    CSV has no binary and no nested columns: bytes are written if they are UTF-8.

    Raises ConfigError for a name of another kind, a column that CSV cannot have, and bytes that are no UTF-8; and
    whatever reading raises.
    """
    kind = file_kind(path)
    if kind == "csv":
        reader = _flat(reader)
    partial = f"{os.fspath(path)}.partial-{os.getpid()}"
    rows = 0
    try:
        with files.open(partial, writable=True, create=True) as file:
            sink = pa.PythonFile(_Sink(file), "w")
            writer: Any
            if kind == "csv":
                writer = csv.CSVWriter(sink, reader.schema)
            elif kind == "arrow":
                writer = pa.ipc.new_file(sink, reader.schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
            else:
                writer = parquet.ParquetWriter(sink, reader.schema, compression="zstd", compression_level=1)
            with writer:
                for batch in reader:
                    writer.write_batch(batch)
                    rows += batch.num_rows
            file.sync()
        files.rename(partial, os.fspath(path))
    except BaseException:
        if files.exists(partial):
            files.unlink(partial)
        raise
    return rows


def read_rows(path: str | os.PathLike[str], *, files: FileLayer = DISK) -> Iterator[pa.RecordBatch]:
    """Read the batches of an Arrow file that `write_rows` has written."""
    with files.open(os.fspath(path)) as file:
        rows = pa.ipc.open_file(pa.py_buffer(file.map().view))
    for number in range(rows.num_record_batches):
        yield rows.get_batch(number)


def _flat(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    for field in reader.schema:
        if pa.types.is_nested(field.type):
            raise ConfigError(
                f"CSV has no column of type {field.type} as {field.name} is; select its parts, or Parquet"
            )
    text = pa.schema(
        [field.with_type(pa.string()) if pa.types.is_binary(field.type) else field for field in reader.schema]
    )
    return pa.RecordBatchReader.from_batches(text, (_as_text(batch, text) for batch in reader))


def _as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(pc.cast(array, field.type))
        except pa.ArrowInvalid:
            raise ConfigError(f"CSV has no bytes, and {field.name} is no UTF-8 in each row; write Parquet") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Sink:
    """File object for Arrow's sequential writes."""

    closed = False

    def __init__(self, file: File) -> None:
        self._file = file
        self._position = 0

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._file.write(self._position, data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Mark as closed. The opener closes the file."""
        self.closed = True
