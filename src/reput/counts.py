"""Counts in words: `1 body`, `2 bodies`."""

from __future__ import annotations


def counted(count: int, noun: str, more: str | None = None) -> str:
    """The count and its noun. `more`: the noun of other counts than 1, if it is no plain plural, or has its verb."""
    if count == 1:
        return f"1 {noun}"
    is_ies = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{count} {more or (f'{noun[:-1]}ies' if is_ies else f'{noun}s')}"
