"""Write rows to one file of Parquet, Arrow, CSV or JSON lines, batch by batch. It gets its name when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
from pyarrow import parquet

from reput.errors import ConfigError
from reput.files import DISK, File, FileLayer
from reput.jobs.text_rows import TextWriter

FileKind = Literal["parquet", "arrow", "csv", "jsonl"]
_KINDS: tuple[FileKind, ...] = ("parquet", "arrow", "csv", "jsonl")


def file_kind(path: str | os.PathLike[str]) -> FileKind:
    """Kind of a file by its name; raises ConfigError for other endings than .parquet, .arrow, .csv and .jsonl."""
    for kind in _KINDS:
        if os.fspath(path).lower().endswith(f".{kind}"):
            return kind
    raise ConfigError(f"{os.fspath(path)}: expected a name that ends with .parquet, .arrow, .csv or .jsonl")


def write_rows(reader: pa.RecordBatchReader, path: str | os.PathLike[str], *, files: FileLayer = DISK) -> int:
    """Write all rows; returns their count. An existing file is replaced at the end, and kept after an error.

    CSV and JSON lines have the columns as `reput.jobs.text_rows` says.

    Raises ConfigError for a name of another kind; and whatever reading raises.
    """
    kind = file_kind(path)
    partial = f"{os.fspath(path)}.partial-{os.getpid()}"
    rows = 0
    try:
        with files.open(partial, writable=True, create=True) as file:
            sink = pa.PythonFile(_Sink(file), "w")
            writer: Any
            if kind == "csv" or kind == "jsonl":
                writer = TextWriter(kind, sink, reader.schema)
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
    """Read the batches of an Arrow file that `write_rows` has written.

    Its pages are not asked for: nobody else knows this file.
    """
    with files.open(os.fspath(path)) as file:
        rows = pa.ipc.open_file(pa.py_buffer(file.map().view))
    for number in range(rows.num_record_batches):
        yield rows.get_batch(number)


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
