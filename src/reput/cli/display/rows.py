"""Output of a query's rows: a table, lines of JSON, or a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from reput.cli.display.output import iso_time, write_error, write_json, write_table
from reput.jobs.text_values import bytes_fields, json_text, plain

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.jobs.report.over_time import StoredOverTime


class SeenRows:
    """Iterator over rows that counts them, keeps the first rows as cells of a table, and counts them by store time.

    Args:
        reader: of the rows, read once.
        most_cells: limit of rows that are kept.
        stored: counts the rows by time, if they have the columns for it.
    """

    def __init__(self, reader: pa.RecordBatchReader, most_cells: int, stored: StoredOverTime | None = None) -> None:
        self._reader = reader
        self._most_cells = most_cells
        self._stored = stored if stored is not None and stored.counts(reader.schema) else None
        self.schema: pa.Schema = reader.schema
        self.rows = 0
        self.cells: list[list[str | int | float]] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from reput.jobs.text_rows import python_values

        for batch in self._reader:
            self.rows += batch.num_rows
            shown = batch.slice(0, self._most_cells - len(self.cells))
            columns = [python_values(column) for column in shown.columns]
            self.cells += [list(map(_cell, row)) for row in zip(*columns, strict=True)]
            if self._stored is not None:
                self._stored.add(batch)
            yield batch

    def reader(self) -> pa.RecordBatchReader:
        """The same rows as a reader."""
        from reput.log.reads.open_batches import batch_reader

        return batch_reader(self.schema, self)


def first_rows(reader: pa.RecordBatchReader, count: int) -> pa.RecordBatchReader:
    """The first rows of a reader; no more of it is read, but for its last batch."""
    from reput.log.reads.open_batches import batch_reader

    def batches() -> Iterator[pa.RecordBatch]:
        left = count
        for batch in reader:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    return batch_reader(reader.schema, batches())


def write_lines(rows: Iterable[pa.RecordBatch]) -> None:
    """Print a line of JSON for each row."""
    from reput.jobs.text_rows import json_rows

    for batch in rows:
        for row in json_rows(batch):
            write_json(row)


def write_rows_table(rows: SeenRows) -> None:
    """Print the kept rows as a table, and the count of all rows if there are more."""
    write_table(rows.schema.names, rows.cells)
    if rows.rows > len(rows.cells):
        write_error(f"{len(rows.cells)} of {rows.rows} rows are shown; --json prints all, --output keeps them")


def _cell(value: Any) -> str | int | float:
    if isinstance(value, bytes):
        return next(iter(bytes_fields("", value).values()))
    if isinstance(value, datetime):
        return iso_time(plain(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    shown = plain(value)
    if isinstance(shown, str | int | float):
        return shown
    return "" if shown is None else json_text(shown)
