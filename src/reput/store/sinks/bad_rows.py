"""Rows that RocketMQ would refuse: each is found, and put aside with the reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

import pyarrow as pa

from reput.errors import MessageIllegalError
from reput.files import FileLayer
from reput.kernels.records.message_table import CheckedTable

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
            if self._files.exists(path):  # a killed process has left it
                self._files.unlink(path)
            with self._files.open(path, writable=True, create=True) as file:
                file.write(0, content.getvalue())
                file.sync()
            self._written.append(AsideFile(path, table.num_rows))
            self._batches, self._bytes = [], 0


def publish(files: FileLayer, aside: Sequence[AsideFile], name: str) -> None:
    """Give the files of one task the final names, under which readers find them.

    No file is replaced. One with the same rows is that of the same batch, which is committed again: it stays, and the
    new one goes. Beside one with other rows, as of a sink of the same name, the new one's name gets a number.
    """
    for number, file in enumerate(aside):
        if files.exists(file.path):
            _publish(files, file.path, os.path.join(os.path.dirname(file.path), f"{name}-{number}"))


def _publish(files: FileLayer, path: str, name: str) -> None:
    content = files.read_bytes(path)
    for target in chain([f"{name}.parquet"], (f"{name}.{number}.parquet" for number in count(2))):
        if not files.exists(target):
            files.rename_files([(path, target)])
            return
        if files.read_bytes(target) == content:
            files.unlink(path)
            return


def discard(files: FileLayer, folder: str, begin: str) -> None:
    """Remove the files of a job's tasks, failed ones too, that are not published, and no other job's.

    Args:
        begin: begin of their names, before the numbers of part, attempt and file.
    """
    own = re.compile(rf"{re.escape(begin)}-\d+-\d+-\d+\.parquet")
    for entry in files.list_directory(folder) if files.is_directory(folder) else ():
        if own.fullmatch(entry.name):
            files.unlink(os.path.join(folder, entry.name))
