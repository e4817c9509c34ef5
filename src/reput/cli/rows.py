"""Output of a query's rows: a table, lines of JSON, or a file."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from reput.cli.output import iso_time, write_error, write_json, write_table

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
        """The same rows as a reader."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))


def write_lines(rows: Iterable[pa.RecordBatch]) -> None:
    """Print a line of JSON for each row."""
    for batch in rows:
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            write_json(_json_row(row))


def write_rows_table(rows: SeenRows) -> None:
    """Print the kept rows as a table, and the count of all rows if there are more."""
    write_table(rows.schema.names, rows.cells)
    if rows.rows > len(rows.cells):
        write_error(f"{len(rows.cells)} of {rows.rows} rows are shown; --json prints all, --output keeps them")


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Row as JSON: bytes as text, or as `<name>_base64` if they are no UTF-8; times in ms since 1970 UTC."""
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
    """Value as JSON; NaN and infinity are null."""
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
