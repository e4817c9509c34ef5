"""Staged files: written whole, and synced, under names that readers ignore, until a commit names them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self

import pyarrow as pa
from pyarrow import parquet

from reput.files import File, FileLayer
from reput.jobs.text_rows import TextKind, TextWriter

_ROW_GROUP_BYTES = 32 << 20
#: Rows of a file that are not compressed: zstd begins anew for each column, half of the time of a file of one row, and
#: what it adds to pages of few bytes is more than it saves.
_PLAIN_BYTES = 2 << 10
#: Bytes of one write to a file: a buffer for a whole file would be new memory, which the system clears first.
_WRITE_BYTES = 1 << 20
#: Rows that are Python's objects at a time.
_TEXT_ROWS = 8192
#: Columns with few different values: for them a dictionary saves space; for other columns it only costs time.
_FEW_VALUES = ("store", "queue_id", "born_host", "store_host", "tags", "status", "reason")


@dataclass(frozen=True, slots=True)
class Staging:
    """Folder for the files of tasks, which all tasks must see."""

    folder: str
    files: FileLayer

    def open(self, name: str) -> Any:
        """Open a staged file to read: a `pyarrow.parquet.ParquetFile`."""
        return parquet.ParquetFile(pa.BufferReader(self.files.read_bytes(os.path.join(self.folder, name))))

    def sync(self, names: Sequence[str]) -> None:
        """Sync staged files, all at once: a hundred thousand small ones take a third of the time of one by one."""
        self.files.sync_files([os.path.join(self.folder, name) for name in names])


class StagedFileWriter:
    """Writer of one staged Parquet file; a context manager that closes the file."""

    ending = ".parquet"

    def __init__(self, schema: pa.Schema, staging: Staging) -> None:
        # No statistics of bodies and properties: least and greatest values of them are large, and select nothing.
        leaves = [name for name in _leaves(schema) if name != "body" and not name.startswith("properties.")]
        encodings = {"commit_log_offset": "DELTA_BINARY_PACKED"}  # offsets ascend
        if _has_bytes(schema):  # lengths apart from the bytes: between bodies, they slow zstd's search for repetitions
            encodings["body"] = "DELTA_LENGTH_BYTE_ARRAY"
        offset = schema.get_field_index("commit_log_offset")
        self._staged = _StagedFile(staging)
        self._make = partial(
            parquet.ParquetWriter,
            self._staged.stream,
            schema,
            use_dictionary=[name for name in _FEW_VALUES if name in schema.names],
            write_statistics=leaves,
            column_encoding=encodings,
            sorting_columns=[parquet.SortingColumn(offset)],
        )
        self._writer: parquet.ParquetWriter | None = None  # made once it is known whether there are many rows
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # else Arrow would write the footer of an abandoned file when it is collected
        self._staged.close()

    def write(self, table: pa.Table) -> None:
        """Add rows. Row groups have about 32 MiB."""
        self._waiting.append(table)
        self._bytes += table.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def finish(self) -> tuple[str, int]:
        """Write the remaining rows; returns the file's name, unique to this task attempt, and its size.

        The caller must sync the file (`Staging.sync`), since one call serves many files.
        """
        writer = self._flush()
        writer.close()
        return self._staged.finish()

    def _flush(self) -> parquet.ParquetWriter:
        """Write the rows that wait; returns the writer."""
        if self._writer is None:
            is_plain = self._bytes <= _PLAIN_BYTES
            self._writer = (
                self._make(compression="none") if is_plain else self._make(compression="zstd", compression_level=1)
            )
        if not self._waiting:
            return self._writer
        table = pa.concat_tables(self._waiting)
        rows = max(1, table.num_rows * _ROW_GROUP_BYTES // max(self._bytes, 1))
        self._writer.write_table(table, row_group_size=min(rows, table.num_rows))
        self._waiting, self._bytes = [], 0
        return self._writer


class StagedTextWriter:
    """Writer of one staged file of CSV or JSON lines; a context manager that closes the file."""

    def __init__(self, kind: TextKind, schema: pa.Schema, staging: Staging) -> None:
        self.ending = f".{kind}"
        self._staged = _StagedFile(staging)
        self._writer = TextWriter(kind, self._staged.stream, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._staged.close()

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        for batch in table.to_batches(max_chunksize=_TEXT_ROWS):
            self._writer.write_batch(batch)

    def finish(self) -> tuple[str, int]:
        """As that of Parquet."""
        return self._staged.finish()


class _StagedFile:
    """File with a name of its own in the staging folder, written through a buffer."""

    def __init__(self, staging: Staging) -> None:
        self._name = uuid.uuid4().hex
        self._file = staging.files.open(os.path.join(staging.folder, self._name), writable=True, create=True)
        self._end = _FileEnd(self._file)
        self.stream = pa.BufferedOutputStream(pa.PythonFile(self._end, mode="w"), _WRITE_BYTES)

    def finish(self) -> tuple[str, int]:
        """Write what is buffered; returns the file's name and size."""
        self.stream.flush()
        return self._name, self._end.position

    def close(self) -> None:
        """Close the file; what is still buffered is lost."""
        self._end.close()
        self._file.close()


class _FileEnd:
    """File object for Arrow that appends to a file. `position` is the end of the file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.position = 0
        self.closed = False

    def write(self, data: bytes) -> None:
        """Append bytes; do nothing after `close`."""
        if not self.closed:
            self._file.write(self.position, data)
            self.position += len(data)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Accept no more bytes."""
        self.closed = True


def _has_bytes(schema: pa.Schema) -> bool:
    """Whether the schema has bodies as bytes or text, not as structs."""
    return "body" in schema.names and not pa.types.is_struct(schema.field("body").type)


@lru_cache(maxsize=8)
def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of the columns as Parquet names them: `keys.list.element`, `body.price`."""
    content = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), content)
    columns = parquet.ParquetFile(pa.BufferReader(content.getvalue())).schema
    return [columns.column(i).path for i in range(len(columns))]
