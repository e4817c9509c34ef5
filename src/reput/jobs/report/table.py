"""Tables of a report, and the text form of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Value = str | int | float | bool | None
"""Value of a fact, a cell or a point. Times are ISO 8601 texts: a plot shows them on a time axis."""


@dataclass(frozen=True, slots=True)
class Table:
    """Named table; each row has one value for each column.

    `total` is the number of all rows, if `rows` are some of them.

    Raises ValueError for a row of another length.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    total: int | None = None

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name!r}: row {number} has {len(row)} values for {len(self.columns)} columns"
                )


def format_value(value: Value, *, grouped: bool = True) -> str:
    """Text of a value: 1,027,730, 3.14, 0.00123; yes and no; empty for None. `grouped`: with commas, for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if grouped else str(value)
    if isinstance(value, float):
        return format_value(round(value), grouped=grouped) if abs(value) >= 1000 else f"{value:.3g}"
    return value


def numeric_columns(table: Table) -> list[bool]:
    """Whether a column holds only numbers (and None), by column: such columns are aligned right."""
    return [
        all(value is None or type(value) in (int, float) for value in (row[index] for row in table.rows))
        for index in range(len(table.columns))
    ]
