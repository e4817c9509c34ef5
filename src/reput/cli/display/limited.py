"""Limits of lists that are shown to people: a damaged store may have millions of findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from reput.cli.display.output import number_text

if TYPE_CHECKING:
    from reput.jobs.report.table import Table

#: What shows the rest.
ALL = "--max-findings 0 shows all"


def limited(texts: Iterable[str], count: int, limit: int) -> list[str]:
    """The first `limit` of `count` texts, and one about the rest; all of them for a limit of 0."""
    shown = list(islice(texts, limit or None))
    return [*shown, f"and {number_text(count - len(shown))} more: {ALL}"] if len(shown) < count else shown


def limited_table(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], limit: int, count: int | None = None
) -> Table:
    """Table of the first `limit` of `count` rows, or of `rows`; its name tells what shows the rest."""
    from reput.jobs.report.table import Table

    shown = rows[: limit or None]
    count = len(rows) if count is None else count
    return Table(name, columns, shown) if len(shown) == count else Table(f"{name} ({ALL})", columns, shown, count)
