"""Rows of a query as the commands show them: a table, a line of JSON each, or a file."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from reput.cli.output import complain, iso_time, write_json, write_table

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.jobs.report.over_time import StoredOverTime


class SeenRows:
    """Rows that go by: how many, the first ones as cells of a table, and when they were stored.

    Args:
        reader: gives them, once.
        most_cells: rows that are kept.
        stored: counts them by time, if they have the columns for it.
    """

    def __init__(self, reader: pa.RecordBatchReader, most_cells: int, stored: StoredOverTime | None = None) -> None:
        self._reader = reader
        self._most_cells = most_cells
        self._stored = stored if {"topic", "store_timestamp"} <= set(reader.schema.names) else None
        self.schema: pa.Schema = reader.schema
        self.rows = 0
        self.cells: list[list[str | int]] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            self.rows += batch.num_rows
            shown = batch.slice(0, self._most_cells - len(self.cells))
            self.cells += [
                [_cell(value) for value in row.values()] for row in shown.to_pylist(maps_as_pydicts="strict")
            ]
            if self._stored is not None:
                self._stored.add(batch)
            yield batch

    def reader(self) -> pa.RecordBatchReader:
        """The same rows, for who takes a reader."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))


def write_lines(rows: Iterable[pa.RecordBatch]) -> None:
    """A line of JSON for each row."""
    for batch in rows:
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            write_json(_json_row(row))


def write_rows_table(rows: SeenRows) -> None:
    """The rows that were kept, and how many there are beside them."""
    write_table(rows.schema.names, rows.cells)
    if rows.rows > len(rows.cells):
        complain(f"{len(rows.cells)} of {rows.rows} rows are shown; --json prints all, --output keeps them")


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes as text, or as `<name>_base64` where they are no UTF-8; times in ms since 1970 UTC."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                shown[name] = value.decode()
            except UnicodeDecodeError:
                shown[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            shown[name] = _plain(value)
    return shown


def _plain(value: Any) -> Any:
    """A value as JSON has it; a number that is none (NaN) is null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)


def _cell(value: Any) -> str | int:
    if isinstance(value, bytes):
        return next(iter(_json_row({"": value}).values())) or ""
    if isinstance(value, datetime):
        return iso_time(round(value.timestamp() * 1000))
    plain = _plain(value)
    if isinstance(plain, str | int):
        return plain
    return "" if plain is None else json.dumps(plain, ensure_ascii=False)
