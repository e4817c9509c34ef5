"""Hints about fields of bodies that are named as words of SQL, for statements that DuckDB cannot parse."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

#: Where a parser stopped, by its text.
_NEAR = re.compile(r'at or near "(.+?)"')


def reserved_field(sql: str, reason: str, fields: Iterable[str], reserved: Collection[str]) -> str | None:
    """The field for which a parser took a word of SQL: where it stopped, or just before. None without one.

    Args:
        sql: The statement, which DuckDB has refused.
        reason: DuckDB's text.
        fields: Names of columns of the statement's tables.
        reserved: Words that are no names of columns, in lower case.
    """
    if (near := _NEAR.search(reason)) is None:
        return None
    stop = near.group(1)
    for field in fields:
        if field.lower() in reserved and (
            field.lower() == stop.lower()
            or re.search(rf'(?<![\w"]){re.escape(field)}\s*{re.escape(stop)}', sql, re.IGNORECASE)
        ):
            return field
    return None
