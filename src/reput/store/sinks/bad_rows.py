"""Rows that RocketMQ would refuse: each is found, and put aside with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from reput.errors import MessageIllegalError
from reput.files import FileLayer
from reput.kernels.message_table import CheckedTable

#: Bytes of a file of rows put aside, at the most: the rows are kept in memory until the file is full.
_FILE_BYTES = 64 << 20
_REASON = "reason"


class AsideFile(NamedTuple):
    """A Parquet file of rows put aside. Readers pass over its name until the commit gives it its final name."""

    path: str
    rows: int


def checked_tables(
    batch: pa.RecordBatch,
    first_row: int,
    check: Callable[[pa.RecordBatch, int], CheckedTable],
    put_aside: Callable[[pa.RecordBatch, str], None],
) -> Iterator[CheckedTable]:
    """Check the rows of a batch and yield the good rows, in order; each bad row is put aside with its reason.

    A check stops at the first bad row, so a batch with a bad row is halved until that row is alone. A batch without a
    bad row costs one check; a bad row costs some 16 checks.
    """
    left = [(batch, first_row)]
    while left:
        rows, first = left.pop()
        try:
            checked = check(rows, first)
        except MessageIllegalError as error:
            reason = str(error)
        else:
            yield checked
            continue
        if rows.num_rows == 1:
            put_aside(rows, reason)
        else:
            half = rows.num_rows // 2
            left += [(rows.slice(half), first + half), (rows.slice(0, half), first)]


class BadRows:
    """Writer of the rows that one task puts aside.

    Args:
        files: The file layer.
        path: Path that the names of its files begin with.
    """

    def __init__(self, files: FileLayer, path: str) -> None:
        self._files = files
        self._path = path
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[AsideFile] = []

    def put_aside(self, row: pa.RecordBatch, reason: str) -> None:
        """Keep one row: its columns, and the reason after them."""
        self._batches.append(row.append_column(_REASON, pa.array([reason])))
        self._bytes += row.nbytes
        if self._bytes >= _FILE_BYTES:
            self._write()

    def close(self) -> Sequence[AsideFile]:
        """Write the remaining rows; returns all files."""
        self._write()
        return self._written

    def _write(self) -> None:
        if self._batches:
            from pyarrow import parquet

            table = pa.Table.from_batches(self._batches)
            content = pa.BufferOutputStream()
            parquet.write_table(table, content)
            path = f"{self._path}-{len(self._written)}.parquet"
            with self._files.open(path, writable=True, create=True) as file:
                file.write(0, content.getvalue())
                file.sync()
            self._written.append(AsideFile(path, table.num_rows))
            self._batches, self._bytes = [], 0


def publish(files: FileLayer, aside: Sequence[AsideFile], name: str) -> None:
    """Give the files of one task the final names, under which readers find them; existing files are replaced."""
    for number, file in enumerate(aside):
        if files.exists(file.path):
            files.rename(file.path, os.path.join(os.path.dirname(file.path), f"{name}-{number}.parquet"))


def discard(files: FileLayer, folder: str, prefix: str) -> None:
    """Remove the files of tasks whose names begin with `prefix`, also those of failed tasks."""
    for entry in files.list_directory(folder) if files.is_directory(folder) else ():
        if entry.name.startswith(prefix):
            files.unlink(os.path.join(folder, entry.name))
