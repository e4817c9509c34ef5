"""Rows of a query as the commands show them: a table, a line of JSON each, or a file."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from reput.cli.output import complain, iso_time, write_fields, write_json, write_table

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that a table shows: it is made when all of them are there.
_SHOWN_ROWS = 1000


def write_rows(reader: pa.RecordBatchReader, *, output: str | None, as_json: bool) -> None:
    """Write all rows to a file, or print them."""
    if output is not None:
        from reput.jobs import row_files

        rows = row_files.write_rows(reader, output)
        write_json({"rows": rows, "output": output}) if as_json else write_fields({"rows": rows, "output": output})
    elif as_json:
        for batch in reader:
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                write_json(_json_row(row))
    else:
        _write_as_table(reader)


def _write_as_table(reader: pa.RecordBatchReader) -> None:
    cells: list[list[Any]] = []
    rows = 0
    for batch in reader:
        shown = batch.slice(0, _SHOWN_ROWS - len(cells))
        cells += [[_cell(value) for value in row.values()] for row in shown.to_pylist(maps_as_pydicts="strict")]
        rows += batch.num_rows
    write_table(reader.schema.names, cells)
    if rows > len(cells):
        complain(f"{len(cells)} of {rows} rows are shown; --json prints all, --output keeps them")


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
